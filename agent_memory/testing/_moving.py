"""Contract tests of optional methods: `MovesTrees`, `MovesFiles` and `Erases`, for backends that support them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from agent_memory.backend import DeletedTree
from agent_memory.core.flows import erases, moves_files, moves_trees
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    UnsupportedOperationError,
)
from agent_memory.testing._store import ContractBase, ContractStore, race


def append_while_it_moves(store: ContractStore, turn: int, move: Callable[[], object]) -> object:
    """Race an append to the file ``TURN/old/log`` with its move to ``TURN/new/log``; return the result of the move."""
    old, new = f"{turn}/old/log", f"{turn}/new/log"
    store.write(old, b"before.")
    appended, moved = race([partial(store.append, old, b"mine"), move])
    assert not isinstance(appended, AgentMemoryError)
    assert (store.holds(new), store.holds(old)) in [(b"before.mine", None), (b"before.", b"mine")]
    return moved


class MovingContract(ContractBase):
    """Whole directories: moved to a free name, deleted, and both while other writers change files in them."""

    @pytest.fixture
    def moving(self, store: ContractStore) -> ContractStore:
        """The store, if the backend has the methods."""
        if not moves_trees(store.backend):
            pytest.skip("the backend goes file by file")
        return store

    def test_a_directory_moves_with_all_that_is_in_it(self, moving: ContractStore) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            moving.write(name, name.encode())
        assert moving.call("move_tree", "old", "new/place") == 2
        assert moving.names() == ("new/place/a", "new/place/deep/er/b", "older/c")
        assert moving.holds("new/place/deep/er/b") == b"old/deep/er/b"
        assert moving.level() == ([], ["new", "older"])

    @pytest.mark.parametrize(
        ("theirs", "target"), [("taken", "taken"), ("taken/below", "taken"), ("taken", "taken/below/deep")]
    )
    def test_a_directory_moves_to_a_free_name_only(self, moving: ContractStore, theirs: str, target: str) -> None:
        moving.write("old/a", b"a")
        moving.write(theirs, b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            moving.call("move_tree", "old", target)
        assert moving.names() == ("old/a", theirs)
        assert moving.holds(theirs) == b"theirs"

    @pytest.mark.parametrize("missing", ["old", "kept", "old/deep"])
    def test_what_is_no_directory_does_not_move(self, moving: ContractStore, missing: str) -> None:
        moving.write("kept", b"a file")
        with pytest.raises(AgentMemoryFileNotFoundError):
            moving.call("move_tree", missing, "new")
        assert moving.names() == ("kept",)

    def test_a_directory_does_not_move_where_a_name_would_be_too_long(self, moving: ContractStore) -> None:
        deep = "/".join("d" * 31)
        moving.write(f"{deep}/file", b"a")
        with pytest.raises(InvalidPathError) as refused:
            moving.call("move_tree", "d", "one/more")
        assert refused.value.rule == "too-deep"
        assert moving.names() == (f"{deep}/file",)
        assert moving.level() == ([], ["d"])

    def test_a_directory_is_deleted_with_all_that_is_in_it(self, moving: ContractStore) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            moving.write(name, b"")
        assert moving.call("delete_tree", "old") == DeletedTree(2, 0)
        assert moving.names() == ("older/c",)
        assert moving.call("delete_tree", "old") == DeletedTree(0, 0)
        assert moving.call("delete_tree", "") == DeletedTree(1, 0)
        assert moving.level() == ([], [])

    def test_an_append_to_a_directory_that_moves_lands_where_it_says(self, moving: ContractStore) -> None:
        for turn in range(self.rounds):
            move = partial(moving.call, "move_tree", f"{turn}/old", f"{turn}/new")
            assert append_while_it_moves(moving, turn, move) == 1

    def test_a_file_made_in_a_directory_that_is_deleted_is_deleted_too_or_stays(self, moving: ContractStore) -> None:
        for turn in range(self.rounds):
            moving.write(f"{turn}/old/a", b"")
            written, deleted = race(
                [
                    partial(moving.write, f"{turn}/old/deep/b", b"mine"),
                    partial(moving.call, "delete_tree", f"{turn}/old"),
                ]
            )
            assert not isinstance(written, AgentMemoryError)
            assert isinstance(deleted, DeletedTree)
            assert moving.holds(f"{turn}/old/a") is None
            assert moving.holds(f"{turn}/old/deep/b") == (b"mine" if deleted.files == 1 else None)


class MovingFilesContract(ContractBase):
    """A file renamed in one step, if the backend supports it (`MovesFiles`)."""

    @pytest.fixture
    def renaming(self, store: ContractStore) -> ContractStore:
        """The store, if the backend has the method."""
        if not moves_files(store.backend):
            pytest.skip("the backend copies and deletes")
        return store

    def test_a_file_moves_to_a_free_name(self, renaming: ContractStore) -> None:
        renaming.write("old/a", b"content")
        assert renaming.call("move_file", "old/a", "new/deep/b") == len(b"content")
        assert renaming.names() == ("new/deep/b",)
        assert renaming.holds("new/deep/b") == b"content"
        assert renaming.level() == ([], ["new"])

    @pytest.mark.parametrize(("theirs", "target"), [("b", "b"), ("b/c", "b"), ("b", "b/c"), ("b", "a")])
    def test_a_file_moves_over_nothing(self, renaming: ContractStore, theirs: str, target: str) -> None:
        renaming.write("a", b"mine")
        renaming.write(theirs, b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            renaming.call("move_file", "a", target)
        assert (renaming.holds("a"), renaming.holds(theirs)) == (b"mine", b"theirs")

    @pytest.mark.parametrize("missing", ["none", "d", "none/deep", "a/below"])
    def test_what_is_no_file_does_not_move(self, renaming: ContractStore, missing: str) -> None:
        renaming.write("d/file", b"")
        renaming.write("a", b"")
        with pytest.raises(AgentMemoryFileNotFoundError):
            renaming.call("move_file", missing, "new/name")
        assert renaming.names() == ("a", "d/file")
        assert renaming.level() == (["a"], ["d"])

    def test_a_file_moves_only_in_the_given_state(self, renaming: ContractStore) -> None:
        """A state is that of a whole read, or that of a read of no bytes."""
        for number, end in enumerate((None, 0)):
            renaming.write(f"{number}/a", b"one")
            old = renaming.read(f"{number}/a", None, end).etag
            renaming.write(f"{number}/a", b"more")
            with pytest.raises(ConflictError):
                renaming.call("move_file", f"{number}/a", f"{number}/b", old)
            assert (renaming.holds(f"{number}/a"), renaming.holds(f"{number}/b")) == (b"more", None)
            new = renaming.read(f"{number}/a", None, end).etag
            assert renaming.call("move_file", f"{number}/a", f"{number}/b", new) == len(b"more")
            assert renaming.names(f"{number}") == (f"{number}/b",)

    def test_an_append_to_a_file_that_moves_lands_where_it_says(self, renaming: ContractStore) -> None:
        for turn in range(self.rounds):
            move = partial(renaming.call, "move_file", f"{turn}/old/log", f"{turn}/new/log")
            assert append_while_it_moves(renaming, turn, move) in (len(b"before."), len(b"before.mine"))


class ErasingContract(ContractBase):
    """Erasing files and directories: existing or missing, and without effect on other files."""

    @pytest.fixture
    def erasing(self, store: ContractStore) -> ContractStore:
        """The store, if the backend has the methods."""
        if not erases(store.backend):
            pytest.skip("the backend does not promise that nothing is kept")
        try:
            store.call("erase", "nothing there")
        except UnsupportedOperationError:
            pytest.skip("the storage behind the backend does not tell what it keeps")
        return store

    def test_a_file_is_erased_alone(self, erasing: ContractStore) -> None:
        for name in ("dir/a", "dir/a.md", "dir/a-b", "dir/ab/c", "a"):
            erasing.write(name, b"x")
        assert erasing.call("erase", "dir/a") == DeletedTree(1, 0)
        assert erasing.names() == ("a", "dir/a-b", "dir/a.md", "dir/ab/c")

    def test_a_directory_is_erased_with_all_that_is_in_it(self, erasing: ContractStore) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            erasing.write(name, b"x")
        assert erasing.call("erase", "old") == DeletedTree(2, 0)
        assert erasing.names() == ("older/c",)
        assert erasing.level() == ([], ["older"])
        assert erasing.call("erase", "") == DeletedTree(1, 0)
        assert erasing.level() == ([], [])

    @pytest.mark.parametrize("name", ["", "missing", "missing/deep", "file/below"])
    def test_what_is_not_there_is_erased_already(self, erasing: ContractStore, name: str) -> None:
        if name:
            erasing.write("file", b"x")
        assert erasing.call("erase", name) == DeletedTree(0, 0)
        assert erasing.names() == (("file",) if name else ())

    @pytest.mark.usefixtures("erasing")
    def test_a_file_outlives_the_erasing_of_its_earlier_states(self, changing: ContractStore) -> None:
        """The method ``erase_earlier`` changes no file, and a missing one is no error."""
        for name, text in (("dir/a", b"one"), ("dir/a", b"two"), ("dir/a.md", b"x"), ("gone", b"x")):
            changing.write(name, text)
        changing.delete("gone")
        for name in ("dir/a", "gone", "missing/deep"):
            changing.call("erase_earlier", name)
            assert changing.call("erase_earlier", name) == 0
        assert (changing.names(), changing.holds("dir/a")) == (("dir/a", "dir/a.md"), b"two")
        changing.append("dir/a", b"three")
        assert changing.holds("dir/a") == b"twothree"

    def test_a_name_is_free_again(self, changing: ContractStore, erasing: ContractStore) -> None:
        changing.write("a/b", b"one")
        erasing.call("erase", "a")
        changing.append("a", b"two")
        assert changing.holds("a") == b"two"
        erasing.call("erase", "a")
        changing.append("a", b"three")
        assert changing.holds("a") == b"three"
