"""`Plan`: the steps of an undo, file by file, and the files with changes that stay."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from agent_memory.backend import Entry
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.versions.reader import ListedRecord, RecordListing, history_order
from agent_memory.core.versions.record import OF_DIRECTORIES, Mark
from agent_memory.core.versions.states import CurrentFile
from agent_memory.core.versions.timeline import Timeline
from agent_memory.core.versions.undo import ROUNDED_SECONDS, Left, Step
from agent_memory.core.versions.undo_file import FileUndo, LeftError, UndoContext
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import is_at_or_below

CHANGED_MEANWHILE: Final = "changed during the undo"


class _Move(NamedTuple):
    """A rename of a directory, as it moved one file.

    Attributes:
        time: the storage's time.
        mark: its mark.
        place: the digest of the file's new path.
    """

    time: float
    mark: Mark
    place: str


class Plan:
    """The plan of one undo.

    Attributes:
        steps: the steps, file by file.
        left: the files with changes that stay.
    """

    def __init__(self, context: UndoContext) -> None:
        self.steps: list[Step] = []
        self.left: list[Left] = []
        self._context = context
        self._histories = context.histories
        self._names: set[str] = set()
        self._current: dict[str, CurrentFile] = {}
        self._listing = RecordListing(())
        self._moves = defaultdict[str, list[_Move]](list)

    async def make(self) -> Plan:
        """Plan the undo of all files; return this plan.

        Only files and records that were changed since `Selection.since` are read, and the records of a file one after
        the other, until a change that stays; also one of each file of a name if times do not tell which one ended last.
        A step refuses a file that changed in between.
        """
        await self._read_current_files()
        self._listing = RecordListing(await self._histories.names())
        await self._read_moves()
        for path in sorted({*self._current, *await self._deleted_files()}):
            try:
                with renewed_deadline(self._context.run.now()):
                    await self._plan(path)
            except LeftError as left:
                self.left.append(Left(path, str(left)))
            except (ConflictError, AgentMemoryFileNotFoundError):
                self.left.append(Left(path, CHANGED_MEANWHILE))
            except AgentMemoryError as error:
                self.left.append(Left(path, error.args[0]))
        await self._leave_renames()
        self._leave_taken_names()
        return self

    async def _read_current_files(self) -> None:
        """Read the origins of the files that were changed since then."""
        context, since = self._context, self._context.selection.since
        listing = await tree_flows.list_all(context.store, context.run, context.top)
        self._names = {entry.path for entry in listing.entries}

        async def read(entry: Entry) -> CurrentFile | None:
            try:
                found = await self._histories.current(entry.key)
            except AgentMemoryError as error:
                self.left.append(Left(entry.path, error.args[0]))
                return None
            return found and replace(found, modified=entry.modified)

        if context.store.keeps_origins:
            changed = [e for e in listing.entries if since is None or e.modified + ROUNDED_SECONDS >= since]
            found = await context.run.map(read, changed, tree_flows.AT_ONCE)
            self._current = {each.key.path: each for each in found if each}

    async def _read_moves(self) -> None:
        """Read where renames of directories took files."""
        for each in self._listing.marks[OF_DIRECTORIES]:
            if mark := await self._histories.read_mark(each):
                for history, place in mark.files:
                    self._moves[history].append(_Move(each.modified, mark, place))

    async def _deleted_files(self) -> set[str]:
        """The names of files that selected operations may have deleted, or changed before others deleted them."""
        paths = set[str]()
        for records in self._listing.records.values():
            if not any(self._may_contain(each) for each in records):
                continue
            last = {each.name.path: each.name.number for each in sorted(records, key=history_order)}
            ends = [each for each in records if each.name.number == last[each.name.path] and each.name.kind != "r"]
            paths |= {each.record.path for each in await self._histories.read(ends) if each.record.next is None}
        return {path for path in paths - self._names if is_at_or_below(path, self._context.top.path)}

    def _may_contain(self, each: ListedRecord) -> bool:
        """Whether a selected operation may have made or ended a state, or appended to it."""
        selection, appends = self._context.selection, self._context.appends
        if selection.may_contain(each.name.ended_by, each.modified) or (
            selection.since is None and selection.may_contain(each.name.made_by, each.modified)
        ):
            return True
        recorded = appends.of_version.get(each.name.id, ()) if appends else ()
        if each.name.appended == "n" or recorded:
            return any(append.by in selection for append in recorded)
        return selection.since is None or each.modified + ROUNDED_SECONDS >= selection.since

    async def _plan(self, path: str) -> None:
        current = self._current.get(path)
        own = current.origin.history if current else ""
        place, listing = self._histories.place(path), self._listing
        found = await self._histories.files_with(listing, place, own)
        earlier = [listing.records[history] for history in found if not await self._left(history, path)]
        timeline = Timeline(self._histories, path, current, listing.records[own], earlier)
        moved = [move.mark for move in self._moves[own] if move.place == place]
        file = FileUndo(self._context, timeline, listing.marks[own], moved)
        if reason := await file.plan():
            self.left.append(Left(path, reason))
        self.steps += file.steps

    async def _left(self, history: str, path: str) -> bool:
        """Whether a file was renamed from a name, and did not come back: what it had there is its own past.

        The order of renames of one time is unknown. If as many lead from the name as to it, the file is where it was
        before them.
        """
        place = self._histories.place(path)
        here = max((each for each in self._listing.records[history] if each.name.path == place), key=history_order)
        departures = defaultdict[tuple[int, float], int](int)
        for each in self._listing.marks[history]:
            is_of_this = each.name.number > here.name.number or each.name.id == here.name.id
            is_later = is_of_this and history_order(each) >= history_order(here)
            if is_later and (mark := await self._histories.read_mark(each)):
                departures[history_order(each)] += self._departed(path, mark, each.name.path)
        for move in self._moves[history]:
            if move.time > here.modified:
                number = max((number for number, time in departures if time <= move.time), default=here.name.number)
                departures[number, move.time] += self._departed(path, move.mark, move.place)
        has_left = 0
        for _, departed in sorted(departures.items()):
            has_left = min(max(has_left + departed, 0), 1)  # some marks may be those of renames that were not made
        return bool(has_left)

    def _departed(self, path: str, mark: Mark, place: str) -> int:
        """1 if a rename to a place took a file away from a path, -1 if it took it there, else 0."""
        new = mark.new_path(path)
        has_left = new is not None and place == self._histories.place(new)
        return -1 if place == self._histories.place(path) else int(has_left)

    async def _leave_renames(self) -> None:
        """Name the selected renames: the files keep their new names."""
        for marks in self._listing.marks.values():
            for each in marks:
                if self._context.selection.may_contain(each.name.ended_by, each.modified):
                    await self._leave_rename(each)

    async def _leave_rename(self, listed: ListedRecord) -> None:
        mark = await self._histories.read_mark(listed)
        if mark is None or not is_at_or_below(mark.target, self._context.top.path):
            return
        if mark.by in self._context.selection and any(is_at_or_below(name, mark.target) for name in self._names):
            self.left.append(Left(mark.target, f"renamed from {mark.source!r}; an undo leaves the new name"))

    def _leave_taken_names(self) -> None:
        """Order the steps so that each name is free when it is needed; leave the files without such an order."""
        names = _Names(self._names)
        waiting = sorted(self.steps, key=lambda step: step.undone.action != "delete")
        self.steps = []
        while waiting:
            later: list[Step] = []
            for step in waiting:
                if step.undone.path in {each.undone.path for each in later} or names.taken(_needed(step)):
                    later.append(step)
                else:
                    self.steps.append(step)
                    names.make(step)
            if len(later) == len(waiting):
                break
            waiting = later
        reasons = {step.undone.path: names.taken(_needed(step)) for step in reversed(waiting)}
        self.left += [Left(path, reason) for path, reason in reasons.items() if reason]


def _needed(step: Step) -> str | None:
    """The name that has to be free for a step."""
    return step.undone.path if step.undone.action == "restore" and step.etag is None else None


class _Names:
    """The names of the files, as the steps change them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files = set[str]()
        self._directories = Counter[str]()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        self._files.add(path)
        self._directories.update(_above(path))

    def make(self, step: Step) -> None:
        if step.undone.action == "delete":
            self._files.remove(step.undone.path)
            self._directories.subtract(_above(step.undone.path))
        if needed := _needed(step):
            self.add(needed)

    def taken(self, path: str | None) -> str | None:
        """The reason for which a file cannot get a name; None if it can."""
        if path is None:
            return None
        if path in self._files or self._directories[path] > 0:
            return f"{path!r} is taken"
        return next((f"{name!r} is a file" for name in _above(path) if name in self._files), None)


def _above(path: str) -> list[str]:
    """The directories above a file."""
    return [path[: match.start()] for match in re.finditer("/", path)]
