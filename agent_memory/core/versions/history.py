"""`Histories`: reads the earlier versions of files, from a listing of the records and the end of each record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Entry, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.record import (
    LAST_BYTES,
    MOST_FACTS,
    NONCE_LENGTH,
    Link,
    Name,
    Record,
    is_link,
    records_of,
    records_of_file,
)
from agent_memory.core.versions.states import (
    CurrentFile,
    FileStates,
    FileVersion,
    StoredRecord,
    current_file,
    one_per_state,
    read_current,
)
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_log = logging.getLogger("agent_memory")
_PAGE: Final = 1000
_MOST_LINKS: Final = 64
"""The maximum number of earlier names of a file that are searched."""
_READ_AT_A_TIME: Final = 100


class _Listed(NamedTuple):
    """A record that a listing showed."""

    key: Key
    name: Name


class Histories:
    """The records of one agent's files.

    Args:
        store: the store, not a `VersionedStore`.
        run: runs its primitives.
        agent: the agent.
        secret: keys the digests of paths.
    """

    def __init__(self, store: Backend, run: Run, agent: str | None, secret: str) -> None:
        self._store = store
        self._run = run
        self._agent = agent
        self._secret = secret
        self._left_out: set[Key] = set()
        self._unreadable: dict[Key, AgentMemoryError] = {}
        self._reported = False

    async def versions(self, key: Key, limit: int | None, after: str | None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first: the current one, and at most ``limit`` in all.

        ``after`` is the id of a version; only older ones are returned.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        if after is None:
            return (await self.states(key, limit)).versions[:limit]
        versions = (await self.states(key)).versions
        ids = [version.id for version in versions]
        if after not in ids:
            self.require_read(self._unreadable)
            raise AgentMemoryFileNotFoundError(f"no version {after!r}", path=key.path)
        start = ids.index(after) + 1
        return versions[start : None if limit is None else start + limit]

    async def states(self, key: Key, limit: int | None = None) -> FileStates:
        """Return the states of a file, at least the newest ``limit``."""
        current = await current_file(self._store, self._run, key)
        wanted = None if limit is None else max(0, limit - (current is not None))
        records = await self.read(_newest(await self._names(key, current, wanted), current, wanted))
        return FileStates(current, one_per_state(records, [current.origin.id] if current else ()))

    async def entries(self) -> tuple[Entry, ...]:
        """List the records and links of all files."""
        return (await tree_flows.list_all(self._store, self._run, self.directory)).entries

    @property
    def directory(self) -> Key:
        """The directory of the records."""
        return records_of(self._agent)

    def key(self, path: str) -> Key:
        """The key of a file that a record names."""
        return (Key.tree() if self._agent is None else Key.agent(self._agent)).join(path)

    async def content(self, key: Key, version: str) -> bytes:
        """Return the content of a version.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
            FileTooLargeError: it has more bytes than one call may read.
        """
        current = await current_file(self._store, self._run, key)
        if version and current and current.origin.id == version:
            with suppress(AgentMemoryFileNotFoundError):
                found = await read_current(self._store, self._run, key)
                if found.origin.id == version:
                    return found.snapshot.data
        return await self.content_of(_with_content(await self.records_of_version(key, version, current), key, version))

    async def record_of_version(self, key: Key, version: str) -> StoredRecord:
        """Return the record of an earlier version; raises `AgentMemoryFileNotFoundError` if it has no content."""
        current = await current_file(self._store, self._run, key)
        return _with_content(await self.records_of_version(key, version, current), key, version)

    async def records_of_version(self, key: Key, version: str, current: CurrentFile | None) -> list[StoredRecord]:
        """Return all records of an earlier version of a file, whose current state is given.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
        """
        names = [each.key for each in await self._names(key, current) if each.name.is_of(version)]
        if not (found := await self.read(names)):
            self.require_read(self._unreadable)  # the version may be in one of them, or lead through it
            raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
        return found

    async def content_of(self, stored: StoredRecord) -> bytes:
        """Return the content of a record; errors as `content`."""
        if stored.data is not None:
            return stored.data
        return (await self._run.call(self._store.read, stored.key, 0, stored.record.size)).data

    async def _names(self, key: Key, current: CurrentFile | None, wanted: int | None = None) -> list[_Listed]:
        """The names of the records of a file, newest first: those under its name, and those under earlier names.

        Other files may have used an earlier name. So under it only those histories count that go on under the later
        name. Earlier names are searched only while there are fewer than ``wanted`` states.
        """
        names, links = await self._listed(key.path, wanted)
        places, seen = [(key.path, links)], {key.path}
        for place, its_links in places:  # grows in the loop
            unfinished = _unfinished(names, current)
            if not unfinished or len(seen) > _MOST_LINKS or (wanted is not None and _states(names) >= wanted):
                break
            for link in await self._links_to(place, its_links):
                earlier = link.source + place[len(link.target) :]
                is_one = link.history is None or link.history in unfinished
                if is_one and earlier not in seen and len(seen) <= _MOST_LINKS:
                    seen.add(earlier)
                    records, links = await self._listed(earlier, None)
                    names += [name for name in records if name.name.history in unfinished]
                    places.append((earlier, links))
        return sorted(names, key=lambda name: name.key.name)

    async def _listed(self, path: str, wanted: int | None) -> tuple[list[_Listed], list[Key]]:
        """The records and the links under one name, from as many pages as ``wanted`` states need."""
        directory = records_of_file(self._agent, self._secret, path)
        records: list[_Listed] = []
        links: list[Key] = []
        after: str | None = None
        while True:
            with renewed_deadline(self._run.now()):
                page = await self._run.call(self._store.list, directory, after=after, limit=_PAGE)
            parsed = [(entry.key, Name.parse(entry.key.name)) for entry in page.entries]
            records += [_Listed(key, name) for key, name in parsed if name]
            links += [key for key, _ in parsed if is_link(key.name)]
            after = page.next
            if after is None or (wanted is not None and _states(records) > wanted):
                return records, links

    async def _links_to(self, path: str, links: list[Key]) -> list[Link]:
        """The renames to a path, or to a directory above it, the latest first."""
        found = list(links)
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            found += (await self._listed(above, None))[1]
        return [link for link in await self.read_links(found) if is_at_or_below(path, link.target)]

    async def read_links(self, names: Iterable[Key]) -> list[Link]:
        """Read the records of renames, the latest first; otherwise as `read`."""

        async def read(name: Key) -> Link | None:
            snapshot = await self._read_end_of(name, MOST_FACTS)
            try:
                return Link.parse(name, snapshot.data) if snapshot else None
            except ReadError:
                self._left_out.add(name)
                return None

        found = filter(None, await self._run.map(read, list(names), tree_flows.AT_ONCE))
        self._report_left_out()
        return sorted(found, key=lambda link: link.by.time, reverse=True)

    async def read(self, names: Iterable[Key]) -> list[StoredRecord]:
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

    def unreadable_of_others(self, histories: Container[str]) -> list[Key]:
        """The records that the storage failed to read, without those of some histories, and without links."""
        parsed = [(key, Name.parse(key.name)) for key in self._unreadable]
        return [key for key, name in parsed if name and name.history not in histories]

    @property
    def left_out(self) -> int:
        """The number of records that were damaged or unreadable, so that results do not have them."""
        return len(self._left_out)

    def is_left_out(self, key: Key, path: str) -> bool:
        """Whether a record of a file with this path was left out: its directory names its file."""
        return key in self._left_out and key.is_below(records_of_file(self._agent, self._secret, path))

    def _report_left_out(self) -> None:
        """Log, once in each operation, the number of records that were left out."""
        if self._left_out and not self._reported:
            self._reported = True
            first = min(self._left_out).name
            _log.warning(
                "%d records of versions are damaged or unreadable, and left out; one is %a", len(self._left_out), first
            )

    async def current_ids(self, paths: Iterable[str]) -> set[str]:
        """Return the ids of the current states of some files."""

        async def read(path: str) -> str | None:
            with renewed_deadline(self._run.now()):
                found = await current_file(self._store, self._run, self.key(path))
            return found.origin.id if found else None

        return set(filter(None, await self._run.map(read, list(dict.fromkeys(paths)), tree_flows.AT_ONCE)))

    async def recent(
        self, is_meant: Callable[[str], bool], limit: int | None, after: str | None
    ) -> tuple[FileVersion, ...]:
        """Return the earlier versions of many files, by the storage's time of their end, latest first.

        Args:
            is_meant: whether the versions of a path are returned.
            limit: the maximum number; None for all.
            after: the id of the last version of the page before.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        names = _latest_first(await self.entries())
        ids = list(names)
        if after is not None:
            last = after if after in names else after[:-NONCE_LENGTH]  # the second content of a state
            if last not in names:
                raise AgentMemoryFileNotFoundError(f"no version {after!r}")
            del ids[: ids.index(last) + 1]
        found: list[FileVersion] = []
        step = min(limit or _READ_AT_A_TIME, _READ_AT_A_TIME)
        while ids and (limit is None or len(found) < limit):
            now, ids = ids[:step], ids[step:]
            records = await self.read([key for each in now for key in names[each]])
            meant = [each for each in records if is_meant(each.record.path)]
            current = await self.current_ids(each.record.path for each in meant)
            found += (each.version for each in one_per_state(meant, current))
        return tuple(found[:limit])

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

    async def _read_record(self, name: Key) -> StoredRecord | None:
        if (snapshot := await self._read_end_of(name)) is None:
            return None
        try:
            record = Record.parse(name, snapshot.data, snapshot.size)
        except ReadError:
            self._left_out.add(name)
            return None
        is_whole = len(snapshot.data) == snapshot.size
        return StoredRecord(record, name, snapshot.data[: record.size] if is_whole else None)


def _with_content(records: list[StoredRecord], key: Key, version: str) -> StoredRecord:
    """The best record of a version; raises `AgentMemoryFileNotFoundError` if it has no content."""
    best = next(each for each in one_per_state(records) if not each.is_second)
    if best.record.redacted_by:
        raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
    if best.record.reason is not None:
        message = f"a redaction of version {version!r} did not end: call it again"
        raise AgentMemoryFileNotFoundError(message, path=key.path)
    return best


async def _read_end(store: Backend, run: Run, name: Key, size: int = LAST_BYTES) -> Snapshot | None:
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


def _states(names: Iterable[_Listed]) -> int:
    """The least number of earlier states with these records: a leftover may be a record of the current state."""
    return len({name.name.id for name in names}) - 1


def _newest(names: Iterable[_Listed], current: CurrentFile | None, wanted: int | None) -> list[Key]:
    """The records of the newest ``wanted`` earlier states, and of the current one."""
    of_state: dict[str, list[Key]] = {}
    for name in names:
        of_state.setdefault(name.name.id, []).append(name.key)
    if wanted is not None and current and current.origin.id in of_state:
        wanted += 1
    return [key for keys in list(of_state.values())[:wanted] for key in keys]


def _unfinished(names: Iterable[_Listed], current: CurrentFile | None) -> set[str]:
    """The histories whose first version is not among the records: they may have begun under another name."""
    first: dict[str, int] = {current.origin.history: current.origin.number} if current else {}
    for _, name in names:
        first[name.history] = min(name.number, first.get(name.history, name.number))
    return {history for history, number in first.items() if number}


def _latest_first(entries: Iterable[Entry]) -> dict[str, list[Key]]:
    """The names of the records of each version, by its id."""
    names: dict[str, list[Key]] = {}
    for entry in sorted(entries, key=lambda entry: (-entry.modified, entry.key.name)):
        if name := Name.parse(entry.key.name):
            names.setdefault(name.id, []).append(entry.key)
    return names
