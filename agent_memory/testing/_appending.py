"""Contract tests of appends, in place (`Appends`) or by compare-and-swap."""

from __future__ import annotations

import hashlib

import pytest

from agent_memory.backend import ANY, PRESENT, Appends, AppendWhen
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, UnsupportedOperationError
from agent_memory.testing._store import ContractBase, ContractStore, refused


class AppendingContract(ContractBase):
    """Appending: the separator, missing files, and taken names."""

    @pytest.fixture
    def appending(self, store: ContractStore) -> ContractStore:
        """The store, if it promises appends: by create and compare-and-swap, or in the storage itself."""
        if (self.creates(store) and self.compares(store)) or self._appends_itself(store):
            return store
        store.write("refused", b"old")
        for name in ("refused", "missing"):
            with refused("compare_and_swap"):
                store.append(name, b"new")
        assert (store.holds("refused"), store.holds("missing")) == (b"old", None)
        pytest.skip("the backend states that it cannot append, and refuses to")

    def _appends_itself(self, store: ContractStore) -> bool:
        """Whether the storage itself appends, without create and compare-and-swap."""
        if not isinstance(store.backend, Appends):
            return False
        try:
            store.append("tried", b"x")
        except UnsupportedOperationError:
            return False
        store.delete("tried")
        return True

    def test_an_append_adds_at_the_end(self, appending: ContractStore) -> None:
        appending.write("dir/log", b"one\r\n")
        for number, data in enumerate((b"two", b"", b"\xff\0", bytes(range(256)))):
            before = appending.read("dir/log").data
            effect = appending.append("dir/log", data)
            assert effect.size == len(before) + len(data), number
            assert effect.sha256 == hashlib.sha256(data).hexdigest()
            assert appending.read("dir/log").data == before + data
        assert appending.names() == ("dir/log",)

    @pytest.mark.parametrize("data", [b"first", b""])
    def test_an_append_creates_what_is_missing(self, appending: ContractStore, data: bytes) -> None:
        effect = appending.append("new/dir/log", data, separator=b"\n")
        assert effect.size == len(data)
        assert appending.holds("new/dir/log") == data
        assert appending.stat("new/dir/log").size == len(data)

    def test_an_append_that_requires_the_file_does_not_create_it(self, appending: ContractStore) -> None:
        with pytest.raises(AgentMemoryFileNotFoundError):
            appending.append("dir/log", b"x", when=PRESENT)
        assert appending.level() == ([], [])
        appending.write("dir/log", b"")
        with pytest.raises(AgentMemoryFileNotFoundError):
            appending.append("dir", b"a directory is no file", when=PRESENT)
        appending.delete("dir/log")
        appending.write("dir", b"the name is free")
        appending.delete("dir")
        appending.write("dir/log", b"")
        appending.append("dir/log", b"x", when=PRESENT)
        assert appending.holds("dir/log") == b"x"

    @pytest.mark.parametrize(
        ("old", "separator", "whole"),
        [
            (b"", b"\n", b"new"),
            (b"old", b"\n", b"old\nnew"),
            (b"old\n", b"\n", b"old\nnew"),
            (b"old\n\n", b"\n", b"old\n\nnew"),
            (b"\n", b"\n", b"\nnew"),
            (b"old", b"", b"oldnew"),
            (b"old", b"\n\n", b"old\n\nnew"),
            (b"old\n", b"\n\n", b"old\n\n\nnew"),
            (b"old\n\n", b"\n\n", b"old\n\nnew"),
            (b"\n", b"\n\n", b"\n\n\nnew"),
            (b"-", b"a longer separator", b"-a longer separatornew"),
        ],
    )
    @pytest.mark.parametrize("when", [ANY, PRESENT], ids=["any", "present"])
    def test_a_separator_goes_between_and_only_where_it_is_missing(
        self, appending: ContractStore, old: bytes, separator: bytes, whole: bytes, when: AppendWhen
    ) -> None:
        appending.write("log", old)
        assert appending.append("log", b"new", separator=separator, when=when).size == len(whole)
        assert appending.holds("log") == whole

    def test_a_separator_is_judged_by_the_whole_file_after_many_appends(self, appending: ContractStore) -> None:
        for data in (b"a", b"b\n", b"c", b"", b"d"):
            appending.append("log", data, separator=b"\n")
        assert appending.holds("log") == b"a\nb\nc\nd"

    @pytest.mark.parametrize("when", [ANY, PRESENT], ids=["any", "present"])
    @pytest.mark.parametrize("name", ["dir", "dir/sub", "dir/file/below", "dir/file/far/below"])
    def test_a_taken_name_is_not_appended_to(self, appending: ContractStore, name: str, when: AppendWhen) -> None:
        appending.write("dir/file", b"1")
        appending.write("dir/sub/file", b"2")
        refusals = (FileAlreadyExistsError,) if when is ANY else (FileAlreadyExistsError, AgentMemoryFileNotFoundError)
        with pytest.raises(refusals):
            appending.append(name, b"x", when=when)
        assert appending.names() == ("dir/file", "dir/sub/file")
        assert appending.holds("dir/file") == b"1"

    def test_an_append_makes_a_new_version(self, appending: ContractStore) -> None:
        old = appending.write("log", b"one")
        effect = appending.append("log", b" two")
        new = appending.read("log").etag
        assert new != old
        assert effect.etag in (None, new)

    def test_an_append_to_a_large_file_keeps_all_of_it(self, appending: ContractStore) -> None:
        data = b"0123456789abcdef" * (self.large_bytes // 16)
        appending.write("large", data)
        appending.append("large", b"end", separator=b"\n")
        snapshot = appending.read("large")
        assert snapshot.size == len(data) + 4
        assert snapshot.data == data + b"\nend"
