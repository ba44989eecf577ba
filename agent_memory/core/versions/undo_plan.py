"""`Plan`: the steps of an undo, file by file, and the files with changes that stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core.versions.timeline import Timelines
from agent_memory.core.versions.undo import Left, Step
from agent_memory.core.versions.undo_file import FileUndo, LeftError, UndoContext
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import is_at_or_below

CHANGED_MEANWHILE: Final = "changed during the undo"


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
        self._timelines = Timelines(context.store, context.run, context.histories)

    async def make(self) -> Plan:
        """Plan the undo of all files; return this plan."""
        await self._timelines.read(self._context.top)
        self.left += [Left(path, reason) for path, reason in self._timelines.unreadable.items()]
        for path in self._timelines.paths:
            try:
                with renewed_deadline(self._context.run.now()):
                    await self._plan(path)
            except LeftError as left:
                self.left.append(Left(path, str(left)))
            except (ConflictError, AgentMemoryFileNotFoundError):
                self.left.append(Left(path, CHANGED_MEANWHILE))
            except AgentMemoryError as error:
                self.left.append(Left(path, error.args[0]))
        self._leave_moved_directories()
        self._leave_taken_names()
        return self

    async def _plan(self, path: str) -> None:
        timeline = self._timelines.of(path)
        file = FileUndo(self._context, self._timelines, timeline)
        await self._plan_file(file, path)
        if file.moves_away and len(timeline.changes) > timeline.of_latest:
            await self._plan_file(FileUndo(self._context, self._timelines, self._timelines.of_deleted(path)), path)

    async def _plan_file(self, file: FileUndo, path: str) -> None:
        if reason := await file.plan():
            self.left.append(Left(path, reason))
        self.steps += file.steps

    def _leave_moved_directories(self) -> None:
        paths = self._timelines.paths
        for link in self._timelines.links:
            is_mine = link.history is None and link.by in self._context.selection
            if is_mine and any(is_at_or_below(path, link.target) for path in paths):
                self.left.append(Left(link.target, f"a directory that was renamed from {link.source!r}"))

    def _leave_taken_names(self) -> None:
        """Order the steps so that each name is free when it is needed; leave the files without such an order."""
        names = _Names(self._timelines.current)
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
    undone = step.undone
    return undone.new_path or (undone.path if undone.action == "restore" and step.etag is None else None)


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
        if step.undone.action in ("delete", "rename"):
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
