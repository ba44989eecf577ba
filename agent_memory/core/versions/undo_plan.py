"""`Plan`: the steps that take the changes of an undo back, file by file, and the files that stay as they are.

The changes of a file form a chain: each state names the operation that made it and the state before it. An undo follows
the chain back while the operations are among those to undo, and restores the state that it reaches. A later change by
another operation stops it: the file is left. Appends make no state, so only an audit log tells their actors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from agent_memory.backend import Backend, Entry, Snapshot, Version, renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import keeps_origins
from agent_memory.core.versions.attribution import attributed, without
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.live import read_with_origin
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import Link, Name, is_link
from agent_memory.core.versions.states import Kept, real
from agent_memory.core.versions.undo import Appends, Left, Selection, Step, Undone
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_SKEW_SECONDS: Final = 3600.0
"""How far the storage's clock and the clocks of the callers may differ."""
CHANGED_MEANWHILE: Final = "changed during the undo"
_BY_ANOTHER_PROGRAM: Final = "changed since by another program"
_NO_LOG: Final = "something was appended, and without an audit log nothing tells by which actor"
_NOT_IN_LOG: Final = "something was appended, and the audit log does not tell by which actor"


class _Present(NamedTuple):
    """A present file, without its content."""

    key: Key
    version: Version
    size: int
    modified: float
    origin: Origin | None


class _Change(NamedTuple):
    """A change of a file: the operation, and the state before it; None if there was no file."""

    by: MadeBy | None
    before: Kept | None
    is_known: bool = True


class _LeftError(Exception):
    """The file is left, for the reason that is the argument."""


class Plan:
    """The plan of one undo.

    Args:
        store: the storage, not a `VersionedStore`.
        run: runs its primitives.
        histories: the records.
        selection: the operations to undo.
        appends: the appends that an audit log recorded; None without an audit log.

    Attributes:
        steps: the steps, file by file.
        left: the files with changes that stay.
    """

    def __init__(
        self, store: Backend, run: Run, histories: Histories, selection: Selection, appends: Appends | None
    ) -> None:
        self.steps: list[Step] = []
        self.left: list[Left] = []
        self._store = store
        self._run = run
        self._histories = histories
        self._selection = selection
        self._appends = appends
        self._files: dict[str, _Present] = {}
        self._of_history: dict[str, list[Kept]] = {}
        self._deleted: dict[str, list[list[Kept]]] = defaultdict(list)
        self._links: list[Link] = []

    async def make(self, top: Key) -> Plan:
        """Plan the undo for all files below a directory; return this plan."""
        await self._read(top)
        for path in sorted({*self._files, *self._deleted}):
            try:
                with renewed_deadline(self._run.now()):
                    await self._plan(path)
            except _LeftError as left:
                self.left.append(Left(path, str(left)))
            except (ConflictError, AgentMemoryFileNotFoundError):
                self.left.append(Left(path, CHANGED_MEANWHILE))
        self._leave_moved_directories()
        return self

    def _leave_moved_directories(self) -> None:
        moved = [link for link in self._links if link.history is None and link.by in self._selection]
        for link in moved:
            if any(is_at_or_below(path, link.target) for path in self._files):
                self.left.append(Left(link.target, f"a directory that was renamed from {link.source!r}"))

    async def _read(self, top: Key) -> None:
        entries = await self._histories.entries()
        links = await self._histories.read_links([entry.key for entry in entries if is_link(entry.key.name)])
        self._links = [link for link in links if is_at_or_below(link.target, top.path)]
        listing = await tree_flows.list_all(self._store, self._run, top)
        found = await self._run.map(self._present, listing.entries, tree_flows.AT_ONCE)
        self._files = {each.key.path: each for each in found if each}
        origins = {each.origin.history: each.origin for each in self._files.values() if each.origin}
        kept = await self._histories.read([entry.key for entry in entries if Name.parse(entry.key.name)])
        grouped: dict[str, list[Kept]] = defaultdict(list)
        for each in sorted(kept, key=lambda each: each.key.name):
            grouped[each.record.history].append(each)
        for history, those in sorted(grouped.items()):
            states = self._of_history[history] = real(those, origins.get(history))
            if states and history not in origins and is_at_or_below(states[0].record.path, top.path):
                self._deleted[states[0].record.path].append(states)

    async def _present(self, entry: Entry) -> _Present | None:
        asked: object = self._store
        if not keeps_origins(asked):
            return None
        try:
            with renewed_deadline(self._run.now()):
                snapshot, text = await read_with_origin(asked, self._run, entry.key, 0, 0)
        except AgentMemoryFileNotFoundError:
            return None
        return _Present(entry.key, snapshot.version, snapshot.size, entry.modified, Origin.parse(text))

    async def _plan(self, path: str) -> None:
        present = self._files.get(path)
        target = self._target(path)
        whole = await self._whole(present) if present and (target or self._may_be_appended(present)) else None
        if present and present.origin and self._plan_appended(present, present.origin, target, whole):
            return
        if target:
            await self._plan_target(path, present, target, whole)
        if present and present.origin and not (target and target.before is None):
            self._plan_rename(present, present.origin)

    def _target(self, path: str) -> _Change | None:
        """The earliest change of the last ones that are all to be undone; None if there is none.

        Raises:
            _LeftError: another operation changed the file after a change that is to be undone.
        """
        changes = self._changes(path)
        target = None
        for change in changes:
            if change.by not in self._selection:
                if target is None and any(each.by in self._selection for each in changes):
                    raise _LeftError(_since(change.by))
                break
            target = change
            if not change.is_known:
                raise _LeftError("the version before is no longer kept")
            if change.before and change.before.record.redacted_by:
                raise _LeftError("the version before was redacted")
        return target

    def _changes(self, path: str) -> Iterator[_Change]:
        """The changes of a file, and of earlier files with its name, the latest first."""
        if present := self._files.get(path):
            if (origin := present.origin) is None:
                yield _Change(None, None, is_known=False)
            else:
                yield from _chain(origin.by, origin.previous, self._of_history.get(origin.history, ()))
        for states in self._deleted.get(path, ()):
            last = states[0].record
            yield _Change(last.ended_by, states[0]) if last.next is None else _Change(None, None, is_known=False)
            yield from _chain(last.made_by, last.previous, states[1:])

    async def _plan_target(self, path: str, present: _Present | None, target: _Change, whole: Snapshot | None) -> None:
        version = whole.version if whole else present and present.version  # local disk takes that of a whole read
        if target.before is None:
            if present:
                self.steps.append(Step(Undone(path, "delete"), version))
            return
        is_as_large = whole is not None and whole.size == target.before.record.size
        if whole and is_as_large and whole.data == await self._histories.content_of(target.before):
            return
        self.steps.append(Step(Undone(path, "restore", target.before.record.id), version))

    def _plan_appended(self, present: _Present, origin: Origin, target: _Change | None, whole: Snapshot | None) -> bool:
        """Plan for what was appended to the present state; return whether the file needs no other step.

        Raises:
            _LeftError: it has appends that are not to be undone, over a state that is.
        """
        if not target and not self._may_be_appended(present):
            return False
        if whole is not None and not origin.is_of(whole.data):
            raise _LeftError(_BY_ANOTHER_PROGRAM)
        if present.size == origin.size:
            return False
        if self._appends is None or whole is None:
            raise _LeftError(_NO_LOG if self._appends is None else _NOT_IN_LOG)
        since = origin.by.time if origin.by else 0.0
        appends = (each for each in self._appends.get(present.key.path, ()) if each.by.time >= since)
        found, is_all = attributed(whole.data, origin.size, appends)
        mine = [(each.start, each.end) for each in found if each.by in self._selection]
        if target and is_all and len(mine) == len(found):
            return False
        if target and (target.before or not is_all or _is_made_otherwise(origin)):
            raise _LeftError(_since(next((e.by for e in found if e.by not in self._selection), None)))
        if target:
            mine.insert(0, (0, origin.size))  # the first append made the file
        if mine:
            path = present.key.path
            self.steps.append(Step(Undone(path, "cut"), whole.version, without(whole.data, mine)))
        if not is_all:
            raise _LeftError(_NOT_IN_LOG)
        return bool(mine)

    def _may_be_appended(self, present: _Present) -> bool:
        """Whether an operation that is to be undone may have appended to a file."""
        if present.origin is None or present.size == present.origin.size:
            return False
        since = self._selection.since
        return since is None or present.modified + _SKEW_SECONDS >= since

    async def _whole(self, present: _Present) -> Snapshot | None:
        """The file in the state that was found; None if it is too large for one call."""
        try:
            return await self._run.call(self._store.read, present.key, None, None, present.version)
        except FileTooLargeError:
            return None

    def _plan_rename(self, present: _Present, origin: Origin) -> None:
        path = present.key.path
        link = next((each for each in self._links if each.target == path and each.history == origin.history), None)
        if link is None or link.by not in self._selection:
            return
        last = next(iter(self._of_history.get(origin.history, ())), None)
        if origin.by not in self._selection and last and last.record.path == path:
            raise _LeftError(f"renamed from {link.source!r}, and {_since(origin.by)}")
        self.steps.append(Step(Undone(path, "rename", new_path=link.source), present.version))


def _chain(by: MadeBy | None, previous: str | None, states: Sequence[Kept]) -> Iterator[_Change]:
    """The changes that made a state and the states before it."""
    for state in states:
        if state.record.id != previous:
            break
        yield _Change(by, state)
        by, previous = state.record.made_by, state.record.previous
    yield _Change(by, None, is_known=previous is None)


def _is_made_otherwise(origin: Origin) -> bool:
    """Whether a state was not made by an append that created the file."""
    return origin.by is None or origin.by.operation != "append"


def _since(by: MadeBy | None) -> str:
    if by is None:
        return _BY_ANOTHER_PROGRAM
    return f"changed since by {by.actor!r}" if by.actor else "changed since by an operation without an actor"
