"""Contract tests of writing a file in parts (`WritesInParts`) and renaming it in one step (`MovesFiles`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from agent_memory.backend import ABSENT, ANY, PRESENT, Backend, ETag, Parts, WritesInParts, WriteWhen
from agent_memory.core import part_flows
from agent_memory.core.flows import as_another_process, moves_files, writes_in_parts
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    UnsupportedOperationError,
)
from agent_memory.testing._store import ContractBase, ContractStore, key
from agent_memory.testing._threads import race, watch, winners

_LEAST_PARTS = 3


class _Writing:
    """The method of a backend of either kind, for a blocking caller."""

    def __init__(self, store: ContractStore) -> None:
        self.store = store
        self._verbs = cast(WritesInParts, store.backend)

    def begin(self, name: str, size: int, when: WriteWhen = ANY) -> _Begun:
        parts = self.store.blocking.call(self._verbs.write_in_parts, key(name), size, when)
        return _Begun(self.store, cast(Parts, parts))

    def content(self, filler: bytes = b"x") -> bytes:
        """Content of several parts."""
        begun = self.begin("any", 0)
        begun.abort()
        return filler * ((_LEAST_PARTS - 1) * begun.part_bytes) + b"end"

    def write(self, name: str, data: bytes, when: WriteWhen = ANY) -> ETag:
        """Begin, add all parts and complete; abort on an error."""
        begun = self.begin(name, len(data), when)
        try:
            begun.add(data)
            return begun.complete()
        except BaseException:
            begun.abort()
            raise


class _Begun:
    def __init__(self, store: ContractStore, parts: Parts) -> None:
        self._store = store
        self._parts = parts

    def add(self, data: bytes) -> None:
        for start in range(0, len(data), self._parts.part_bytes):
            self._store.blocking.call(self._parts.add, data[start : start + self._parts.part_bytes])

    def complete(self) -> ETag:
        return cast(ETag, self._store.blocking.call(self._parts.complete))

    def abort(self) -> None:
        self._store.blocking.call(self._parts.abort)

    @property
    def part_bytes(self) -> int:
        return self._parts.part_bytes


class _PartsBase(ContractBase):
    @pytest.fixture
    def in_parts(self, creating: ContractStore) -> _Writing:
        """The method, if the backend has it; with small parts, if the backend may choose their size."""
        if not writes_in_parts(creating.backend):
            pytest.skip("the backend writes no file in parts")
        cast(Backend, creating.backend).part_bytes = 1000
        writing = _Writing(creating)
        try:
            writing.write("tried", b"x", ABSENT)
        except UnsupportedOperationError as error:
            pytest.skip(str(error))
        return writing


class PartsContract(_PartsBase):
    """A file written in parts: visible whole or not at all, with the preconditions of a write."""

    def test_a_file_written_in_parts_is_there_when_it_is_complete(self, in_parts: _Writing) -> None:
        store = in_parts.store
        data = in_parts.content()
        begun = in_parts.begin("d/large", len(data), ABSENT)
        begun.add(data)
        assert store.holds("d/large") is None
        assert store.names() == ("tried",)
        etag = begun.complete()
        assert store.holds("d/large") == data
        assert store.read("d/large").etag == etag
        assert store.stat("d/large").size == len(data)
        store.write("d/large", b"small again", when=etag if self.compares(store) else ANY)

    def test_a_write_in_parts_that_is_aborted_leaves_nothing(self, in_parts: _Writing) -> None:
        store = in_parts.store
        store.write("old", b"old")
        cases: list[tuple[str, WriteWhen]] = [("new/deep", ABSENT), ("old", ANY)]
        for name, when in cases:
            begun = in_parts.begin(name, 3, when)
            begun.add(b"new")
            begun.abort()
        assert store.names() == ("old", "tried")
        assert store.holds("old") == b"old"
        assert store.level() == (["old", "tried"], [])

    def test_a_write_in_parts_replaces_whatever_is_there(self, in_parts: _Writing) -> None:
        in_parts.store.write("a", b"old")
        in_parts.write("a", b"new")
        in_parts.write("b", b"")
        assert (in_parts.store.holds("a"), in_parts.store.holds("b")) == (b"new", b"")

    def test_a_write_in_parts_creates_no_file_that_is_there(self, in_parts: _Writing) -> None:
        in_parts.store.write("a", b"old")
        with pytest.raises(FileAlreadyExistsError):
            in_parts.write("a", b"new", ABSENT)
        begun = in_parts.begin("b", 3, ABSENT)
        begun.add(b"new")
        in_parts.store.write("b", b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            begun.complete()
        begun.abort()
        assert (in_parts.store.holds("a"), in_parts.store.holds("b")) == (b"old", b"theirs")

    def test_a_write_in_parts_on_present_replaces_a_file_and_creates_none(self, in_parts: _Writing) -> None:
        store = in_parts.store
        try:
            with pytest.raises(AgentMemoryFileNotFoundError):
                in_parts.write("a", b"new", PRESENT)
        except UnsupportedOperationError as error:
            pytest.skip(str(error))
        store.write("a", b"old")
        begun = in_parts.begin("a", 3, PRESENT)
        begun.add(b"new")
        store.write("a", b"theirs")
        begun.complete()
        assert store.holds("a") == b"new"
        begun = in_parts.begin("a", 5, PRESENT)
        begun.add(b"later")
        store.delete("a")
        with pytest.raises(AgentMemoryFileNotFoundError):
            begun.complete()
        begun.abort()
        assert store.holds("a") is None

    def test_a_write_in_parts_on_a_version_replaces_no_other(self, in_parts: _Writing) -> None:
        store = in_parts.store
        first = store.write("a", b"first")
        try:
            second = in_parts.write("a", b"second", first)
        except UnsupportedOperationError as error:
            pytest.skip(str(error))
        with pytest.raises(ConflictError):
            in_parts.write("a", b"third", first)
        begun = in_parts.begin("a", 5, second)
        begun.add(b"third")
        store.write("a", b"theirs")
        with pytest.raises(ConflictError):
            begun.complete()
        begun.abort()
        assert store.holds("a") == b"theirs"
        with pytest.raises(ConflictError):
            in_parts.write("gone/deep", b"x", second)
        assert store.names() == ("a", "tried")

    @pytest.mark.parametrize("name", ["taken/below", "taken/deep", "file/below"])
    def test_a_write_in_parts_needs_a_name_that_can_be_a_file(self, in_parts: _Writing, name: str) -> None:
        store = in_parts.store
        if not store.capabilities.exclusive_names and name != "taken/below":
            pytest.skip("the backend states that racing writers may make both")
        store.write("file", b"a file")
        store.write("taken/below/deep", b"theirs")
        store.write("taken/deep/er", b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            in_parts.write(name, b"mine")
        assert store.holds(name) is None

    def test_a_file_that_one_call_does_not_carry_is_copied_whole(self, in_parts: _Writing) -> None:
        store = in_parts.store
        data = in_parts.content()
        store.write("a", data)
        effect, _ = store.blocking.run(part_flows.copy, key("a"), key("d/b"))
        assert effect.size == len(data)
        assert store.holds("d/b") == data
        with pytest.raises(FileAlreadyExistsError):
            store.blocking.run(part_flows.copy, key("a"), key("d/b"))


class PartsRaceContract(_PartsBase):
    """Races of writers in parts with each other and with readers."""

    def test_of_racing_creators_in_parts_exactly_one_wins(self, in_parts: _Writing) -> None:
        backends = [as_another_process(in_parts.store.backend) for _ in range(self.workers)]
        racers = [_Writing(ContractStore(backend)) for backend in backends]
        for turn in range(max(1, self.rounds // 10)):
            contents = [b"%d" % number * 3 for number in range(self.workers)]
            outcomes = race(
                partial(racer.write, f"{turn}/a", data, ABSENT) for racer, data in zip(racers, contents, strict=True)
            )
            won = winners(outcomes, FileAlreadyExistsError)
            assert len(won) == 1
            assert in_parts.store.holds(f"{turn}/a") == contents[won[0]]

    def test_readers_see_the_old_or_the_new_of_a_write_in_parts(self, in_parts: _Writing) -> None:
        contents = [in_parts.content(filler) for filler in (b"a", b"b")]
        in_parts.store.write("a", contents[0])

        def write() -> None:
            for turn in range(max(2, self.rounds // 20)):
                in_parts.write("a", contents[(turn + 1) % 2])

        def read() -> None:
            assert in_parts.store.holds("a") in contents, "neither the old nor the new file"

        watch(write, read, 2)


class MovingFilesContract(ContractBase):
    """A file renamed in one step, if the backend supports it (`MovesFiles`)."""

    @pytest.fixture
    def move(self, store: ContractStore) -> Callable[[str, str], int | None]:
        """The method, if the backend has it."""
        backend: object = store.backend
        if not moves_files(backend):
            pytest.skip("the backend copies and deletes")
        return lambda source, target, *when: store.blocking.call(backend.move_file, key(source), key(target), *when)

    def test_a_file_moves_to_a_free_name(self, store: ContractStore, move: Callable[[str, str], int | None]) -> None:
        store.write("old/a", b"content")
        assert move("old/a", "new/deep/b") == len(b"content")
        assert store.names() == ("new/deep/b",)
        assert store.holds("new/deep/b") == b"content"
        assert store.level() == ([], ["new"])

    @pytest.mark.parametrize(("theirs", "target"), [("b", "b"), ("b/c", "b"), ("b", "b/c"), ("b", "a")])
    def test_a_file_moves_over_nothing(
        self, store: ContractStore, move: Callable[[str, str], int | None], theirs: str, target: str
    ) -> None:
        store.write("a", b"mine")
        store.write(theirs, b"theirs")
        with pytest.raises(FileAlreadyExistsError):
            move("a", target)
        assert (store.holds("a"), store.holds(theirs)) == (b"mine", b"theirs")

    @pytest.mark.parametrize("missing", ["none", "d", "none/deep", "a/below"])
    def test_what_is_no_file_does_not_move(
        self, store: ContractStore, move: Callable[[str, str], int | None], missing: str
    ) -> None:
        store.write("d/file", b"")
        store.write("a", b"")
        with pytest.raises(AgentMemoryFileNotFoundError):
            move(missing, "new/name")
        assert store.names() == ("a", "d/file")
        assert store.level() == (["a"], ["d"])

    def test_a_file_moves_only_in_the_given_state(self, store: ContractStore, move: Callable[..., int | None]) -> None:
        """A state is that of a whole read, or that of a read of no bytes."""
        for number, end in enumerate((None, 0)):
            store.write(f"{number}/a", b"one")
            old = store.blocking.call(store.backend.read, key(f"{number}/a"), None, end).etag
            store.write(f"{number}/a", b"more")
            with pytest.raises(ConflictError):
                move(f"{number}/a", f"{number}/b", old)
            assert (store.holds(f"{number}/a"), store.holds(f"{number}/b")) == (b"more", None)
            new = store.blocking.call(store.backend.read, key(f"{number}/a"), None, end).etag
            assert move(f"{number}/a", f"{number}/b", new) == len(b"more")
            assert store.names(f"{number}") == (f"{number}/b",)

    def test_an_append_to_a_file_that_moves_lands_where_it_says(
        self, store: ContractStore, move: Callable[[str, str], int | None]
    ) -> None:
        for turn in range(self.rounds):
            store.write(f"{turn}/old", b"before.")
            appended, moved = race(
                [partial(store.append, f"{turn}/old", b"mine"), partial(move, f"{turn}/old", f"{turn}/new")]
            )
            assert not isinstance(appended, AgentMemoryError)
            assert moved in (len(b"before."), len(b"before.mine"))
            found = store.holds(f"{turn}/new"), store.holds(f"{turn}/old")
            assert found in [(b"before.mine", None), (b"before.", b"mine")]

    def test_of_racing_movers_to_one_name_exactly_one_wins(
        self, store: ContractStore, move: Callable[[str, str], int | None]
    ) -> None:
        for turn in range(self.rounds):
            names = [f"{turn}/{number}" for number in range(self.workers)]
            for name in names:
                store.write(name, name.encode())
            moved = race([partial(move, name, f"{turn}/new") for name in names])
            winners = [name for name, result in zip(names, moved, strict=True) if isinstance(result, int)]
            assert len(winners) == 1
            assert store.holds(f"{turn}/new") == winners[0].encode()
            assert sorted(store.names(str(turn))) == sorted({f"{turn}/new", *names} - {winners[0]})
