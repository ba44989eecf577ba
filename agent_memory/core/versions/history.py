"""Reads the earlier versions of a file: a listing of its records, and the ends of as many of them as are asked for."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Entry, Snapshot, renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import keeps_origins
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.live import read_with_origin
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import (
    LAST_BYTES,
    MOST_FACTS,
    Link,
    Name,
    Record,
    is_link,
    records_of,
    records_of_file,
)
from agent_memory.core.versions.states import Chain, FileVersion, Kept, real
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_log = logging.getLogger("agent_memory")
_PAGE: Final = 1000
_MOST_LINKS: Final = 64
"""The maximum renames that are followed back."""


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
        self._told = False

    async def versions(self, key: Key, limit: int | None, after: str | None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first: the present one, and at most ``limit`` in all.

        ``after`` is the id of a version; only older ones are returned.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        if after is None:
            return (await self.chain(key, limit)).versions[:limit]
        versions = (await self.chain(key)).versions
        ids = [version.id for version in versions]
        if after not in ids:
            self.require_read(self._unreadable)
            raise AgentMemoryFileNotFoundError(f"no version {after!r}", path=key.path)
        start = ids.index(after) + 1
        return versions[start : None if limit is None else start + limit]

    async def chain(self, key: Key, limit: int | None = None) -> Chain:
        """Return the states of a file, at least the newest ``limit``."""
        origin, live = await present(self._store, self._run, key) or (None, None)
        wanted = None if limit is None else max(0, limit - (live is not None))
        names = await self._names(key, origin, wanted)
        kept = await self.read(_newest(names, origin, wanted))
        return Chain(live, origin, real(kept, [origin.id] if origin else ()))

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
        live = await present(self._store, self._run, key)
        if live and version and live[1].id == version and keeps_origins(self._store):
            with suppress(AgentMemoryFileNotFoundError):
                snapshot, text = await read_with_origin(self._store, self._run, key)
                if (found := Origin.parse(text)) and found.id == version:
                    return snapshot.data
        return await self.content_of(_with_content(await self.of_version(key, version, live), key, version))

    async def kept(self, key: Key, version: str) -> Kept:
        """Return the record of an earlier version; raises `AgentMemoryFileNotFoundError` if it has no content."""
        live = await present(self._store, self._run, key)
        return _with_content(await self.of_version(key, version, live), key, version)

    async def of_version(self, key: Key, version: str, live: tuple[Origin | None, FileVersion] | None) -> list[Kept]:
        """Return all records of an earlier version of a file, whose present state is given.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
        """
        names = [each.key for each in await self._names(key, live[0] if live else None) if each.name.is_of(version)]
        if not (found := await self.read(names)):
            self.require_read(self._unreadable)  # the version may be in one of them, or lead through it
            raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
        return found

    async def content_of(self, kept: Kept) -> bytes:
        """Return the content of a record; errors as `content`."""
        if kept.data is not None:
            return kept.data
        return (await self._run.call(self._store.read, kept.key, 0, kept.record.size)).data

    async def _names(self, key: Key, live: Origin | None, wanted: int | None = None) -> list[_Listed]:
        """The names of the records of a file, newest first: those under its name, and those under earlier names.

        Under an earlier name only the histories are taken that go on under the later one, because the earlier name
        may have been used by other files. Earlier names are looked for only while there are fewer than ``wanted``
        states.
        """
        names, links = await self._listed(key.path, wanted)
        places, seen = [(key.path, links)], {key.path}
        for place, its_links in places:  # grows in the loop
            unfinished = _unfinished(names, live)
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
        """The records and the links under one name; no more pages than are needed for ``wanted`` states."""
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
            snapshot = await self._end_of(name, MOST_FACTS)
            try:
                return Link.parse(name, snapshot.data) if snapshot else None
            except ReadError:
                self._left_out.add(name)
                return None

        found = filter(None, await self._run.map(read, list(names), tree_flows.AT_ONCE))
        self._tell()
        return sorted(found, key=lambda link: link.by.time, reverse=True)

    async def read(self, names: Iterable[Key]) -> list[Kept]:
        """Read records, also leftovers; those that are deleted now, damaged or unreadable are left out.

        The storage's failure that is not about one record is raised.
        """
        found = await self._run.map(self._facts, list(names), tree_flows.AT_ONCE)
        self._tell()
        return [each for each in found if each]

    def require_read(self, names: Iterable[Key]) -> None:
        """Raise if the storage failed to read one of these records: an erasing call needs the facts in it."""
        if error := next((self._unreadable[name] for name in names if name in self._unreadable), None):
            raise error

    def unreadable_of_others(self, histories: Container[str]) -> list[Key]:
        """The records that the storage failed to read, without those of some histories, and without links."""
        parsed = [(key, Name.parse(key.name)) for key in self._unreadable]
        return [key for key, name in parsed if name and name.history not in histories]

    def is_left_out(self, key: Key, path: str) -> bool:
        """Whether a record of a file with this path was left out: its directory names its file."""
        return key in self._left_out and key.is_below(records_of_file(self._agent, self._secret, path))

    def _tell(self) -> None:
        """Log once in each operation how many records were left out."""
        if self._left_out and not self._told:
            self._told = True
            first = min(self._left_out).name
            _log.warning(
                "%d records of versions are damaged or unreadable, and left out; one is %a", len(self._left_out), first
            )

    async def live_ids(self, paths: Iterable[str]) -> set[str]:
        """The ids of the present states of some files."""

        async def live(path: str) -> str | None:
            with renewed_deadline(self._run.now()):
                found = await present(self._store, self._run, self.key(path))
            return found[1].id if found else None

        return set(filter(None, await self._run.map(live, list(dict.fromkeys(paths)), tree_flows.AT_ONCE)))

    async def _end_of(self, name: Key, size: int = LAST_BYTES) -> Snapshot | None:
        """As `_end`; None also if the storage fails to read this record, but not others."""
        try:
            with renewed_deadline(self._run.now()):
                return await _end(self._store, self._run, name, size)
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            self._left_out.add(name)
            self._unreadable[name] = error
            return None

    async def _facts(self, name: Key) -> Kept | None:
        if (snapshot := await self._end_of(name)) is None:
            return None
        try:
            record = Record.parse(name, snapshot.data, snapshot.size)
        except ReadError:
            self._left_out.add(name)
            return None
        whole = len(snapshot.data) == snapshot.size
        return Kept(record, name, snapshot.data[: record.size] if whole else None)


def _with_content(records: list[Kept], key: Key, version: str) -> Kept:
    """The best record of a version; raises `AgentMemoryFileNotFoundError` if it has no content."""
    best = next(each for each in real(records) if not each.is_second)
    if best.record.redacted_by:
        raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
    if best.record.reason is not None:
        message = f"a redaction of version {version!r} did not end: call it again"
        raise AgentMemoryFileNotFoundError(message, path=key.path)
    return best


async def present(store: Backend, run: Run, key: Key) -> tuple[Origin | None, FileVersion] | None:
    """Return the present state of a file; None if there is none. Without an origin its id is ""."""
    origin = None
    try:
        asked: object = store
        if keeps_origins(asked):
            snapshot, text = await read_with_origin(asked, run, key, 0, 0)
            size, origin = snapshot.size, Origin.parse(text)
        else:
            size = (await run.call(store.stat, key)).size
    except AgentMemoryFileNotFoundError:
        return None
    known = origin or Origin("", "", 0, None, None, size, "", None)
    appended = max(0, size - known.size)
    return origin, FileVersion(
        known.id, key.path, known.by, None, size, known.previous, known.number, appended_bytes=appended
    )


async def _end(store: Backend, run: Run, name: Key, size: int = LAST_BYTES) -> Snapshot | None:
    """Read the last ``size`` bytes of a record, or all its facts; None if it was deleted at this moment."""
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
    """How many states have these records; a leftover may be one of the live state, which is none of them."""
    return len({name.name.id for name in names}) - 1


def _newest(names: Iterable[_Listed], live: Origin | None, wanted: int | None) -> list[Key]:
    """The records of the newest ``wanted`` earlier states, and of the live one."""
    of_state: dict[str, list[Key]] = {}
    for name in names:
        of_state.setdefault(name.name.id, []).append(name.key)
    if wanted is not None and live and live.id in of_state:
        wanted += 1
    return [key for keys in list(of_state.values())[:wanted] for key in keys]


def _unfinished(names: Iterable[_Listed], live: Origin | None) -> set[str]:
    """The histories whose first version is not among the records: they may have begun under another name."""
    first: dict[str, int] = {live.history: live.number} if live else {}
    for _, name in names:
        first[name.history] = min(name.number, first.get(name.history, name.number))
    return {history for history, number in first.items() if number}
