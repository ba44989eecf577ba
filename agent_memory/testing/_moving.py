"""Contract tests of moving and deleting whole directories (`MovesTrees`), for backends that support it."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

from agent_memory.backend import DeletedTree, MovesTrees
from agent_memory.core.flows import moves_trees
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidPathError,
)
from agent_memory.testing._store import ContractBase, ContractStore, key
from agent_memory.testing._threads import race


class _Moving:
    """The two methods of a backend of either kind, for a blocking caller."""

    def __init__(self, store: ContractStore) -> None:
        self._store = store
        self._verbs = cast(MovesTrees, store.backend)

    def move(self, source: str, target: str) -> int | None:
        moved: int | None = self._store.blocking.call(self._verbs.move_tree, key(source), key(target))
        return moved

    def delete(self, prefix: str) -> DeletedTree:
        return cast(DeletedTree, self._store.blocking.call(self._verbs.delete_tree, key(prefix)))


class MovingContract(ContractBase):
    """Whole directories: moved to a free name, deleted, and both while other writers change files in them."""

    @pytest.fixture
    def moving(self, store: ContractStore) -> _Moving:
        """The methods, if the backend has them."""
        if not moves_trees(store.backend):
            pytest.skip("the backend goes file by file")
        return _Moving(store)

    def test_a_directory_moves_with_all_that_is_in_it(self, store: ContractStore, moving: _Moving) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            store.write(name, name.encode())
        assert moving.move("old", "new/place") == 2
        assert store.names() == ("new/place/a", "new/place/deep/er/b", "older/c")
        assert store.holds("new/place/deep/er/b") == b"old/deep/er/b"
        assert store.level() == ([], ["new", "older"])

    @pytest.mark.parametrize(
        ("theirs", "target"), [("taken", "taken"), ("taken/below", "taken"), ("taken", "taken/below/deep")]
    )
    def test_a_directory_moves_to_a_free_name_only(
        self, store: ContractStore, moving: _Moving, theirs: str, target: str
    ) -> None:
        store.write("old/a", b"a")
        store.write(theirs, b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            moving.move("old", target)
        assert store.names() == ("old/a", theirs)
        assert store.holds(theirs) == b"theirs"

    @pytest.mark.parametrize("missing", ["old", "kept", "old/deep"])
    def test_what_is_no_directory_does_not_move(self, store: ContractStore, moving: _Moving, missing: str) -> None:
        store.write("kept", b"a file")
        with pytest.raises(AgentMemoryFileNotFoundError):
            moving.move(missing, "new")
        assert store.names() == ("kept",)

    def test_a_directory_does_not_move_where_a_name_would_be_too_long(
        self, store: ContractStore, moving: _Moving
    ) -> None:
        deep = "/".join("d" * 31)
        store.write(f"{deep}/file", b"a")
        with pytest.raises(InvalidPathError) as refused:
            moving.move("d", "one/more")
        assert refused.value.rule == "too-deep"
        assert store.names() == (f"{deep}/file",)
        assert store.level() == ([], ["d"])

    def test_a_directory_is_deleted_with_all_that_is_in_it(self, store: ContractStore, moving: _Moving) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            store.write(name, b"")
        assert moving.delete("old") == DeletedTree(2, 0)
        assert store.names() == ("older/c",)
        assert moving.delete("old") == DeletedTree(0, 0)
        assert moving.delete("") == DeletedTree(1, 0)
        assert store.level() == ([], [])

    def test_an_append_to_a_directory_that_moves_lands_where_it_says(
        self, store: ContractStore, moving: _Moving
    ) -> None:
        for turn in range(self.rounds):
            store.write(f"{turn}/old/log", b"before.")
            appended, moved = race(
                [
                    partial(store.append, f"{turn}/old/log", b"mine"),
                    partial(moving.move, f"{turn}/old", f"{turn}/new"),
                ]
            )
            assert not isinstance(appended, AgentMemoryError)
            assert moved == 1
            found = store.holds(f"{turn}/new/log"), store.holds(f"{turn}/old/log")
            assert found in [(b"before.mine", None), (b"before.", b"mine")]

    def test_a_file_made_in_a_directory_that_is_deleted_is_deleted_too_or_stays(
        self, store: ContractStore, moving: _Moving
    ) -> None:
        for turn in range(self.rounds):
            store.write(f"{turn}/old/a", b"")
            written, deleted = race(
                [
                    partial(store.write, f"{turn}/old/deep/b", b"mine"),
                    partial(moving.delete, f"{turn}/old"),
                ]
            )
            assert not isinstance(written, AgentMemoryError)
            assert isinstance(deleted, DeletedTree)
            assert store.holds(f"{turn}/old/a") is None
            assert store.holds(f"{turn}/old/deep/b") == (b"mine" if deleted.files == 1 else None)
