"""`FileUndo`: the steps that take changes of one file back.

It follows the changes back while they are selected, together with the appends between them. It stops at the first
change or append by another operation. The state at this point is restored, without the bytes that selected operations
appended to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from agent_memory.backend import Backend, ETag
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.reader import ListedRecord
from agent_memory.core.versions.record import Mark
from agent_memory.core.versions.timeline import Change, FileState, Timeline
from agent_memory.core.versions.undo import (
    ROUNDED_SECONDS,
    AppendedRange,
    Range,
    RecordedAppend,
    RecordedAppends,
    Selection,
    Step,
    Undone,
    attribute_appends,
    without_ranges,
)
from agent_memory.errors import FileTooLargeError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_BY_ANOTHER_PROGRAM: Final = "changed since by another program"
_UNVERIFIED: Final = "too large to tell whether another program changed it since"
_NO_LOG: Final = "something was appended, and without an audit log nothing tells by which actor"
_NOT_IN_LOG: Final = "something was appended, and the audit log does not tell by which actor"


class UndoContext(NamedTuple):
    """The facts that all files of one undo share.

    Attributes:
        store: the storage, not a `VersionedStore`.
        run: runs its primitives.
        histories: the records.
        top: the directory whose files are undone.
        selection: the operations to undo.
        appends: the appends that an audit log recorded; None without an audit log.
    """

    store: Backend
    run: Run
    histories: Histories
    top: Key
    selection: Selection
    appends: RecordedAppends | None


class LeftError(Exception):
    """The file stays as it is; the argument is the reason."""


class _Outcome(NamedTuple):
    """The result of an undo for a file.

    Attributes:
        taken: the number of changes that it takes back.
        state: the state that it returns to; None if there is no file.
        ranges: the bytes of this state that it takes out.
        reason: the reason for which selected changes stay; None if none stays.
    """

    taken: int
    state: FileState | None
    ranges: tuple[Range, ...] = ()
    reason: str | None = None

    @property
    def is_change(self) -> bool:
        """Whether it changes the file."""
        return bool(self.taken or self.ranges)


class FileUndo:
    """The undo of one file.

    Args:
        context: the facts of the whole undo.
        timeline: the changes of the file.
        marks: the marks of its renames.
        moved_here: the marks of the renames of directories that gave it this name.

    Attributes:
        steps: the steps.
    """

    def __init__(
        self, context: UndoContext, timeline: Timeline, marks: Sequence[ListedRecord], moved_here: Sequence[Mark]
    ) -> None:
        self.steps: list[Step] = []
        self._context = context
        self._timeline = timeline
        self._marks = marks
        self._moved_here = moved_here
        self._selection = context.selection
        self._contents: dict[tuple[str, str], bytes | None] = {}
        self._etag: ETag | None = timeline.current.snapshot.etag if timeline.current else None

    async def plan(self) -> str | None:
        """Plan the steps; return the reason for which selected changes stay, or None if none stays.

        Raises:
            LeftError: the file stays as it is.
        """
        outcome = await self._outcome(0)
        if outcome.reason and not outcome.is_change:
            outcome = outcome._replace(reason=await self._reason_after_an_undo(outcome.reason))
        if outcome.is_change:
            await self._refuse_foreign_content()
            await self._plan_content(outcome)
        return outcome.reason

    async def _outcome(self, start: int) -> _Outcome:
        """The outcome for the file as it was before its last ``start`` changes."""
        number = start
        while change := await self._timeline.change(number):
            appended, is_all = await self._appended(change.made)
            by_others = [each.by for each in appended if each.by not in self._selection]
            if change.by not in self._selection or by_others or not is_all:
                if number > start and change.made and _is_redacted(change.made):
                    raise LeftError("the version before was redacted")
                mine = tuple((each.start, each.end) for each in appended if each.by in self._selection)
                reason = self._reason_here(change, by_others, is_all)
                if number == start and not mine:
                    reason = reason or await self._reason_before(number, change)
                return _Outcome(number - start, change.made, mine, reason)
            number += 1
        if self._timeline.is_lost:
            raise LeftError("the version before is no longer kept, or cannot be read")
        return _Outcome(number - start, None)

    def _reason_here(self, change: Change, by_others: Sequence[MadeBy | None], is_all: bool) -> str | None:
        """The reason for which a selected change, or append to it, stays where the undo stops; None if none stays."""
        if change.made and not is_all and self._may_have_changed(change.made):
            return _NO_LOG if self._context.appends is None else _NOT_IN_LOG
        if change.by in self._selection and not (change.made and change.made.is_made_by_append):
            return _since(by_others[0] if by_others else None)
        return None

    async def _reason_before(self, number: int, change: Change) -> str | None:
        """The reason for which selected changes before the one where the undo stops stay; None if none stays."""
        appends, earlier = self._context.appends, self._timeline.records_before(change.made)
        appended = [each for each in earlier if each.name.appended == "a"]
        recorded = [each.by for state in appended for each in self._recorded(state.name.id)]
        if any(by in self._selection for by in recorded) or await self._timeline.has_after(number, self._selection):
            return _since(change.by)
        since = self._selection.since
        if any(
            (since is None or each.modified + ROUNDED_SECONDS >= since) and not self._recorded(each.name.id)
            for each in appended
        ):
            return _NO_LOG if appends is None else _NOT_IN_LOG
        if appends is None or self._timeline.is_whole:
            return None
        unversioned = appends.unversioned(self._timeline.path)
        return _NOT_IN_LOG if any(each.by in self._selection for each in unversioned) else None

    def _may_have_changed(self, state: FileState) -> bool:
        """Whether a selected operation may have appended to a state."""
        return self._selection.since is None or state.last_changed >= self._selection.since

    async def _appended(self, state: FileState | None) -> tuple[list[AppendedRange], bool]:
        """The appends to a state, with the one that made it, and whether they are all bytes that were appended."""
        if state is None:
            return [], True
        first = [AppendedRange(0, state.made_size, state.by)] if state.by and state.is_made_by_append else []
        if not state.is_appended:
            return first, True
        recorded = [] if _is_redacted(state) else self._recorded(state.id)
        data = await self._content(state) if recorded else None
        if data is None:
            return first, False
        found, is_all = attribute_appends(data, state.made_size, recorded)
        return [*first, *found], is_all

    def _recorded(self, id_: str) -> Sequence[RecordedAppend]:
        """The recorded appends to a state."""
        appends = self._context.appends
        return () if appends is None else appends.of_version.get(id_, ())

    async def _content(self, state: FileState) -> bytes | None:
        """The content of a state; None if it is too large for one call."""
        name = state.path, state.id
        if name not in self._contents:
            try:
                self._contents[name] = await self._read(state)
            except FileTooLargeError:
                self._contents[name] = None
        return self._contents[name]

    async def _read(self, state: FileState) -> bytes:
        if state.stored:
            return await self._context.histories.content_of(state.stored)
        current = self._timeline.current
        assert current is not None  # noqa: S101 - the state is the current one
        whole = await self._context.run.call(self._context.store.read, current.key, None, None, current.snapshot.etag)
        self._etag = whole.etag  # local disk takes that of a whole read
        return whole.data

    async def _reason_after_an_undo(self, reason: str) -> str | None:
        """The reason for which changes stay after an earlier undo of them; the given reason if there was none."""
        last = await self._timeline.change(0)
        if last is None or await self._timeline.change(1) is None:
            return reason
        earlier = await self._outcome(1)
        is_undone = earlier.is_change and await self._is_as(last.made, earlier)
        return earlier.reason if is_undone else reason

    async def _is_as(self, state: FileState | None, outcome: _Outcome) -> bool:
        """Whether a state has the content of an outcome."""
        if state is None or outcome.state is None:
            return state is outcome.state
        if state.size > outcome.state.size:
            return False
        content, before = await self._content(state), await self._content(outcome.state)
        return content is not None and before is not None and content == without_ranges(before, outcome.ranges)

    async def _refuse_foreign_content(self) -> None:
        current = self._timeline.current
        if current and current.origin.id:
            data = await self._content(FileState.of_current(current))
            if data is None:
                raise LeftError(_UNVERIFIED)
            if not current.origin.is_of(data):
                raise LeftError(_BY_ANOTHER_PROGRAM)

    async def _refuse_renamed(self) -> None:
        read = [await self._context.histories.read_mark(each) for each in self._marks]
        renamed = [mark for mark in read if mark and mark.target == self._timeline.path]
        for mark in (*renamed, *self._moved_here):
            if mark.by not in self._selection:
                raise LeftError(f"renamed since by {mark.by.actor!r}" if mark.by.actor else "renamed since")

    async def _plan_content(self, outcome: _Outcome) -> None:
        path, current, state = self._timeline.path, self._timeline.current, outcome.state
        if state is None:
            if current:
                await self._refuse_renamed()
                self._add(Undone(path, "delete"))
        elif outcome.taken:
            if current and await self._is_as(FileState.of_current(current), outcome):
                return
            await self._plan_step(Undone(path, "restore", state.id), state, outcome)
        else:
            await self._plan_step(Undone(path, "cut"), state, outcome)

    async def _plan_step(self, undone: Undone, state: FileState, outcome: _Outcome) -> None:
        if outcome.ranges:
            data = await self._content(state) or b""
            undone = replace(undone, cut_bytes=len(data) - len(without_ranges(data, outcome.ranges)))
        self._add(undone, outcome.ranges)

    def _add(self, undone: Undone, cut: tuple[Range, ...] = ()) -> None:
        current = self._timeline.current
        state = current.origin.id if current else None
        self.steps.append(Step(undone, self._etag, state, cut))


def _is_redacted(state: FileState) -> bool:
    return state.stored is not None and state.stored.record.reason is not None


def _since(by: MadeBy | None) -> str:
    if by is None:
        return _BY_ANOTHER_PROGRAM
    return f"changed since by {by.actor!r}" if by.actor else "changed since by an operation without an actor"
