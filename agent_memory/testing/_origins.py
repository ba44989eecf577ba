"""Contract tests of origins (`Backend.keeps_origins`), for backends that store them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent_memory.backend import ABSENT, ANY, ORIGIN_BYTES, Snapshot
from agent_memory.core.flows import moves_files, moves_trees
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, UnsupportedOperationError
from agent_memory.testing._store import ContractBase, ContractStore, key

_LONGEST = "".join(chr(33 + number % 94) for number in range(ORIGIN_BYTES))


def _never() -> str:
    pytest.fail("an append to a file that exists needs no origin")


class _Origins:
    """The methods with origins, for a blocking caller."""

    def __init__(self, store: ContractStore) -> None:
        self._store = store
        self._verbs = cast(Any, store.backend)

    def call(self, verb: str, name: str, *args: object, **named: object) -> Any:
        return self._store.blocking.call(getattr(self._verbs, verb), key(name), *args, **named)

    def read(self, name: str) -> tuple[bytes, str | None]:
        snapshot = cast(Snapshot, self.call("read", name))
        return snapshot.data, snapshot.origin


class OriginContract(ContractBase):
    """Each state of a file has the origin that the write gave it, until another write."""

    @pytest.fixture
    def origins(self, changing: ContractStore) -> _Origins:
        """The methods with origins, if the backend has them."""
        if not changing.backend.keeps_origins:
            pytest.skip("the backend stores no origins")
        origins = _Origins(changing)
        try:
            origins.call("write", "first", b"x", ABSENT, lambda: "x")
        except UnsupportedOperationError:
            pytest.skip("the storage behind the backend stores no origins")
        return origins

    @pytest.mark.parametrize(
        "origin", ["x", '[1,"a",null,0.5]', "%20\\u0020=;:,", _LONGEST], ids=["short", "json", "signs", "longest"]
    )
    def test_a_state_has_the_origin_of_its_write(self, origins: _Origins, origin: str) -> None:
        origins.call("write", "dir/file", b"one", ANY, lambda: origin)
        assert origins.read("dir/file") == (b"one", origin)
        origins.call("write", "new", b"one", ABSENT, lambda: origin)
        assert origins.read("new") == (b"one", origin)

    def test_a_write_without_an_origin_leaves_none(self, origins: _Origins, changing: ContractStore) -> None:
        origins.call("write", "file", b"one", ANY, lambda: "first")
        changing.write("file", b"two")
        assert origins.read("file") == (b"two", None)
        assert origins.call("append", "file", b"three", origin=lambda: "third").origin is None

    def test_a_conditional_write_replaces_the_origin_and_a_refused_one_does_not(
        self, origins: _Origins, changing: ContractStore
    ) -> None:
        origins.call("write", "file", b"one", ANY, lambda: "first")
        etag = changing.read("file").etag
        origins.call("write", "file", b"two", etag, lambda: "second")
        with pytest.raises(ConflictError):
            origins.call("write", "file", b"three", etag, lambda: "third")
        assert origins.read("file") == (b"two", "second")

    def test_an_append_leaves_the_origin_and_gives_one_to_a_new_file(
        self, origins: _Origins, changing: ContractStore
    ) -> None:
        assert origins.call("append", "file", b"one", origin=lambda: "first").origin == "first"
        assert origins.call("append", "file", b"two", origin=_never).origin == "first"
        changing.append("file", b"three")
        assert origins.read("file") == (b"onetwothree", "first")

    def test_a_range_comes_with_the_origin(self, origins: _Origins) -> None:
        origins.call("write", "file", b"0123", ANY, lambda: "first")
        for span, data in (((1, 3), b"12"), ((0, 0), b""), ((-2, None), b"23")):
            snapshot = origins.call("read", "file", *span)
            assert (snapshot.data, snapshot.size, snapshot.origin) == (data, 4, "first")

    def test_a_missing_file_has_no_origin(self, origins: _Origins) -> None:
        with pytest.raises(AgentMemoryFileNotFoundError):
            origins.read("missing")

    def test_a_file_written_in_parts_has_its_origin(self, origins: _Origins, changing: ContractStore) -> None:
        try:
            parts = origins.call("write_in_parts", "file", 3, ANY, lambda: "first")
        except UnsupportedOperationError:
            pytest.skip("the backend writes no files in parts")
        changing.blocking.call(parts.add, b"one")
        changing.blocking.call(parts.complete)
        assert origins.read("file") == (b"one", "first")

    def test_a_moved_file_keeps_its_origin(self, origins: _Origins) -> None:
        origins.call("write", "a/file", b"one", ANY, lambda: "first")
        name = "a/file"
        if moves_files(origins._verbs) and origins.call("move_file", name, key("b/file")) is not None:
            name = "b/file"
        if moves_trees(origins._verbs) and origins.call("move_tree", name[0], key("c")) is not None:
            name = "c/file"
        assert origins.read(name) == (b"one", "first")
