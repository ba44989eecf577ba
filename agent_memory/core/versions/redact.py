"""Redaction: erases the content of one earlier version, and leaves a tombstone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from agent_memory.backend import ABSENT, Backend
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import erases
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.order import rank
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.reader import RecordListing
from agent_memory.core.versions.record import MOST_REASON, Mark, Record
from agent_memory.core.versions.states import CurrentFile, FileVersion, StoredRecord
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    InvalidContentError,
    UnsupportedOperationError,
)
from agent_memory.key import Key
from agent_memory.runtime.run import Run


@dataclass(frozen=True, slots=True)
class RedactResult:
    """The result of a redaction.

    Attributes:
        path: the file.
        version: the id of the redacted version.
        still_in: the other versions of the same file and of its copies, and the current ones, that contain the whole
            content; if the content is over the size of one part (8 MiB, on S3 at least 5 MiB), only those that begin
            with it. Empty if an earlier call erased the content.
        versions_searched: as of `agent_memory.TreeResult`.
        other_names: the other names under which the same state ended and was redacted too: those of copies.
    """

    path: str
    version: str
    still_in: tuple[FileVersion, ...]
    versions_searched: bool = True
    other_names: tuple[str, ...] = ()


def checked_reason(reason: object) -> str:
    """Return the reason of a redaction.

    Raises:
        InvalidContentError: it is not a text of 1 to 500 printable characters.
    """
    if not isinstance(reason, str) or not 1 <= len(reason) <= MOST_REASON or not reason.isprintable():
        raise InvalidContentError(f"reason must be a str of 1 to {MOST_REASON} printable characters")
    return reason


async def redact(
    store: Backend, run: Run, histories: Histories, agent: str | None, key: Key, version: str, by: MadeBy, reason: str
) -> RedactResult:
    """Erase all records of a version under its name, and the earlier states that the storage keeps of its file.

    A copy of the file has the same state: its records go too if the erased content begins with theirs; the others are
    in `RedactResult.still_in`. Under each name a record that the redaction began is written first, and becomes the
    tombstone when all else is erased. So a repeated call finishes a redaction that did not end: it erases all records
    under the names where that one began. After one that ended, it erases the records that were left.

    Raises:
        AgentMemoryFileNotFoundError: the file has no earlier version with this id.
        ConflictError: the version is a current file.
        UnsupportedOperationError: the storage does not promise that it keeps nothing.
    """
    erase_earlier = _erase_earlier(store, key)
    file = await _File.of_version(run, histories, key, version)
    best = file.best
    history = best.record.history
    unfinished = [each for each in file.same if each.record.reason is not None and not each.record.redacted_by]
    places = {histories.place(key.path), *(each.name.path for each in unfinished)}
    same = [
        each
        for each in file.same
        if each.name.path in places or each.key == best.key or await _is_beginning(histories, best, each)
    ]
    still_in: tuple[FileVersion, ...] = ()
    if best.record.reason is None:
        still_in = await _ContentSearch(store, histories, best).containing(file, {each.key for each in same})
    tombstones: dict[Key, Record] = {}
    kept: set[Key] = set()
    for those in _by_name(same, best):
        true = max(those, key=lambda each: rank(each, ()))
        if true.record.redacted_by:
            kept.add(true.key)
            continue
        begun = true.record.redacted(None, reason)
        name = histories.place_of(begun.new_name(agent))
        await run.call(store.write, name, begun.trailer(), ABSENT)
        tombstones[name] = true.record.redacted(by, reason)
    searched, erased = True, 0
    with tree_flows.reported_as_partial(key, lambda: bool(erased)):
        for path in file.names:
            with renewed_deadline(run.now()):
                count = await run.call(erase_earlier, histories.key(path))
            searched &= count is not None
            erased += count or 0
        for each in same:
            if each.key not in kept:
                with renewed_deadline(run.now()):
                    erased += (await tree_flows.forget(store, run, each.key)).files or 0
        erased += await histories.erase_unlisted(lambda name: name.history == history and name.id == best.record.id)
        for name, tombstone in tombstones.items():
            await run.call(store.write, name, tombstone.trailer())
    others = sorted({each.record.path for each in same} - {key.path, best.record.path})
    return RedactResult(key.path, version, still_in, searched, tuple(others))


def _by_name(records: Iterable[StoredRecord], best: StoredRecord) -> list[list[StoredRecord]]:
    """The records under each name, that of the version first."""
    found: dict[str, list[StoredRecord]] = {best.name.path: []}
    for each in records:
        found.setdefault(each.name.path, []).append(each)
    return [those for those in found.values() if those]


async def _is_beginning(histories: Histories, best: StoredRecord, other: StoredRecord) -> bool:
    """Whether the redacted content begins with that of another record of the same state."""
    if best.record.reason is not None:
        return other.record.reason is not None or other.record.size == 0
    return await histories.begins(best, other)


class _File(NamedTuple):
    """A file and its copies, which have the same history.

    Attributes:
        names: the names, with those that they had before.
        current: the current states under these names.
        records: the records of the history.
        same: the records of the sought state.
        best: the record of the sought version.
    """

    names: list[str]
    current: list[CurrentFile]
    records: list[StoredRecord]
    same: list[StoredRecord]
    best: StoredRecord

    @staticmethod
    async def of_version(run: Run, histories: Histories, key: Key, version: str) -> _File:
        """Read the file that had a version; raises `AgentMemoryFileNotFoundError` if ``key`` never was its name."""
        current = await histories.current(key, whole=True)
        if current and current.state.id == version:
            raise _is_current(key)
        best = await histories.record_of_version(key, version, current)
        history = best.record.history
        listing = RecordListing(await histories.names(history))
        records = await histories.read(listing.records[history])
        marks = await run.map(histories.read_mark, listing.marks[history], tree_flows.AT_ONCE)
        histories.require_read(each.key for each in (*listing.records[history], *listing.marks[history]))
        present = await histories.current_of_history(history, best.record.size)
        names = _names(key, records, filter(None, marks), present)
        same = [each for each in records if each.record.id == best.record.id]
        if not any(each.key == best.key for each in same):  # another process has just erased them
            raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
        return _File(names, present, records, same, best)


def _names(
    key: Key, records: Iterable[StoredRecord], marks: Iterable[Mark], present: Iterable[CurrentFile]
) -> list[str]:
    names = {key.path: None, **{each.record.path: None for each in records}}
    names |= {each.key.path: None for each in present}
    for mark in marks:
        names |= {mark.source: None, mark.target: None}
    return list(names)


def _is_current(key: Key) -> ConflictError:
    return ConflictError("this version is the current file: replace or delete its content first", path=key.path)


def _erase_earlier(store: object, key: Key) -> Callable[[Key], Awaitable[int | None]]:
    if not erases(store):
        raise UnsupportedOperationError(
            "this backend does not promise that it keeps nothing of a deleted file", path=key.path
        )
    return cast("Callable[[Key], Awaitable[int | None]]", store.erase_earlier)


class _ContentSearch:
    """The search for the content of one record in other states."""

    def __init__(self, store: Backend, histories: Histories, sought: StoredRecord) -> None:
        self._part = store.part_bytes
        self._histories = histories
        self._sought = sought

    async def containing(self, file: _File, erased: Collection[Key]) -> tuple[FileVersion, ...]:
        """Return the states of a file that contain the content and are not erased; an empty content is in none."""
        size = self._sought.size
        states: list[CurrentFile | StoredRecord] = [*file.current]
        states += (each for each in file.records if each.key not in erased)
        is_in = self._is_beginning if size > self._part else await self._is_inside()
        found: dict[tuple[str, str, bool], FileVersion] = {}
        for each in states:
            try:
                if each.size >= size > 0 and await is_in(each):
                    version = each.version
                    found.setdefault((version.id, version.path, version.ended_by is None), version)
            except AgentMemoryFileNotFoundError:
                continue  # another process deleted it
        return tuple(found.values())

    async def _is_inside(self) -> Callable[[CurrentFile | StoredRecord], Awaitable[bool]]:
        content = await self._histories.content_of(self._sought)

        async def is_in(state: CurrentFile | StoredRecord) -> bool:
            at = 0
            while at + len(content) <= state.size:
                end = at + 2 * self._part
                if content in await self._histories.range_of(state, at, end):
                    return True
                at = end - len(content) + 1
            return False

        return is_in

    async def _is_beginning(self, state: CurrentFile | StoredRecord) -> bool:
        return await self._histories.starts_with(state, self._sought)
