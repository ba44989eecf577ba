"""Contract tests of readers beside a writer: no mixture, no gap, no missing file."""

from __future__ import annotations

from functools import partial

import pytest

from agent_memory.errors import ConflictError
from agent_memory.testing._store import ContractBase, ContractStore
from agent_memory.testing._threads import race, watch, winners

_SIZES = (1, 4_000, 17, 2_000, 600)


def _state(number: int) -> bytes:
    """One whole state of a file; its first eight bytes determine the rest."""
    return b"%08d" % number * _SIZES[number % len(_SIZES)]


class WatchingContract(ContractBase):
    """Reading while another thread writes."""

    @pytest.fixture
    def replacing(self, store: ContractStore) -> ContractStore:
        """The store, if it promises a reader the whole old or the whole new file."""
        if not (store.capabilities.atomic_write or self.single_writer):
            pytest.skip("the backend states that a reader may see half a write")
        return store

    @property
    def readers(self) -> int:
        """The number of reading threads: half of `workers`, at least 2."""
        return max(2, self.workers // 2)

    def test_a_reader_sees_a_whole_state_of_a_file_that_is_replaced(
        self, replacing: ContractStore, other: ContractStore
    ) -> None:
        replacing.write("dir/file", _state(0))

        def change() -> None:
            for number in range(1, self.rounds + 1):
                replacing.write("dir/file", _state(number))

        def observe() -> None:
            snapshot = other.read("dir/file")
            assert snapshot.data == _state(int(snapshot.data[:8]))
            assert snapshot.size == len(snapshot.data)

        watch(change, observe, self.readers)
        assert other.read("dir/file").data == _state(self.rounds)

    def test_a_file_that_is_replaced_is_never_missing(self, replacing: ContractStore, other: ContractStore) -> None:
        replacing.write("dir/file", _state(0))
        sizes = {len(_state(number)) for number in range(len(_SIZES))}

        def change() -> None:
            for number in range(1, self.rounds + 1):
                replacing.write("dir/file", _state(number))

        def observe() -> None:
            assert other.stat("dir/file").size in sizes
            page = other.list()
            assert [(entry.path, entry.size in sizes) for entry in page.entries] == [("dir/file", True)]
            assert page.skipped == 0
            assert other.level() == ([], ["dir"])

        watch(change, observe, self.readers)

    def test_ranges_of_one_version_are_of_one_state(self, replacing: ContractStore, other: ContractStore) -> None:
        replacing.write("file", _state(0))

        def change() -> None:
            for number in range(1, self.rounds + 1):
                replacing.write("file", _state(number))

        def observe() -> None:
            first = other.read("file", 0, 8)
            try:
                rest = other.read("file", 8, None, first.etag)
            except ConflictError:
                return
            assert first.data + rest.data == _state(int(first.data))

        watch(change, observe, self.readers)

    @pytest.mark.parametrize("size", [7, 9_001])
    def test_a_reader_sees_whole_appends(self, changing: ContractStore, other: ContractStore, size: int) -> None:
        changing.write("log", b"")
        records = [(b"%06d" % number).ljust(size, b".") for number in range(self.rounds)]
        whole = b"".join(records)

        def change() -> None:
            for record in records:
                changing.append("log", record)

        def observe() -> None:
            snapshot = other.read("log")
            assert len(snapshot.data) % size == 0
            assert whole.startswith(snapshot.data)
            assert other.stat("log").size in range(len(snapshot.data), len(whole) + 1, size)

        watch(change, observe, self.readers)
        assert other.read("log").data == whole

    def test_a_listing_gives_what_stays_while_files_beside_it_come_and_go(
        self, replacing: ContractStore, other: ContractStore
    ) -> None:
        stays = ("dir/b", "dir/sub/d", "dir/x")
        for name in stays:
            replacing.write(name, b"x")

        def change() -> None:
            for number in range(max(1, self.rounds // 4)):
                names = [f"dir/{place}{number}" for place in ("a", "c/", "sub/", "z")]
                for name in names:
                    replacing.write(name, b"x")
                for name in names:
                    replacing.delete(name)

        def observe() -> None:
            for limit in (2, 1000):
                names = other.names("dir", limit=limit)
                assert [name for name in names if name in stays] == list(stays)
                assert len(set(names)) == len(names)

        watch(change, observe, self.readers)

    def test_a_file_that_is_renamed_has_one_name_at_least(self, deleting: ContractStore, other: ContractStore) -> None:
        memory = deleting.memory()
        for number in range(max(1, self.rounds // 4)):
            data = b"%d" % number
            deleting.write(f"from/{number}", data)

            def look(number: int = number, data: bytes = data) -> None:
                assert data in (other.holds(f"from/{number}"), other.holds(f"to/{number}"))

            outcomes = race([partial(memory.rename, f"from/{number}", f"to/{number}"), look, look])
            assert len(winners(outcomes)) == 3
            assert other.names() == (f"to/{number}",)
            deleting.delete(f"to/{number}")
