"""`Histories`: finds the earlier versions of files, by listings of the records and the end of each record."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

from agent_memory.backend import Backend, Entry, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import erases
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.order import lineage, shown
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import (
    LAST_BYTES,
    Mark,
    Name,
    Record,
    digest_of_path,
    records_of,
)
from agent_memory.core.versions.states import CurrentFile, Cursor, FileStates, FileVersion, StoredRecord, current_file
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_log = logging.getLogger("agent_memory")
_READ_AT_A_TIME: Final = 100


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
    """

    def __init__(self, listed: Iterable[ListedRecord]) -> None:
        self.records = defaultdict[str, list[ListedRecord]](list)
        self.marks = defaultdict[str, list[ListedRecord]](list)
        self._ended = defaultdict[str, dict[str, float]](dict)
        for each in listed:
            name = each.name
            if name.is_mark:
                self.marks[name.history].append(each)
            else:
                self.records[name.history].append(each)
                last = self._ended[name.path]
                last[name.history] = max(each.modified, last.get(name.history, each.modified))

    def files_with(self, place: str, without: str) -> list[str]:
        """The histories with a record under a name, but for one history; the file that ended last comes first."""
        ended = self._ended.get(place, {})
        return sorted(ended.keys() - {without}, key=lambda history: (ended[history], history), reverse=True)


class Histories:
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

    async def versions(self, key: Key, limit: int | None, after: Cursor | None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first: the current one, and at most ``limit`` in all.

        With ``after`` only older ones are returned.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        if after is None:
            return (await self.states(key, limit)).versions[:limit]
        versions = (await self.states(key)).versions
        if (rest := after.rest(versions)) is None:
            self.require_read(self._unreadable)
            raise AgentMemoryFileNotFoundError(f"no version {after.id!r}", path=key.path)
        return tuple(rest[:limit])

    async def states(self, key: Key, limit: int | None = None) -> FileStates:
        """Return the states of a file, at least the newest ``limit``.

        Those of the current file's history come first, then those of earlier files with this name.
        """
        current = await self.current(key, whole=True)
        records: list[StoredRecord] = []
        own = current.state.history if current else ""
        if own:
            wanted = None if limit is None else limit - 1
            listing = RecordListing(await self.names(own))
            records = await self._of_history(listing.records[own], key, current, wanted)
        wanted = None if limit is None else limit - len(records) - bool(current)
        if wanted is None or wanted > 0:
            records += await self._of_earlier_files(key, own, wanted)
        return FileStates(current, records)

    async def _of_earlier_files(self, key: Key, without: str, wanted: int | None) -> list[StoredRecord]:
        listing = RecordListing(await self.names())
        records: list[StoredRecord] = []
        for history in listing.files_with(self.place(key.path), without):
            if wanted is None or len(records) < wanted:
                rest = None if wanted is None else wanted - len(records)
                records += await self._of_history(listing.records[history], key, None, rest)
        return records

    async def _of_history(
        self, names: Sequence[ListedRecord], key: Key, current: CurrentFile | None, wanted: int | None
    ) -> list[StoredRecord]:
        """The states of one history that a name shows, at least the newest ``wanted``; ``names`` are its records."""
        place, state = self.place(key.path), current.state if current else None
        existing = {each.name.id for each in names}
        newest = state.number - 1 if state else max(each.name.number for each in names if each.name.path == place)
        shows = [each for each in names if each.name.path == place or each.name.number <= newest]
        rest: Sequence[ListedRecord] = sorted(shows, key=lambda each: each.name.number, reverse=True)
        previous = state.previous if state else None
        records: list[StoredRecord] = []
        found: list[StoredRecord] = []
        while rest and (wanted is None or len(found) < wanted):
            now, rest = _of_next_numbers(rest, None if wanted is None else wanted - len(found))
            records += await self.read(now)
            ancestors = lineage(records, place, previous, existing)
            found = await shown(ancestors, place, current, existing, self.begins)
        return found

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

    @property
    def tree(self) -> Key:
        """The tree of the files."""
        return Key.tree() if self._agent is None else Key.agent(self._agent)

    def key(self, path: str) -> Key:
        """The key of a file that a record names."""
        return self.tree.join(path)

    async def current_of_history(self, history: str, least: int) -> list[CurrentFile]:
        """Return the current files of a history, those of at least ``least`` bytes: reads the origin of each.

        Files that cannot be read are left out, and counted.
        """

        async def read(entry: Entry) -> CurrentFile | None:
            try:
                return await self.current(entry.key)
            except AgentMemoryError as error:
                if not fails_alone(error):
                    raise
                self._left_out.add(entry.key)
                return None

        if not self._store.keeps_origins:
            return []
        entries = (await tree_flows.list_all(self._store, self._run, self.tree)).entries
        large = [entry for entry in entries if entry.size >= least]
        found = await self._run.map(read, large, tree_flows.AT_ONCE)
        self._report_left_out()
        return [each for each in found if each and each.origin.history == history]

    async def current(self, key: Key, whole: bool = False) -> CurrentFile | None:
        """Return the current state of a file; see `current_file`."""
        with renewed_deadline(self._run.now()):
            return await current_file(self._store, self._run, key, whole)

    async def content(self, key: Key, version: str) -> bytes:
        """Return the content of a version.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
            FileTooLargeError: it has more bytes than one call may read.
        """
        current, record = await self.locate(key, version)
        return await self.content_of(record) if record else cast(CurrentFile, current).whole(self._store.max_bytes).data

    async def locate(self, key: Key, version: str) -> tuple[CurrentFile | None, StoredRecord | None]:
        """Return the current file, and the record of a version; None in its place if the current file is the version.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id, or it has no content.
        """
        current = await self.current(key, whole=True)
        if version and current and current.state.id == version:
            return current, None
        return current, _with_content(await self.record_of_version(key, version, current), key, version)

    async def record_of_version(self, key: Key, version: str, current: CurrentFile | None) -> StoredRecord:
        """Return the true record of an earlier version of a file, whose current state is given.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
        """
        place, history = self.place(key.path), current.state.history if current else ""
        names = await self.names(history) if history else []
        if not (meant := [each for each in names if each.name.is_of(version)]):
            names = await self.names()
            histories = {each.name.history for each in names if each.name.path == place}
            meant = [each for each in names if each.name.is_of(version) and each.name.history in histories]
        existing = {each.name.id for each in names}
        records = await self.read(meant)
        self.require_read(each.key for each in meant)  # another record of the state may be shorter
        for each in await shown(records, place, None, existing, self.begins):
            if version in (each.version_id, each.name.version_id):
                return each
        raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)

    async def last_state(self, history: str, key: Key) -> Origin | None:
        """Return the number and the id of the last state of a history that has a record, as an origin.

        Of copies of the file, and of a file that was renamed, that is the last state under this name, if it has one.
        """
        names = [each.name for each in await self.names(history) if not each.name.is_mark]
        place = self.place(key.path)
        last = max(names, key=lambda name: (name.path == place, name.number), default=None)
        return last and Origin(last.id, history, last.number, None, None, 0, "", None)

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

    async def recent(
        self, is_meant: Callable[[str], bool], limit: int | None, after: Cursor | None
    ) -> tuple[FileVersion, ...]:
        """Return the earlier versions of many files, by the storage's time of their end, latest first.

        Args:
            is_meant: whether the versions of a path are returned.
            limit: the maximum number; None for all.
            after: the last version of the page before.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        listed = await self.names()
        existing = {each.name.id for each in listed}
        states = self._from(after, _latest_first(listed))
        found: list[FileVersion] = []
        step = min(limit or _READ_AT_A_TIME, _READ_AT_A_TIME)
        while states and (limit is None or len(found) < limit):
            now, states = states[:step], states[step:]
            records = await self.read(one for those in now for one in those)
            current = await self._current_files(each for each in records if is_meant(each.record.path))
            for those in now:
                names = {each.name for each in those}
                mine = [each for each in records if each.name in names and is_meant(each.record.path)]
                if mine:
                    file = current.get(mine[0].record.path)
                    shows = await shown(mine, mine[0].name.path, file, existing, self.begins)
                    versions = [each.version for each in shows]
                    found += versions if after is None else after.rest(versions) or ()
                after = None  # it is in the first state
        return tuple(found[:limit])

    def _from(self, after: Cursor | None, states: list[list[ListedRecord]]) -> list[list[ListedRecord]]:
        """The states from the one of a version on; without its path, of copies, from the last one."""
        if after is None:
            return states
        place = None if after.path is None else self.place(after.path)
        for number in reversed(range(len(states))):
            if any(each.name.is_of(after.id) and place in (None, each.name.path) for each in states[number]):
                return states[number:]
        raise AgentMemoryFileNotFoundError(f"no version {after.id!r}", path=after.path)

    async def _current_files(self, records: Iterable[StoredRecord]) -> dict[str, CurrentFile | None]:
        """The current files of some records; with content if one of the records may be a leftover."""
        states = defaultdict[str, set[str | None]](set)
        for each in records:
            states[each.record.path] |= {each.record.id, each.record.previous}

        async def read(path: str) -> CurrentFile | None:
            found = await self.current(self.key(path))
            return await self.current(self.key(path), True) if found and found.origin.id in states[path] else found

        return dict(zip(states, await self._run.map(read, list(states), tree_flows.AT_ONCE), strict=True))

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
        if record.reason is None:
            record = replace(record, ended_by=replace(record.ended_by, time=_time(listed, record.ended_by.time)))
        is_whole = len(snapshot.data) == snapshot.size
        return StoredRecord(record, listed.name, listed.key, snapshot.data[: record.size] if is_whole else None)


def _with_content(best: StoredRecord, key: Key, version: str) -> StoredRecord:
    """Return the record of a version; raises `AgentMemoryFileNotFoundError` if it has no content."""
    if best.record.redacted_by:
        raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
    if best.record.reason is not None:
        message = f"a redaction of version {version!r} did not end: call it again"
        raise AgentMemoryFileNotFoundError(message, path=key.path)
    return best


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


def _of_next_numbers(
    names: Sequence[ListedRecord], count: int | None
) -> tuple[Sequence[ListedRecord], Sequence[ListedRecord]]:
    """Split records, latest number first: those of the first ``count`` numbers, and the others."""
    numbers = list(dict.fromkeys(each.name.number for each in names))[:count]
    now = [each for each in names if each.name.number in set(numbers)]
    return now, names[len(now) :]


def _latest_first(names: Iterable[ListedRecord]) -> list[list[ListedRecord]]:
    """The records of each state under each name, in the order of the storage's time."""
    states: dict[tuple[str, str], list[ListedRecord]] = {}
    for each in sorted(names, key=lambda each: (-each.modified, str(each.name))):
        if not each.name.is_mark:
            states.setdefault((each.name.id, each.name.path), []).append(each)
    return list(states.values())


def _time(listed: ListedRecord, claimed: float) -> float:
    """The storage's time; where that has whole seconds, the caller's clock tells the place within the second."""
    if not listed.modified.is_integer():
        return listed.modified
    return min(max(claimed, listed.modified), listed.modified + 1)
