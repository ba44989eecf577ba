"""Backends that each break one promise of the contract, with the test that must fail.

Every mutant is the in-memory backend with one mistake. This module is no test itself: `test_mutants` runs its
test classes, one for each mutant and one for the unchanged original, in a separate process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    BlockingBackend,
    Entry,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.backend.helpers import content_etag, not_found
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileAlreadyExistsError
from agent_memory.key import RESERVED, Key
from agent_memory.testing import BackendContract
from agent_memory_memory import MemoryBackend, _StagedParts


def _let_others_run() -> None:
    time.sleep(1e-5)  # with 0 the same thread may continue


class _Mutant(MemoryBackend):
    caught_by: ClassVar[str]

    def content(self, key: Key) -> bytes | None:
        """A file's content, or None, read without the mutation."""
        try:
            return MemoryBackend.read(self, key).data
        except AgentMemoryFileNotFoundError:
            return None


class CreateThatChecksThenActs(_Mutant):
    caught_by = "test_of_racing_creators_exactly_one_wins"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is not ABSENT:
            return super().write(key, data, when, origin)
        if self.content(key) is not None:
            raise FileAlreadyExistsError(key.path)
        _let_others_run()
        return super().write(key, data, origin=origin)


class CompareAndSwapWithoutItsLock(_Mutant):
    caught_by = "test_of_racing_writers_on_one_version_exactly_one_wins"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if isinstance(when, ETag):
            content = self.content(key)
            if content is None or content_etag(content) != when:
                raise ConflictError(key.path)
            _let_others_run()
            when = ANY
        return super().write(key, data, when, origin)


class EditsThatLose(CompareAndSwapWithoutItsLock):
    caught_by = "test_racing_edits_lose_nothing"


class CreateThatOverwrites(_Mutant):
    caught_by = "test_a_create_refuses_a_file_that_is_there"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, ANY if when is ABSENT else when, origin)


class CreateOverAnEmptyFile(_Mutant):
    caught_by = "test_a_create_refuses_a_file_that_is_there"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, ANY if self.content(key) == b"" else when, origin)


class WriteOnPresentThatCreates(_Mutant):
    caught_by = "test_a_write_on_present_creates_no_file"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, ANY if when is PRESENT else when, origin)


class WriteOnPresentThatRefusesAnEmptyFile(_Mutant):
    caught_by = "test_a_write_on_present_replaces_any_state"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is PRESENT and not self.content(key):
            raise not_found(key)
        return super().write(key, data, when, origin)


class WriteThatForgetsItsVersion(_Mutant):
    caught_by = "test_a_write_on_a_stale_version_is_a_conflict"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, ANY if isinstance(when, ETag) else when, origin)


class WriteThatRevives(_Mutant):
    caught_by = "test_a_version_of_a_deleted_file_is_a_conflict"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, ANY if self.content(key) is None else when, origin)


class DeleteThatForgetsItsVersion(_Mutant):
    caught_by = "test_a_delete_on_a_stale_version_is_a_conflict"

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:  # noqa: ARG002 - the mutation
        super().delete(key)


class DeleteThatComparesWithoutItsLock(_Mutant):
    caught_by = "test_a_delete_on_a_version_never_takes_a_newer_file"

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        content = self.content(key)
        if when is not ANY and content is not None and content_etag(content) != when:
            raise ConflictError(key.path)
        _let_others_run()
        super().delete(key)


class DeleteOfNothing(_Mutant):
    caught_by = "test_what_is_no_file_is_not_deleted"

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if self.content(key) is not None:
            super().delete(key, when)


class DeleteWithTwoWinners(_Mutant):
    caught_by = "test_of_racing_deletes_exactly_one_wins"

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if self.content(key) is None:
            raise AgentMemoryFileNotFoundError(key.path)
        _let_others_run()
        if self.content(key) is not None:
            super().delete(key, when)


class AppendThatLoses(_Mutant):
    caught_by = "test_racing_appends_lose_nothing"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        old = self.content(key)
        if old is None or most is not None:
            return super().append(key, data, separator=separator, when=when, most=most, origin=origin)
        _let_others_run()
        middle = separator if old and not old.endswith(separator) else b""
        self.write(key, old + middle + data)
        return Appended(len(old + middle + data))


class SeparatorDecidedOutside(_Mutant):
    caught_by = "test_racing_appends_set_a_separator_exactly_once"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        old = self.content(key)
        _let_others_run()
        middle = separator if old and not old.endswith(separator) else b""
        return super().append(key, middle + data, when=when, most=most, origin=origin)


class SeparatorAlways(_Mutant):
    caught_by = "test_a_separator_goes_between_and_only_where_it_is_missing"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        data = separator + data if self.content(key) else data
        return super().append(key, data, when=when, most=most, origin=origin)


class AppendOfAnySize(_Mutant):
    caught_by = "test_an_append_over_the_given_size_is_refused"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,  # noqa: ARG002 - the mutation
        origin: NewOrigin | None = None,
    ) -> Appended:
        return super().append(key, data, separator=separator, when=when, origin=origin)


class AppendThatForgetsTheSeparatorInTheSize(_Mutant):
    caught_by = "test_an_append_over_the_given_size_is_refused"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        larger = None if most is None else most + len(separator)
        return super().append(key, data, separator=separator, when=when, most=larger, origin=origin)


class AppendThatAlwaysCreates(_Mutant):
    caught_by = "test_an_append_that_requires_the_file_does_not_create_it"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,  # noqa: ARG002 - the mutation
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        return super().append(key, data, separator=separator, most=most, origin=origin)


class AppendInTwoHalves(_Mutant):
    caught_by = "test_a_reader_sees_whole_appends"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        super().append(key, data[: len(data) // 2], separator=separator, when=when, most=most, origin=origin)
        _let_others_run()
        return super().append(key, data[len(data) // 2 :], when=PRESENT, most=most, origin=origin)


class ReplaceInTwoHalves(_Mutant):
    caught_by = "test_a_reader_sees_a_whole_state_of_a_file_that_is_replaced"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        super().write(key, data[: len(data) // 2], when, origin)
        _let_others_run()
        return super().write(key, data, origin=origin)


class ReplaceWithAGap(_Mutant):
    caught_by = "test_a_file_that_is_replaced_is_never_missing"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is ANY and self.content(key) is not None:
            self.delete(key)
            _let_others_run()
        return super().write(key, data, when, origin)


class VersionOfTheSize(_Mutant):
    """Two contents of the same length have the same etag."""

    caught_by = "test_different_contents_have_different_versions"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        snapshot = super().read(key, start, end)
        if when not in (ANY, ETag(str(snapshot.size))):
            raise ConflictError(key.path)
        return Snapshot(snapshot.data, ETag(str(snapshot.size)), snapshot.size, snapshot.origin)

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if isinstance(when, ETag):
            self.read(key, when=when)
            when = ANY
        super().write(key, data, when, origin)
        return ETag(str(len(data)))


class VersionTakenLate(_Mutant):
    caught_by = "test_a_whole_version_asked_for_late_is_of_the_state_that_was_read"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        snapshot = super().read(key, start, end, when)
        return Snapshot(snapshot.data, lambda: content_etag(self.content(key) or b""), snapshot.size, snapshot.origin)


class ReadThatForgetsItsVersion(_Mutant):
    caught_by = "test_the_version_of_a_partial_read_pins_further_partial_reads"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:  # noqa: ARG002 - the mutation
        return super().read(key, start, end)


class RangeWithItsEnd(_Mutant):
    caught_by = "test_a_range_is_what_a_slice_gives"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        return super().read(key, start, end if end is None else end + 1, when)


class RangeFromTheFront(_Mutant):
    caught_by = "test_a_range_is_what_a_slice_gives"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        return super().read(key, max(0, start or 0), end, when)


class ReadOfAnySize(_Mutant):
    caught_by = "test_a_read_carries_at_most_max_bytes"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        unlimited = copy(self)
        unlimited.max_bytes = 1_000_000_000
        return MemoryBackend.read(unlimited, key, start, end, when)


class ReadThatCreates(_Mutant):
    caught_by = "test_reading_creates_nothing"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        try:
            return super().read(key, start, end, when)
        except AgentMemoryFileNotFoundError:
            self.write(key, b"")
            raise


class ReadOfADirectory(_Mutant):
    caught_by = "test_what_is_no_file_is_not_found"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        if self.content(key) is None and self.list(key).entries:
            return Snapshot(b"", content_etag(b""), 0)
        return super().read(key, start, end, when)


class ForeignError(_Mutant):
    caught_by = "test_what_is_no_file_is_not_found"

    def stat(self, key: Key) -> Entry:
        if self.content(key) is None:
            raise FileNotFoundError(key.path)
        return super().stat(key)


class LineEndsTranslated(_Mutant):
    caught_by = "test_a_file_is_read_byte_for_byte"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data.replace(b"\r\n", b"\n"), when, origin)


class FileAndDirectoryAtOnce(_Mutant):
    caught_by = "test_a_name_is_a_file_or_a_directory"

    def _refuse_taken(self, key: Key) -> None:
        pass


class FileAndDirectoryByARace(_Mutant):
    caught_by = "test_a_name_becomes_a_file_or_a_directory_and_never_both"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        super()._refuse_taken(key)
        _let_others_run()
        return super().write(key, data, when, origin)

    def _refuse_taken(self, key: Key) -> None:
        pass


class DirectoryThatStays(_Mutant):
    caught_by = "test_an_emptied_directory_is_gone"

    def __init__(self) -> None:
        super().__init__()
        self._made: set[Key] = set()

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if key.parent.path:
            self._made.add(key.parent)
        return super().write(key, data, when, origin)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        stayed = () if recursive else tuple(key for key in self._made if key.parent == prefix)
        return replace(page, directories=(*page.directories, *stayed))


class PrefixOfText(_Mutant):
    """Listing ``a`` also lists ``ab``."""

    caught_by = "test_a_prefix_is_whole_segments"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix.parent, recursive=recursive, after=after, limit=limit)
        return replace(page, entries=tuple(e for e in page.entries if e.path.startswith(prefix.path)))


class PageThatDropsAtItsEnd(_Mutant):
    caught_by = "test_pages_give_every_name_once"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        return replace(page, entries=page.entries[:-1]) if page.next else page


class PageThatRepeatsItsEnd(_Mutant):
    caught_by = "test_pages_give_every_name_once"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        if after is None or limit < 2:
            return page
        last = next((e for e in super().list(prefix, limit=10_000).entries if e.key.storage == after), None)
        return replace(page, entries=(*filter(None, [last]), *page.entries[: limit - 1]))


class PageByPosition(_Mutant):
    """The page token is a position, so that a concurrent delete shifts all later entries."""

    caught_by = "test_pages_give_what_was_there_all_the_time_whatever_else_changes"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        whole = super().list(prefix, recursive=recursive, limit=1_000_000)
        start = int(after or 0)
        found = sorted((*(e.key for e in whole.entries), *whole.directories))[start : start + limit]
        more = start + limit < len(whole.entries) + len(whole.directories)
        entries = tuple(e for e in whole.entries if e.key in found)
        directories = tuple(key for key in whole.directories if key in found)
        return Page(entries, directories, str(start + limit) if more else None)


class PageOfAnyLength(_Mutant):
    caught_by = "test_pages_give_every_name_once"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:  # noqa: ARG002 - the mutation
        return super().list(prefix, recursive=recursive, after=after)


class OrderOfCharactersInUtf16(_Mutant):
    caught_by = "test_files_are_in_the_order_of_the_bytes_of_their_paths"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        return replace(page, entries=tuple(sorted(page.entries, key=lambda e: e.path.encode("utf-16-be"))))


class OrderOfSegments(_Mutant):
    """``a/b`` comes before ``a-b``, as in a walk through directories."""

    caught_by = "test_files_are_in_the_order_of_the_bytes_of_their_paths"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        return replace(page, entries=tuple(sorted(page.entries, key=lambda e: e.path.split("/"))))


class ListingFromACache(_Mutant):
    caught_by = "test_a_change_that_returned_is_seen_by_everybody"

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[tuple[object, ...], Page] = {}

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        asked = (prefix, recursive, after, limit)
        if asked not in self._pages:
            self._pages[asked] = super().list(prefix, recursive=recursive, after=after, limit=limit)
        return self._pages[asked]


class OwnDataListed(_Mutant):
    caught_by = "test_this_packages_own_data_is_kept_and_never_listed_with_a_tree"

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page = super().list(prefix, recursive=recursive, after=after, limit=limit)
        ours = () if prefix.storage or not recursive else self.list(Key.internal("receipts")).entries
        assert all(entry.key.storage.startswith(RESERVED) for entry in ours)
        return replace(page, entries=(*ours, *page.entries))


class NamesInSmallLetters(_Mutant):
    caught_by = "test_names_that_differ_by_case_are_two_files_or_refused"

    def _path(self, key: Key) -> str:
        return super()._path(key).lower()


class PromisesLessThanItDoes(_Mutant):
    """A backend must refuse operations that it states as not promised, because callers would rely on them."""

    caught_by = "test_what_is_not_promised_is_refused_and_changes_nothing"
    capabilities = replace(MemoryBackend().capabilities, compare_and_swap=False, conditional_delete=False)


class _WrittenAtOnce(_StagedParts):
    def add(self, data: bytes) -> None:
        super().add(data)
        self._backend.write(self._key, b"".join(self._held))


class PartsThatAreSeen(_Mutant):
    caught_by = "test_a_file_written_in_parts_is_there_when_it_is_complete"

    def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> _StagedParts:
        super().write_in_parts(key, size, when, origin)
        return _WrittenAtOnce(self, key, ANY, origin)


class PartsThatForgetTheirCondition(_Mutant):
    """The condition is checked when the write begins, not when it ends."""

    caught_by = "test_a_write_in_parts_creates_no_file_that_is_there"

    def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> _StagedParts:
        super().write_in_parts(key, size, when, origin)
        return _StagedParts(self, key, ANY, origin)


class PartsOnPresentThatCreate(_Mutant):
    caught_by = "test_a_write_in_parts_on_present_replaces_a_file_and_creates_none"

    def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> _StagedParts:
        return super().write_in_parts(key, size, ANY if when is PRESENT else when, origin)


class PartsThatForgetTheirVersion(_Mutant):
    caught_by = "test_a_write_in_parts_on_a_version_replaces_no_other"

    def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> _StagedParts:
        super().write_in_parts(key, size, when, origin)
        return _StagedParts(self, key, when if when is ABSENT else ANY, origin)


class _Kept(_StagedParts):
    def abort(self) -> None:
        self._backend.write(self._key, b"".join(self._held))


class PartsThatAreKept(_Mutant):
    caught_by = "test_a_write_in_parts_that_is_aborted_leaves_nothing"

    def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> _StagedParts:
        super().write_in_parts(key, size, when, origin)
        return _Kept(self, key, when, origin)


class WriteThatForgetsItsOrigin(_Mutant):
    caught_by = "test_a_state_has_the_origin_of_its_write"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:  # noqa: ARG002 - the mutation
        return super().write(key, data, when)


class OriginThatStays(_Mutant):
    caught_by = "test_a_write_without_an_origin_leaves_none"

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if origin is None and self.content(key) is not None and (old := super().read(key).origin):
            return super().write(key, data, when, lambda _: old)
        return super().write(key, data, when, origin)


class ReadOfARangeWithoutItsOrigin(_Mutant):
    caught_by = "test_a_range_comes_with_the_origin"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        found = super().read(key, start, end, when)
        return found if start is None else Snapshot(found.data, found.etag, found.size)


class AppendThatReplacesTheOrigin(_Mutant):
    caught_by = "test_an_append_leaves_the_origin_and_gives_one_to_a_new_file"

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        appended = super().append(key, data, separator=separator, when=when, most=most, origin=origin)
        self.write(key, MemoryBackend.read(self, key).data, origin=lambda _: "another")
        return appended


class MoveOverAFile(_Mutant):
    caught_by = "test_a_file_moves_over_nothing"

    def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int:
        if self.content(target) is not None and source != target:
            self.delete(target)
        return super().move_file(source, target, when)


class MoveInAnyState(_Mutant):
    caught_by = "test_a_file_moves_only_in_the_given_state"

    def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int:  # noqa: ARG002 - the defect
        return super().move_file(source, target)


def _subclasses(base: type[_Mutant]) -> list[type[_Mutant]]:
    return [found for child in base.__subclasses__() for found in (child, *_subclasses(child))]


def _contract(opened: Callable[[], BlockingBackend], name: str) -> type[Any]:
    def backend(_: object) -> BlockingBackend:
        return opened()

    return type(name, (BackendContract,), {"rounds": 300, "backend": pytest.fixture(backend), "__module__": __name__})


MUTANTS = _subclasses(_Mutant)
TestOriginal = _contract(MemoryBackend, "TestOriginal")
globals().update({f"Test{mutant.__name__}": _contract(mutant, f"Test{mutant.__name__}") for mutant in MUTANTS})
