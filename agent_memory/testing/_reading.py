"""Contract tests of `Backend.read` and `Backend.stat`."""

from __future__ import annotations

import itertools

import pytest

from agent_memory.backend import ETag
from agent_memory.backend.helpers import content_etag
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.testing._store import ContractBase, ContractStore

_TEN = b"0123456789"
_STARTS = (None, 0, 3, 10, 50)
_ENDS = (None, 0, 4, 10, 50)
_RANGES = [*itertools.product(_STARTS, _ENDS), *((start, None) for start in (-3, -10, -50))]


class ReadingContract(ContractBase):
    """Reading: whole files and ranges, etags, and names that are not files."""

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0", bytes(range(256)), b"a\r\nb\rc\n", "\ufeffé メモ".encode(), b"\xff\xfe invalid", b"\n" * 4097],
        ids=["empty", "nul", "every byte", "line ends", "text", "no UTF-8", "newlines"],
    )
    def test_a_file_is_read_byte_for_byte(self, store: ContractStore, data: bytes) -> None:
        store.write("notes/a.md", data)
        snapshot = store.read("notes/a.md")
        assert isinstance(snapshot.data, bytes)
        assert (snapshot.data, snapshot.size) == (data, len(data))
        assert store.stat("notes/a.md").size == len(data)

    def test_a_large_file_is_read_byte_for_byte(self, store: ContractStore) -> None:
        block = bytes(range(256)) * 16
        data = b"".join(block + b"%d" % number for number in range(self.large_bytes // len(block)))
        store.write("large.bin", data)
        assert store.read("large.bin").data == data
        assert store.read("large.bin", len(data) // 2, len(data) // 2 + 70_000).data == data[len(data) // 2 :][:70_000]
        assert store.read("large.bin", -5).data == data[-5:]

    @pytest.mark.parametrize(("start", "end"), _RANGES)
    def test_a_range_is_what_a_slice_gives(self, store: ContractStore, start: int | None, end: int | None) -> None:
        for data in (_TEN, b""):
            store.write("file", data)
            snapshot = store.read("file", start, end)
            assert (snapshot.data, snapshot.size) == (data[start:end], len(data))

    @pytest.mark.parametrize(("start", "end"), _RANGES)
    def test_a_range_is_read_only_of_the_state_asked_for(
        self, store: ContractStore, start: int | None, end: int | None
    ) -> None:
        store.write("ten", _TEN)
        etag = store.read("ten").etag
        assert store.read("ten", start, end, etag).data == _TEN[start:end]
        store.write("ten", _TEN[::-1])
        with pytest.raises(ConflictError):
            store.read("ten", start, end, etag)

    def test_the_version_of_a_partial_read_pins_further_partial_reads(self, store: ContractStore) -> None:
        store.write("ten", _TEN)
        pin = store.read("ten", 0, 4).etag
        second = store.read("ten", 4, 8, pin)
        assert second.data + store.read("ten", 8, None, second.etag).data == _TEN[4:]
        store.write("ten", _TEN[::-1])
        with pytest.raises(ConflictError):
            store.read("ten", 8, None, pin)

    def test_a_partial_version_asked_for_late_is_of_the_state_that_was_read(self, store: ContractStore) -> None:
        store.write("ten", _TEN)
        snapshot = store.read("ten", 0, 4)
        store.write("ten", _TEN[::-1])
        with pytest.raises(ConflictError):
            store.read("ten", 4, None, snapshot.etag)

    def test_a_whole_version_asked_for_late_is_of_the_state_that_was_read(self, store: ContractStore) -> None:
        store.write("ten", _TEN)
        snapshot = store.read("ten")
        now = store.write("ten", _TEN[::-1])
        assert snapshot.etag != now
        assert snapshot.etag == snapshot.etag

    def test_a_pin_outlives_no_change_however_fast(self, store: ContractStore) -> None:
        """Timestamps repeat within one clock tick, and freed inode numbers are reused."""
        for number in range(self.rounds):
            store.write("pinned", b"a%09d" % number)
            pin = store.read("pinned", 0, 4).etag
            for letter in (b"b", b"c"):
                store.write("pinned", b"%b%09d" % (letter, number))
                with pytest.raises(ConflictError):
                    store.read("pinned", 4, None, pin)

    def test_a_version_nobody_was_given_is_a_conflict(self, store: ContractStore) -> None:
        store.write("ten", _TEN)
        for etag in (
            *map(ETag, ("*", "", '"a", "b"', "a\nb", "no state of any file")),
            content_etag(b"something else"),
        ):
            with pytest.raises(ConflictError):
                store.read("ten", when=etag)

    def test_a_deleted_file_is_not_found_whatever_the_version(self, store: ContractStore) -> None:
        etag = store.write("gone", b"x")
        store.delete("gone")
        with pytest.raises(AgentMemoryFileNotFoundError):
            store.read("gone", when=etag)

    @pytest.mark.parametrize("name", ["missing", "dir", "dir/sub", "dir/missing", "dir/file/below", "no/such/dir"])
    def test_what_is_no_file_is_not_found(self, store: ContractStore, name: str) -> None:
        store.write("dir/sub/file", b"x")
        store.write("dir/file", b"x")
        for start, end in ((None, None), (0, 4), (2, None), (-3, None), (0, 0), (7, 2)):
            with pytest.raises(AgentMemoryFileNotFoundError):
                store.read(name, start, end)
        with pytest.raises(AgentMemoryFileNotFoundError):
            store.stat(name)

    def test_reading_creates_nothing(self, store: ContractStore, other: ContractStore) -> None:
        for name in ("a", "a/b", "c/d/e"):
            assert store.holds(name) is None
            for verb in (store.stat, store.delete):
                with pytest.raises(AgentMemoryFileNotFoundError):
                    verb(name)
            assert store.list(name).entries == ()
        for seen in (store, other):
            assert seen.names() == ()
            assert seen.level() == ([], [])

    def test_stat_tells_size_and_time_as_a_listing_does(self, store: ContractStore) -> None:
        store.write("dir/ten", _TEN)
        entry, (listed,) = store.stat("dir/ten"), store.list("dir").entries
        assert (entry.path, entry.size, entry.is_directory) == ("dir/ten", 10, False)
        assert (listed.path, listed.size, listed.is_directory) == ("dir/ten", 10, False)
        assert isinstance(entry.modified, float)
        assert abs(entry.modified - listed.modified) <= 1  # an HTTP header has whole seconds

    def test_a_version_seen_in_passing_is_the_version_of_a_read(self, store: ContractStore) -> None:
        written = store.write("ten", _TEN)
        read = store.read("ten").etag
        assert read == written
        for entry in (store.stat("ten"), *store.list().entries):
            assert entry.etag in (None, read)

    def test_a_read_carries_at_most_max_bytes(self, store: ContractStore) -> None:
        store.write("ten", _TEN)
        store.backend.max_bytes = 9
        for start in (None, 0, -10):
            with pytest.raises(FileTooLargeError):
                store.read("ten", start)
        assert store.read("ten", 1).data == _TEN[1:]
        assert store.read("ten", -9).data == _TEN[1:]
        assert store.read("ten", 50).data == b""
        assert store.stat("ten").size == 10
        store.backend.max_bytes = 10
        assert store.read("ten").data == _TEN

    def test_a_change_that_returned_is_seen_by_everybody(self, store: ContractStore, other: ContractStore) -> None:
        for number in range(3):
            for writer, reader in ((store, other), (other, store)):
                assert reader.level() == ([], [])
                for content in (b"%d" % number, b"longer"):
                    writer.write("dir/a", content)
                    assert reader.read("dir/a").data == content
                    assert reader.stat("dir/a").size == len(content)
                    assert [(entry.path, entry.size) for entry in reader.list().entries] == [("dir/a", len(content))]
                    assert reader.level() == ([], ["dir"])
                writer.write("dir/b", b"x")
                assert reader.names("dir") == ("dir/a", "dir/b")
                writer.delete("dir/a")
                assert reader.holds("dir/a") is None
                assert reader.names("dir") == ("dir/b",)
                writer.delete("dir/b")
