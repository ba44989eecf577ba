"""`RecordReader`: lists and reads the records of one agent; damaged and unreadable ones are left out and counted."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, cast

from agent_memory.backend import Backend, Entry, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import erases
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.record import LAST_BYTES, Mark, Name, Record, digest_of_path, records_of
from agent_memory.core.versions.states import CurrentFile, StoredRecord
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_log = logging.getLogger("agent_memory")


class ListedRecord(NamedTuple):
    """A record, or the mark of a rename, that a listing showed."""

    entry: Entry
    name: Name

    @property
    def key(self) -> Key:
        return self.entry.key

    @property
    def size(self) -> int:
        return self.entry.size

    @property
    def modified(self) -> float:
        return self.entry.modified


class RecordListing:
    """A listing of one agent's records and marks.

    Attributes:
        records: the records of each history.
        marks: the marks of each history.
        last: for the digest of each name, the last record of each history under it; a tombstone only if all are.
    """

    def __init__(self, listed: Iterable[ListedRecord]) -> None:
        self.records = defaultdict[str, list[ListedRecord]](list)
        self.marks = defaultdict[str, list[ListedRecord]](list)
        self.last = defaultdict[str, dict[str, ListedRecord]](dict)
        for each in listed:
            name = each.name
            if name.is_mark:
                self.marks[name.history].append(each)
            else:
                self.records[name.history].append(each)
                last = self.last[name.path]
                last[name.history] = max(each, last.get(name.history, each), key=end_order)


def end_order(each: ListedRecord) -> tuple[bool, float, int]:
    """The place of the end of a state among those of all files; the time of a tombstone is that of its redaction."""
    return each.name.kind != "t", each.modified, each.name.number


def history_order(each: ListedRecord) -> tuple[int, float]:
    """The place of a record or mark among those of its history."""
    return each.name.number, each.modified


class RecordReader:
    """The records of one agent's files.

    Args:
        store: the store, not a `VersionedStore`.
        run: runs its primitives.
        agent: the agent.
    """

    def __init__(self, store: Backend, run: Run, agent: str | None) -> None:
        self._store = store
        self._run = run
        self._agent = agent
        self._left_out: set[Key] = set()
        self._unreadable: dict[Key, AgentMemoryError] = {}
        self._reported = False

    def place_of(self, name: Name) -> Key:
        """The key of a record with a name."""
        return records_of(self._agent).join(f"{name.history}/{name}")

    def place(self, path: str) -> str:
        """The digest of a path, in the names of its records."""
        return digest_of_path(self._agent, path)

    async def names(self, history: str = "") -> list[ListedRecord]:
        """List the records and marks of one history, or of all."""
        top = records_of(self._agent)
        listing = await tree_flows.list_all(self._store, self._run, top.join_prefix(history) if history else top)
        parsed = ((entry, Name.parse(entry.key)) for entry in listing.entries)
        return [ListedRecord(entry, name) for entry, name in parsed if name]

    async def files_with(self, listing: RecordListing, place: str, without: str) -> list[str]:
        """The histories with a record under a name, but for one history; the file that ended last comes first.

        Of files that ended at one time of the storage, the writers' clocks tell the order. Those records are read, and
        all if a file has only tombstones: their time in the storage is that of the redaction.
        """
        last = [each for history, each in listing.last[place].items() if history != without]
        ends = {each.name.history: (each.modified, 0.0) for each in last}
        alike, is_redacted = Counter(each.modified for each in last), any(each.name.kind == "t" for each in last)
        for each in await self.read(each for each in last if is_redacted or alike[each.modified] > 1):
            time, is_whole = each.record.ended_by.time, ends[each.name.history][0].is_integer()
            ends[each.name.history] = math.floor(time) if is_whole else time, each.claimed
        return sorted(ends, key=lambda history: (ends[history], history), reverse=True)

    async def erase_unlisted(self, is_meant: Callable[[Name], bool]) -> int:
        """Erase what the storage keeps of deleted records, and of those whose writing did not end.

        Return the number of states of records that were erased.
        """
        if not erases(self._store):
            return 0

        def is_meant_key(key: Key) -> bool:
            name = Name.parse(key)
            return name is not None and is_meant(name)

        erase = cast("Callable[..., Awaitable[int | None]]", self._store.erase_earlier)
        with renewed_deadline(self._run.now()):
            return await self._run.call(erase, records_of(self._agent), is_meant_key) or 0

    async def content_of(self, stored: StoredRecord) -> bytes:
        """Return the content of a record; errors as `content`."""
        if stored.data is not None:
            return stored.data
        return await self.range_of(stored, 0, stored.record.size)

    async def begins(self, longer: CurrentFile | StoredRecord, shorter: StoredRecord) -> bool:
        """Whether a content begins with the content of a record; True if one of them is gone."""
        try:
            return await self.starts_with(longer, shorter)
        except AgentMemoryFileNotFoundError:
            return True

    async def starts_with(self, longer: CurrentFile | StoredRecord, shorter: StoredRecord) -> bool:
        """Whether a content begins with the content of a record, compared in parts.

        Raises:
            AgentMemoryFileNotFoundError: one of them is gone.
        """
        size, part = shorter.record.size, self._store.part_bytes
        if size > longer.size:
            return False
        for at in range(0, size, part):
            end = min(at + part, size)
            if await self.range_of(longer, at, end) != await self.range_of(shorter, at, end):
                return False
        return True

    async def range_of(self, of: CurrentFile | StoredRecord, start: int, end: int) -> bytes:
        """Return the bytes ``[start:end]`` of a content, which may end before."""
        data = of.data if isinstance(of, StoredRecord) else of.snapshot.data if of.is_whole else None
        if data is not None:
            return data[start:end]
        with renewed_deadline(self._run.now()):
            return (await self._run.call(self._store.read, of.key, start, min(end, of.size))).data

    async def read_mark(self, listed: ListedRecord) -> Mark | None:
        """Read the mark of a rename, with the storage's time; None if it is deleted, damaged or unreadable."""
        if (snapshot := await self._read_end_of(listed.key, self._store.max_bytes)) is None:
            return None
        try:
            mark = Mark.parse(listed.key, snapshot.data)
        except ReadError:
            self._left_out.add(listed.key)
            return None
        return mark._replace(by=replace(mark.by, time=_time(listed, mark.by.time)))

    async def read(self, names: Iterable[ListedRecord]) -> list[StoredRecord]:
        """Read records, also leftovers; those that were just deleted, damaged or unreadable are left out.

        A failure of the storage that is not about one record is raised.
        """
        found = await self._run.map(self._read_record, list(names), tree_flows.AT_ONCE)
        self._report_left_out()
        return [each for each in found if each]

    def require_read(self, names: Iterable[Key]) -> None:
        """Raise if the storage failed to read one of these records: an erasing call needs the facts in it."""
        if error := next((self._unreadable[name] for name in names if name in self._unreadable), None):
            raise error

    @property
    def left_out(self) -> int:
        """The number of records that were damaged or unreadable, so that results do not have them."""
        return len(self._left_out)

    def _report_left_out(self) -> None:
        """Log, once in each operation, the number of records that were left out."""
        if self._left_out and not self._reported:
            self._reported = True
            first = min(self._left_out).name
            _log.warning(
                "%d records of versions, or files, are damaged or unreadable, and left out; one is %a",
                len(self._left_out),
                first,
            )

    async def _read_end_of(self, name: Key, size: int = LAST_BYTES) -> Snapshot | None:
        """Read as `_read_end`; None also if the storage fails to read this record, but not others."""
        try:
            with renewed_deadline(self._run.now()):
                return await _read_end(self._store, self._run, name, size)
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            self._left_out.add(name)
            self._unreadable[name] = error
            return None

    async def _read_record(self, listed: ListedRecord) -> StoredRecord | None:
        if (snapshot := await self._read_end_of(listed.key)) is None:
            return None
        try:
            record = Record.parse(listed.key, self._agent, snapshot.data, snapshot.size)
        except ReadError:
            self._left_out.add(listed.key)
            return None
        claimed = record.ended_by.time
        if record.reason is None:
            record = replace(record, ended_by=replace(record.ended_by, time=_time(listed, claimed)))
        data = snapshot.data[: record.size] if len(snapshot.data) == snapshot.size else None
        return StoredRecord(record, listed.name, listed.key, data, claimed)


async def _read_end(store: Backend, run: Run, name: Key, size: int) -> Snapshot | None:
    """Read the last ``size`` bytes of a record, or all its facts; None if another process has deleted it."""
    while True:
        try:
            snapshot = await run.call(store.read, name, -size, None)
        except AgentMemoryFileNotFoundError:
            return None
        needed = Record.bytes_of_facts(snapshot.data)
        if needed <= len(snapshot.data) or needed > snapshot.size:
            return snapshot
        size = needed


def _time(listed: ListedRecord, claimed: float) -> float:
    """The storage's time; where that has whole seconds, the caller's clock tells the place within the second."""
    if not listed.modified.is_integer():
        return listed.modified
    return min(max(claimed, listed.modified), math.nextafter(listed.modified + 1, 0))
