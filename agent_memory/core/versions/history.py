"""Reads the earlier versions of a file: a listing of its records, and the ends of as many of them as are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Entry, Snapshot, renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import keeps_origins, read_if_present
from agent_memory.core.versions.live import read_with_origin
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import (
    LAST_BYTES,
    Link,
    Name,
    Record,
    is_link,
    records_of,
    records_of_file,
)
from agent_memory.core.versions.states import Chain, FileVersion, Kept, real
from agent_memory.errors import AgentMemoryFileNotFoundError, ReadError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

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
            raise AgentMemoryFileNotFoundError(f"no version {after!r}", path=key.path)
        start = ids.index(after) + 1
        return versions[start : None if limit is None else start + limit]

    async def chain(self, key: Key, limit: int | None = None) -> Chain:
        """Return the states of a file, at least the newest ``limit``."""
        origin, live = await present(self._store, self._run, key) or (None, None)
        wanted = None if limit is None else max(0, limit - (live is not None))
        names = await self._names(key, origin, wanted)
        return Chain(live, origin, real(await self.read([name.key for name in names[:wanted]]), origin))

    async def entries(self) -> tuple[Entry, ...]:
        """List the records and links of all files."""
        return (await tree_flows.list_all(self._store, self._run, records_of(self._agent))).entries

    def key(self, path: str) -> Key:
        """The key of a file that a record names."""
        return (Key.tree() if self._agent is None else Key.agent(self._agent)).join(path)

    async def content(self, key: Key, version: str) -> bytes:
        """Return the content of an earlier version.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
            FileTooLargeError: it has more bytes than one call may read.
        """
        best = real(await self.of_version(key, version), None)[0]
        if best.record.redacted_by:
            raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
        return await self.content_of(best)

    async def of_version(self, key: Key, version: str) -> list[Kept]:
        """Return all records of an earlier version of a file.

        Raises:
            AgentMemoryFileNotFoundError: the file has no version with this id.
        """
        live = await present(self._store, self._run, key)
        names = [name.key for name in await self._names(key, live[0] if live else None) if name.name.id == version]
        if not (found := await self.read(names)):
            raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
        return found

    async def content_of(self, kept: Kept) -> bytes:
        """Return the content of a record; errors as `content`."""
        if kept.data is not None:
            return kept.data
        return (await self._run.call(self._store.read, kept.key, 0, kept.record.size)).data

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
        return next((link for link in await self.read_links(found) if is_at_or_below(path, link.target)), None)

    async def read_links(self, names: Iterable[Key]) -> list[Link]:
        """Read the records of renames; return them the latest first."""

        async def read(name: Key) -> Link | None:
            with renewed_deadline(self._run.now()):
                snapshot = await read_if_present(self._store, self._run, name)
            return Link.parse(name, snapshot.data) if snapshot else None

        found = filter(None, await self._run.map(read, list(names), tree_flows.AT_ONCE))
        return sorted(found, key=lambda link: link.by.time, reverse=True)

    async def read(self, names: Iterable[Key]) -> list[Kept]:
        """Read records; those that are deleted at this moment are left out, and leftovers are not."""
        found = await self._run.map(self._facts, list(names), tree_flows.AT_ONCE)
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
