"""The selection, the steps and the result of an undo, and the appends that an audit log recorded.

`agent_memory.core.versions.undo_plan` finds the steps.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from agent_memory.backend import ETag
from agent_memory.core.actor import Actor
from agent_memory.core.versions.origin import MadeBy, short
from agent_memory.core.versions.record import WHO_LENGTH, digest_of
from agent_memory.errors import without_top

Action: TypeAlias = Literal["restore", "delete", "cut"]
Range: TypeAlias = tuple[int, int]
"""The bytes from the first position up to, but without, the second."""
ROUNDED_SECONDS: Final = 2.0
"""A listing may round times down, on S3 to seconds."""
_SEPARATORS: Final = (b"", b"\n", b"\r\n")
"""The bytes before an append that count as its separator: no digest proves one, so only the end of a line does."""


@dataclass(frozen=True)
class Selection:
    """The operations that are undone: those that have all of the given facts.

    Attributes:
        actor: the actor that they were called for.
        tool_call_id: the tool call that they were part of.
        since: the earliest time of an operation, in POSIX seconds by the storage's clock.
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

    def may_contain(self, who: str, time: float) -> bool:
        """Whether it may contain an operation with these digests (`record.who`), which was made until a time."""
        actor, call = who[:WHO_LENGTH], who[WHO_LENGTH:]
        return (
            (self.actor is None or actor == digest_of(self.actor))
            and (self.tool_call_id is None or call == digest_of(self.tool_call_id))
            and (self.since is None or time + ROUNDED_SECONDS >= self.since)
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
        isinstance(since, bool) or not isinstance(since, int | float) or not abs(since) <= sys.float_info.max
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
        unversioned: the others, of a path: the store kept no versions then.
    """

    of_version: Mapping[str, Sequence[RecordedAppend]]
    unversioned: Callable[[str], Sequence[RecordedAppend]]


@dataclass(frozen=True, slots=True)
class Undone:
    """One step of an undo.

    Attributes:
        path: the file.
        action: "restore": an earlier version was written; "delete": the file was deleted, because it did not exist
            before; "cut": the appended bytes were taken out.
        version: the id of the restored version.
        cut_bytes: the number of appended bytes that were taken out, of the current file or of the restored version.
        etag: the etag of the file before the step; None if it was deleted. It does not count for equality.
    """

    path: str
    action: Action
    version: str | None = None
    cut_bytes: int = 0
    etag: ETag | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Left:
    """A file with changes that were not undone, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of an undo: the steps that were made, and the files that were left."""

    done: tuple[Undone, ...]
    left: tuple[Left, ...]


class Step(NamedTuple):
    """A planned step, for the state of the file that was read.

    Attributes:
        undone: its effect.
        etag: the etag of the current file; None if it is deleted.
        state: the id of its state, "" if it has none; None if it is deleted.
        cut: the ranges of bytes to take out, in order.
    """

    undone: Undone
    etag: ETag | None
    state: str | None
    cut: tuple[Range, ...] = ()

    def below(self, top: str) -> Step:
        """Return it with paths relative to a directory."""
        return self._replace(undone=replace(self.undone, path=without_top(self.undone.path, top)))


class AppendedRange(NamedTuple):
    """The bytes ``[start:end]`` of a file, with the separator before them, and the append that wrote them."""

    start: int
    end: int
    by: MadeBy


def attribute_appends(data: bytes, start: int, appends: Iterable[RecordedAppend]) -> tuple[list[AppendedRange], bool]:
    """Return the appends that wrote the bytes from ``start`` on, and whether they are all of these bytes.

    An append counts only if its recorded digest is that of the bytes at its place.
    """
    by_place: dict[int, list[RecordedAppend]] = defaultdict(list)
    for each in sorted(appends, key=lambda each: each.by.time, reverse=True):
        by_place[each.end - each.size].append(each)
    places = sorted(by_place)
    found: list[AppendedRange] = []
    is_all, at = True, start
    while at < len(data):
        beginnings = (at + len(text) for text in _SEPARATORS if data.startswith(text, at))
        here = (each for place in beginnings for each in by_place.get(place, ()))
        match = next((each for each in here if at < each.end <= len(data) and _is_there(data, each)), None)
        if match is None:
            is_all = False
            later = bisect_right(places, at)
            at = places[later] if later < len(places) else len(data)
        else:
            found.append(AppendedRange(at, match.end, match.by))
            at = match.end
    return found, is_all


def _is_there(data: bytes, append: RecordedAppend) -> bool:
    return append.is_of(hashlib.sha256(data[append.end - append.size : append.end]).hexdigest())


def without_ranges(data: bytes, ranges: Iterable[Range]) -> bytes:
    """Return content without some of its ranges, which are in order.

    If this would join two lines, the end of the line that was taken out stays.
    """
    kept = bytearray()
    at = 0
    for start, end in _joined(ranges):
        kept += data[at:start]
        ending = next((text for text in (b"\r\n", b"\n") if data.endswith(text, start, end)), b"")
        if kept and not kept.endswith(b"\n") and end < len(data) and not data.startswith((b"\n", b"\r\n"), end):
            kept += ending
        at = end
    return bytes(kept + data[at:])


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that follow each other without a gap."""
    joined: list[Range] = []
    for start, end in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined
