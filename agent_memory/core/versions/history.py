"""Reads the earlier versions of a file: a listing of its records, and the ends of as many of them as are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Snapshot, renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import keeps_origins, read_if_present
from agent_memory.core.versions.live import read_with_origin
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import (
    LAST_BYTES,
    Link,
    Name,
    Record,
    is_link,
    records_of,
    records_of_file,
)
from agent_memory.errors import AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_PAGE: Final = 1000
_MOST_LINKS: Final = 64
"""The maximum renames that are followed back."""


class FileVersion(NamedTuple):
    """One version of a file; `agent_memory.AgentMemory.read_version` returns its content.

    Attributes:
        id: names the version, in this file and under every later name of it; "" for a present file that was written
            while no versions were kept.
        path: the file's name when the version ended; for the present one, its name now.
        made_by: the operation that made it; None if it was made without this package, or before versions were kept.
        ended_by: the operation that replaced or deleted it; None for the present version.
        size: the content's size in bytes, with what was appended.
        previous: the id of the version that it replaced; None for the first one.
        number: the number of changes since the file was created, appends not counted.
    """

    id: str
    path: str
    made_by: MadeBy | None
    ended_by: MadeBy | None
    size: int
    previous: str | None
    number: int


class Kept(NamedTuple):
    """A record in the storage: its facts, its name, and its content if that was read with them."""

    record: Record
    key: Key
    data: bytes | None


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

    async def versions(self, key: Key, limit: int | None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first: the present one, and at most ``limit`` in all."""
        live = await present(self._store, self._run, key)
        found = [live[1]] if live else []
        wanted = None if limit is None else max(0, limit - len(found))
        names = await self._names(key, live[0] if live else None, wanted)
        kept = await self._read(names[:wanted])
        return tuple([*found, *map(_version, _real(kept, live[0] if live else None))][:limit])

    async def content(self, key: Key, version: str) -> bytes:
        """Return the content of an earlier version.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
            FileTooLargeError: it has more bytes than one call may read.
        """
        live = await present(self._store, self._run, key)
        names = [name for name in await self._names(key, live[0] if live else None) if name.name.id == version]
        kept = _real(await self._read(names), None)
        if not kept:
            raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
        found = kept[0]
        if found.data is not None:
            return found.data
        snapshot = await self._run.call(self._store.read, found.key, 0, found.record.size)
        return snapshot.data

    async def _names(self, key: Key, live: Origin | None, wanted: int | None = None) -> list[_Listed]:
        """The names of the records of a file, newest first: those under its name, then those under earlier names.

        Under an earlier name only the histories are taken that go on under the later one, because the earlier name
        may have been used by other files. Earlier names are looked for only while there are fewer than ``wanted``.
        """
        names, links = await self._listed(key.path, wanted)
        place, seen = key.path, {key.path}
        while len(seen) <= _MOST_LINKS and (wanted is None or len(names) < wanted):
            open_histories = _open_histories(names, live)
            link = await self._link_to(place, links) if open_histories else None
            if link is None or link.source + place[len(link.target) :] in seen:
                break
            place = link.source + place[len(link.target) :]
            seen.add(place)
            earlier, links = await self._listed(place, None)
            names += [name for name in earlier if name.name.history in open_histories]
        return names

    async def _listed(self, path: str, wanted: int | None) -> tuple[list[_Listed], list[Key]]:
        """The records and the links under one name; no more pages than are needed for ``wanted`` records."""
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
            if after is None or (wanted is not None and len(records) >= wanted):
                return records, links

    async def _link_to(self, path: str, links: list[Key]) -> Link | None:
        """The latest rename to a path, or to a directory above it."""
        found = list(links)
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            found += (await self._listed(above, None))[1]
        read = [
            Link.parse(key, snapshot.data)
            for key in found
            if (snapshot := await read_if_present(self._store, self._run, key))
        ]
        read = [link for link in read if is_at_or_below(path, link.target)]
        return max(read, key=lambda link: link.time, default=None)

    async def _read(self, names: Iterable[_Listed]) -> list[Kept]:
        found = await self._run.map(self._facts, [name.key for name in names], tree_flows.AT_ONCE)
        return [each for each in found if each]

    async def _facts(self, name: Key) -> Kept | None:
        with renewed_deadline(self._run.now()):
            snapshot = await _end(self._store, self._run, name)
        if snapshot is None:
            return None
        record = Record.parse(name, snapshot.data)
        whole = len(snapshot.data) == snapshot.size
        return Kept(record, name, snapshot.data[: record.size] if whole else None)


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
    known = origin or Origin("", "", 0, None, None, 0, "", None)
    return origin, FileVersion(known.id, key.path, known.by, None, size, known.previous, known.number)


async def _end(store: Backend, run: Run, name: Key) -> Snapshot | None:
    """Read the end of a record, with all its facts; None if it was deleted at this moment."""
    size = LAST_BYTES
    while True:
        try:
            snapshot = await run.call(store.read, name, -size, None)
        except AgentMemoryFileNotFoundError:
            return None
        needed = Record.bytes_of_facts(name, snapshot.data)
        if needed <= len(snapshot.data):
            return snapshot
        if needed > snapshot.size:
            raise ReadError("the record of an earlier version is damaged", path=name.path)
        size = needed


def _open_histories(names: Iterable[_Listed], live: Origin | None) -> set[str]:
    """The histories whose first version is not among the records: they may have begun under another name."""
    first: dict[str, int] = {live.history: live.number} if live else {}
    for _, name in names:
        first[name.history] = min(name.number, first.get(name.history, name.number))
    return {history for history, number in first.items() if number}


async def forget_records(store: Backend, run: Run, agent: str | None, path: str) -> None:
    """Erase the records of a file, or of all files below a path, with the records of renames from or to it."""

    async def names_it(key: Key) -> bool:
        snapshot = await (read_if_present(store, run, key) if is_link(key.name) else _end(store, run, key))
        return snapshot is not None and _names_path(key, snapshot.data, path)

    await tree_flows.forget_each(store, run, records_of(agent), names_it)


def _names_path(key: Key, data: bytes, path: str) -> bool:
    """Whether a record or a link is of a file at or below a path; a damaged one may be of any file."""
    try:
        if is_link(key.name):
            link = Link.parse(key, data)
            return is_at_or_below(link.source, path) or is_at_or_below(link.target, path)
        return is_at_or_below(Record.parse(key, data).path, path)
    except ReadError:
        return True


def _real(kept: list[Kept], live: Origin | None) -> list[Kept]:
    """Leave out leftovers, and keep one record of each state, in the order newest first.

    A state has several records if a change kept it and then lost a race or its process. All are true copies of the
    state as it was at that time, so the longest one has all that was appended; of equal ones, the one whose successor
    exists tells the operation that ended the state. A record of the live state is a leftover.
    """
    existing = {each.record.id for each in kept} | ({live.id} if live else set())
    best: dict[str, Kept] = {}
    for each in kept:
        if live and each.record.id == live.id:
            continue
        other = best.get(each.record.id)
        if other is None or _rank(each, existing) > _rank(other, existing):
            best[each.record.id] = each
    return list(best.values())


def _rank(kept: Kept, existing: set[str]) -> tuple[int, bool]:
    return kept.record.size, kept.record.next in existing


def _version(kept: Kept) -> FileVersion:
    record = kept.record
    return FileVersion(
        record.id, record.path, record.made_by, record.ended_by, record.size, record.previous, record.number
    )
