"""Contract tests of writing a file in parts (`WritesInParts`), and of origins (`Backend.keeps_origins`)."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

from agent_memory.backend import (
    ABSENT,
    ANY,
    ORIGIN_BYTES,
    PRESENT,
    Backend,
    ETag,
    Parts,
    WriteWhen,
)
from agent_memory.core.flows import as_another_process, moves_files, moves_trees, writes_in_parts
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    UnsupportedOperationError,
)
from agent_memory.testing._store import ContractBase, ContractStore, race, the_winner, watch

_LEAST_PARTS = 3
_LONGEST_ORIGIN = "".join(chr(33 + number % 94) for number in range(ORIGIN_BYTES))


class _Writing:
    """The method of a backend of either kind, for a blocking caller."""

    def __init__(self, store: ContractStore) -> None:
        self.store = store

    def begin(self, name: str, size: int, when: WriteWhen = ANY) -> _Begun:
        return _Begun(self.store, self.store.call("write_in_parts", name, size, when))

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
        self.part_bytes = parts.part_bytes

    def add(self, data: bytes) -> None:
        for start in range(0, len(data), self.part_bytes):
            self._store.blocking.call(self._parts.add, data[start : start + self.part_bytes])

    def complete(self) -> ETag:
        return cast(ETag, self._store.blocking.call(self._parts.complete))

    def abort(self) -> None:
        self._store.blocking.call(self._parts.abort)


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
        store.write("d/large", b"small again", when=etag if self.promises(store, "compare_and_swap") else ANY)

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
            assert in_parts.store.holds(f"{turn}/a") == contents[the_winner(outcomes, FileAlreadyExistsError)]

    def test_readers_see_the_old_or_the_new_of_a_write_in_parts(self, in_parts: _Writing) -> None:
        contents = [in_parts.content(filler) for filler in (b"a", b"b")]
        in_parts.store.write("a", contents[0])

        def write() -> None:
            for turn in range(max(2, self.rounds // 20)):
                in_parts.write("a", contents[(turn + 1) % 2])

        def read() -> None:
            assert in_parts.store.holds("a") in contents, "neither the old nor the new file"

        watch(write, read, 2)


def _never(_: float) -> str:
    pytest.fail("an append to a file that exists needs no origin")


def _with_origin(store: ContractStore, name: str) -> tuple[bytes, str | None]:
    snapshot = store.read(name)
    return snapshot.data, snapshot.origin


class OriginsContract(ContractBase):
    """Each state of a file has the origin that the write gave it, until another write."""

    @pytest.fixture
    def origins(self, changing: ContractStore) -> ContractStore:
        """The store, if the backend keeps origins."""
        if not changing.backend.keeps_origins:
            pytest.skip("the backend stores no origins")
        try:
            changing.call("write", "first", b"x", ABSENT, lambda _: "x")
        except UnsupportedOperationError:
            pytest.skip("the storage behind the backend stores no origins")
        return changing

    @pytest.mark.parametrize(
        "origin",
        ["x", '[1,"a",null,0.5]', "%20\\u0020=;:,", _LONGEST_ORIGIN],
        ids=["short", "json", "signs", "longest"],
    )
    def test_a_state_has_the_origin_of_its_write(self, origins: ContractStore, origin: str) -> None:
        origins.call("write", "dir/file", b"one", ANY, lambda _: origin)
        assert _with_origin(origins, "dir/file") == (b"one", origin)
        origins.call("write", "new", b"one", ABSENT, lambda _: origin)
        assert _with_origin(origins, "new") == (b"one", origin)

    def test_a_write_without_an_origin_leaves_none(self, origins: ContractStore) -> None:
        origins.call("write", "file", b"one", ANY, lambda _: "first")
        origins.write("file", b"two")
        assert _with_origin(origins, "file") == (b"two", None)
        assert origins.call("append", "file", b"three", origin=lambda _: "third").origin is None

    def test_a_conditional_write_replaces_the_origin_and_a_refused_one_does_not(self, origins: ContractStore) -> None:
        origins.call("write", "file", b"one", ANY, lambda _: "first")
        etag = origins.read("file").etag
        origins.call("write", "file", b"two", etag, lambda _: "second")
        with pytest.raises(ConflictError):
            origins.call("write", "file", b"three", etag, lambda _: "third")
        assert _with_origin(origins, "file") == (b"two", "second")

    def test_an_append_leaves_the_origin_and_gives_one_to_a_new_file(self, origins: ContractStore) -> None:
        assert origins.call("append", "file", b"one", origin=lambda _: "first").origin == "first"
        assert origins.call("append", "file", b"two", origin=_never).origin == "first"
        origins.append("file", b"three")
        assert _with_origin(origins, "file") == (b"onetwothree", "first")

    def test_a_range_comes_with_the_origin(self, origins: ContractStore) -> None:
        origins.call("write", "file", b"0123", ANY, lambda _: "first")
        for span, data in (((1, 3), b"12"), ((0, 0), b""), ((-2, None), b"23")):
            snapshot = origins.call("read", "file", *span)
            assert (snapshot.data, snapshot.size, snapshot.origin) == (data, 4, "first")

    def test_a_file_written_in_parts_has_its_origin(self, origins: ContractStore) -> None:
        try:
            parts = origins.call("write_in_parts", "file", 3, ANY, lambda _: "first")
        except UnsupportedOperationError:
            pytest.skip("the backend writes no files in parts")
        origins.blocking.call(parts.add, b"one")
        origins.blocking.call(parts.complete)
        assert _with_origin(origins, "file") == (b"one", "first")

    def test_a_moved_file_keeps_its_origin(self, origins: ContractStore) -> None:
        origins.call("write", "a/file", b"one", ANY, lambda _: "first")
        name = "a/file"
        if moves_files(origins.backend) and origins.call("move_file", name, "b/file") is not None:
            name = "b/file"
        if moves_trees(origins.backend) and origins.call("move_tree", name[0], "c") is not None:
            name = "c/file"
        assert _with_origin(origins, name) == (b"one", "first")
