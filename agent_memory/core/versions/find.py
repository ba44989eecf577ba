"""`Histories`: finds the earlier versions of files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from agent_memory.backend import Entry
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.order import lineage, shown
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.reader import ListedRecord, RecordListing, RecordReader
from agent_memory.core.versions.states import CurrentFile, Cursor, FileStates, FileVersion, StoredRecord, current_file
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.key import Key

_READ_AT_A_TIME: Final = 100


class Histories(RecordReader):
    """The earlier versions of one agent's files; the arguments are those of `RecordReader`."""

    async def versions(self, key: Key, limit: int | None, after: Cursor | None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first: the current one, and at most ``limit`` in all.

        With ``after`` only older ones are returned.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
        """
        if after is None:
            return (await self.states(key, limit)).versions[:limit]
        versions = await self._page_after(key, limit, after) or (await self.states(key)).versions
        if (rest := after.rest(versions)) is None:
            self.require_read(self._unreadable)
            raise AgentMemoryFileNotFoundError(f"no version {after.id!r}", path=key.path)
        return tuple(rest[:limit])

    async def _page_after(self, key: Key, limit: int | None, after: Cursor) -> tuple[FileVersion, ...]:
        """A version of the current file's history, and at least ``limit`` older ones; reads no younger record.

        () if it is not in that history, or if the history had other names or several states with one number. () also
        for the current version: a record of it is of a change that was not made.
        """
        current = await self.current(key, whole=True)
        if limit is None or current is None or not (history := current.state.history):
            return ()
        names = [each for each in await self.names(history) if not each.name.is_mark]
        meant = next((each.name for each in names if each.name.is_of(after.id) and after.id != current.state.id), None)
        places = {each.name.path for each in names}
        if meant is None or places != {self.place(key.path)} or _share_numbers(names):
            return ()
        rest = [each for each in names if each.name.number <= meant.number]
        records = await self._of_history(rest, key, current, limit + 1)
        if len(records) <= limit:
            records += await self._of_earlier_files(key, history, limit + 1 - len(records))
        return tuple(each.version for each in records)

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
        for history in await self.files_with(listing, self.place(key.path), without):
            if wanted is None or len(records) < wanted:
                rest = None if wanted is None else wanted - len(records)
                records += await self._of_history(listing.records[history], key, None, rest)
        return records

    async def _of_history(
        self, names: Sequence[ListedRecord], key: Key, current: CurrentFile | None, wanted: int | None
    ) -> list[StoredRecord]:
        """The states of one history that a name shows, at least the newest ``wanted``; ``names`` are its records.

        All are read if states share a number, as those of copies: then numbers do not tell which states are the newest.
        """
        wanted = None if _share_numbers(names) else wanted
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


def _with_content(best: StoredRecord, key: Key, version: str) -> StoredRecord:
    """Return the record of a version; raises `AgentMemoryFileNotFoundError` if it has no content."""
    if best.record.redacted_by:
        raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
    if best.record.reason is not None:
        message = f"a redaction of version {version!r} did not end: call it again"
        raise AgentMemoryFileNotFoundError(message, path=key.path)
    return best


def _share_numbers(names: Sequence[ListedRecord]) -> bool:
    """Whether several states have one number."""
    states = {each.name.id for each in names if not each.name.is_mark}
    return len({each.name.number for each in names if not each.name.is_mark}) < len(states)


def _of_next_numbers(
    names: Sequence[ListedRecord], count: int | None
) -> tuple[Sequence[ListedRecord], Sequence[ListedRecord]]:
    """Split records, latest number first: those of the first ``count`` numbers, and the others."""
    numbers = list(dict.fromkeys(each.name.number for each in names))[:count]
    chosen = set(numbers)
    now = [each for each in names if each.name.number in chosen]
    return now, names[len(now) :]


def _latest_first(names: Iterable[ListedRecord]) -> list[list[ListedRecord]]:
    """The records of each state under each name, in the order of the storage's time."""
    states: dict[tuple[str, str], list[ListedRecord]] = {}
    for each in sorted(names, key=lambda each: (-each.modified, str(each.name))):
        if not each.name.is_mark:
            states.setdefault((each.name.id, each.name.path), []).append(each)
    return list(states.values())
