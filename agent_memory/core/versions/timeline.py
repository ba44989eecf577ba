"""`Timeline`: the changes of the file with a name, and of the earlier files with this name, the latest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Entry
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.record import Link, Name, is_link
from agent_memory.core.versions.states import CurrentFile, StoredRecord, one_per_state, read_current
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_SKEW_SECONDS: Final = 3600.0
"""The maximum difference between the storage's clock and the clocks of the callers, in seconds."""


class FileState(NamedTuple):
    """One state of a file.

    Attributes:
        id: its id; "" for a current file without an origin.
        previous: the id of the state before; None for the first one.
        by: the operation that made it; None if unknown.
        path: the file's name at the end of the state.
        made_size: the size in bytes when it was made.
        size: the size in bytes with the appended bytes.
        last_changed: nothing was appended after this time, in POSIX seconds.
        stored: its record; None for the current file.
    """

    id: str
    previous: str | None
    by: MadeBy | None
    path: str
    made_size: int
    size: int
    last_changed: float
    stored: StoredRecord | None

    @property
    def is_appended(self) -> bool:
        """Whether bytes were appended after it was made."""
        return self.size > self.made_size

    @property
    def is_made_by_append(self) -> bool:
        """Whether it was made by an append that created the file."""
        return self.by is not None and self.by.operation == "append" and self.previous is None

    @staticmethod
    def of_record(stored: StoredRecord) -> FileState:
        """Return the state that a record describes."""
        record = stored.record
        return FileState(
            stored.version_id, record.previous, record.made_by, record.path, record.made_size, record.size,
            record.ended_by.time, stored,
        )  # fmt: skip

    @staticmethod
    def of_current(file: CurrentFile) -> FileState:
        """Return the current state of a file."""
        origin, size, last_changed = file.origin, file.snapshot.size, file.modified + _SKEW_SECONDS
        return FileState(origin.id, origin.previous, origin.by, file.key.path, origin.size, size, last_changed, None)


class Change(NamedTuple):
    """A change of a file that made a new state.

    Attributes:
        by: the operation; None if unknown.
        made: the new state; None if the file was deleted.
        before: the state before; None if there was no file.
        is_known: whether the state before is known.
    """

    by: MadeBy | None
    made: FileState | None
    before: FileState | None
    is_known: bool = True


class Rename(NamedTuple):
    """A rename of the file, and the number of changes that were made after it."""

    link: Link
    later_changes: int


class Timeline(NamedTuple):
    """The changes and renames of the file with a name, and of the earlier files with this name, the latest first.

    Attributes:
        path: the name.
        current: the current file; None if it is deleted.
        changes: the changes of all these files.
        renames: the renames of the latest of them.
        of_latest: the number of changes of the latest file.
        moves: the operations that renamed a directory above it since it was created.
    """

    path: str
    current: CurrentFile | None
    changes: Sequence[Change]
    renames: Sequence[Rename]
    of_latest: int
    moves: Sequence[MadeBy]


class Timelines:
    """The timelines of all names below a directory.

    Args:
        store: the storage, not a `VersionedStore`.
        run: runs its primitives.
        histories: the records.

    Attributes:
        links: the renames to names below the directory, the latest first.
        current: the current files, by name.
        unreadable: the names that cannot be read, with the reason.
    """

    def __init__(self, store: Backend, run: Run, histories: Histories) -> None:
        self.links: list[Link] = []
        self.current: dict[str, CurrentFile] = {}
        self.unreadable: dict[str, str] = {}
        self._store = store
        self._run = run
        self._histories = histories
        self._of_history: dict[str, list[FileState]] = {}
        self._deleted: dict[str, list[tuple[str, StoredRecord]]] = defaultdict(list)
        self._linked: dict[str | None, list[Link]] = defaultdict(list)

    @property
    def paths(self) -> list[str]:
        """The names of the current and of the deleted files."""
        return sorted({*self.current, *self._deleted} - {*self.unreadable})

    async def read(self, top: Key) -> None:
        """Read the current files, then the records and the renames; a step refuses a file that changed in between."""
        listing = await tree_flows.list_all(self._store, self._run, top)
        found = await self._run.map(self._read_current, listing.entries, tree_flows.AT_ONCE)
        self.current = {each.key.path: each for each in found if each}
        entries = await self._histories.entries()
        links = await self._histories.read_links([entry.key for entry in entries if is_link(entry.key.name)])
        self.links = [link for link in links if is_at_or_below(link.target, top.path)]
        for link in self.links:
            self._linked[link.history].append(link)
        current_ids = {each.origin.id for each in self.current.values()}
        current_histories = {each.origin.history for each in self.current.values()}
        stored = await self._histories.read([entry.key for entry in entries if Name.parse(entry.key.name)])
        grouped: dict[str, list[StoredRecord]] = defaultdict(list)
        for each in sorted(stored, key=lambda each: each.key.name):
            grouped[each.record.history].append(each)
        for history, those in sorted(grouped.items()):
            records = one_per_state(those, current_ids)
            self._of_history[history] = [FileState.of_record(each) for each in records]
            is_deleted = records and history not in current_histories
            if is_deleted and is_at_or_below(records[0].record.path, top.path):
                self._deleted[records[0].record.path].append((history, records[0]))
        for files in self._deleted.values():
            files.sort(key=lambda file: file[1].record.ended_by.time, reverse=True)

    async def _read_current(self, entry: Entry) -> CurrentFile | None:
        if not self._store.keeps_origins:
            return None
        try:
            with renewed_deadline(self._run.now()):
                found = await read_current(self._store, self._run, entry.key, 0, 0)
        except AgentMemoryFileNotFoundError:
            return None
        except AgentMemoryError as error:
            self.unreadable[entry.key.path] = error.args[0]
            return None
        return replace(found, modified=entry.modified)

    def of(self, path: str) -> Timeline:
        """The timeline of one name."""
        return self._of(path, self.current.get(path))

    def of_deleted(self, path: str) -> Timeline:
        """The timeline of the deleted files with one name."""
        return self._of(path, None)

    def _of(self, path: str, current: CurrentFile | None) -> Timeline:
        changes: list[Change] = []
        renames: list[Rename] = []
        of_latest = 0
        for history, deletion, states in self._files_with_name(path, current):
            if not changes:
                renames = list(_renames(states, self._linked.get(history, ()), 1 if deletion else 0))
            changes += [deletion] if deletion else []
            changes += _changes(states)
            of_latest = of_latest or len(changes)
        return Timeline(path, current, changes, renames, of_latest, self._moves(path, changes[of_latest - 1].by))

    def _moves(self, path: str, created_by: MadeBy | None) -> list[MadeBy]:
        since = created_by.time if created_by else 0.0
        directories = [link for link in self._linked.get(None, ()) if is_at_or_below(path, link.target)]
        return [link.by for link in directories if link.by.time >= since]

    def _files_with_name(
        self, path: str, current: CurrentFile | None
    ) -> Iterator[tuple[str, Change | None, list[FileState]]]:
        """The history, the deletion and the states of each file that has or had a name, the latest first."""
        if current:
            history = current.origin.history
            yield history, None, _chain(FileState.of_current(current), self._of_history.get(history, ()))
        for history, last in self._deleted.get(path, ()):
            states = self._of_history[history]
            is_known = last.record.next is None  # otherwise its successor is missing
            by = last.record.ended_by if is_known else None
            yield history, Change(by, None, states[0], is_known), _chain(states[0], states[1:])


def _chain(last: FileState, states: Iterable[FileState]) -> list[FileState]:
    """A state and the states before it, as far as they are known."""
    chain = [last]
    for state in states:
        if state.id == chain[-1].previous:
            chain.append(state)
    return chain


def _changes(states: Sequence[FileState]) -> list[Change]:
    """The changes that made a file's states, as far as each state before is known."""
    changes = [Change(made.by, made, before) for made, before in pairwise(states)]
    return [*changes, Change(states[-1].by, states[-1], None, is_known=bool(states[-1].id and not states[-1].previous))]


def _renames(states: Sequence[FileState], links: Sequence[Link], later_changes: int) -> Iterator[Rename]:
    """The renames of a file, found from its last name back; ``links`` are of its history, the latest first.

    A record of a rename that failed leads from no name that the file had afterwards, and is left out.
    """
    rest = list(links)
    for number, state in enumerate(states):
        place = state.path
        began_as = states[number + 1].path if number + 1 < len(states) else None
        while link := next((each for each in rest if each.target == place), None):
            is_of_state_before = state.by is None or link.by.time < state.by.time
            if place == began_as and is_of_state_before:
                break
            yield Rename(link, later_changes + number)
            place = link.source
            rest = rest[rest.index(link) + 1 :]
