"""What an undo takes back, and its result; `agent_memory.core.versions.undo_plan` finds the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from agent_memory.backend import ETag
from agent_memory.core.actor import Actor
from agent_memory.core.versions.origin import MadeBy, short
from agent_memory.errors import without_top

Action: TypeAlias = Literal["restore", "delete", "cut", "rename"]
Range: TypeAlias = tuple[int, int]
"""The bytes from the first position up to, but without, the second."""


@dataclass(frozen=True)
class Selection:
    """The operations that are undone: those that have all of the given facts.

    Attributes:
        actor: the actor that they were called for.
        tool_call_id: the tool call that they were part of.
        since: when the first of them began, in POSIX seconds.
    """

    actor: str | None = None
    tool_call_id: str | None = None
    since: float | None = None

    def __contains__(self, by: object) -> bool:
        return (
            isinstance(by, MadeBy)
            and (self.actor is None or by.actor == short(self.actor))
            and (self.tool_call_id is None or by.tool_call_id == short(self.tool_call_id))
            and (self.since is None or by.time >= self.since)
        )


def checked_selection(actor: str | None, tool_call_id: str | None, since: float | None) -> Selection:
    """Return the selection of an undo.

    Raises:
        TypeError: a fact of the wrong type.
        ValueError: no fact is given, or ``since`` is not a finite number.
    """
    Actor.of(actor, tool_call_id)
    if (actor, tool_call_id, since) == (None, None, None):
        raise ValueError("undo needs an actor, a tool_call_id or a time: without one it would take back everything")
    if since is not None and (
        isinstance(since, bool) or not isinstance(since, int | float) or not math.isfinite(since)
    ):
        raise ValueError(f"since must be a time in POSIX seconds, not {since!r}")
    return Selection(actor, tool_call_id, since)


class RecordedAppend(NamedTuple):
    """One append that an audit log has recorded.

    Attributes:
        by: the operation.
        end: the file's size afterwards, in bytes.
        size: the appended bytes, without a separator.
        is_of: whether content with a given SHA-256 was appended.
    """

    by: MadeBy
    end: int
    size: int
    is_of: Callable[[str], bool]


class RecordedAppends(NamedTuple):
    """The recorded appends.

    Attributes:
        of_version: those to each version, by its id.
        unversioned: the others, by path: the store kept no versions then.
    """

    of_version: Mapping[str, Sequence[RecordedAppend]]
    unversioned: Mapping[str, Sequence[RecordedAppend]]


class Undone(NamedTuple):
    """One step of an undo.

    Attributes:
        path: the file.
        action: "restore": an earlier version was written; "delete": the file was deleted, because it did not exist
            before; "cut": the appended bytes were taken out; "rename": the file has its earlier name again.
        version: the id of the restored version.
        new_path: the earlier name, if it is another one.
        cut_bytes: how many appended bytes were taken out, of the present file or of the restored version.
    """

    path: str
    action: Action
    version: str | None = None
    new_path: str | None = None
    cut_bytes: int = 0


class Left(NamedTuple):
    """A file with changes that were not undone, and why."""

    path: str
    reason: str


class UndoResult(NamedTuple):
    """The result of an undo: the steps that were made, and the files that were left."""

    done: tuple[Undone, ...]
    left: tuple[Left, ...]


class Step(NamedTuple):
    """A planned step, for the state of the file that was read.

    Attributes:
        undone: what it does.
        expected: the etag of the present file; None if it is deleted.
        state: the id of its state, "" if it has none; None if it is deleted.
        cut: the ranges of bytes to take out, in order.
    """

    undone: Undone
    expected: ETag | None
    state: str | None
    cut: tuple[Range, ...] = ()

    def below(self, top: str) -> Step:
        """Return it with paths relative to a directory."""
        new_path = self.undone.new_path
        undone = self.undone._replace(
            path=without_top(self.undone.path, top), new_path=new_path and without_top(new_path, top)
        )
        return self._replace(undone=undone)
