"""Finds out by an audit log which bytes of a file were appended by which operation."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.undo import Range, RecordedAppend

_SEPARATORS: Final = (b"", b"\n", b"\r\n")
"""What may stand before an append: no digest proves a separator, so only the end of a line is believed to be one."""


class AppendedRange(NamedTuple):
    """The bytes ``[start:end]`` of a file, with the separator before them, and the append that wrote them."""

    start: int
    end: int
    by: MadeBy


def attributed(data: bytes, start: int, appends: Iterable[RecordedAppend]) -> tuple[list[AppendedRange], bool]:
    """Return the appends that wrote the bytes from ``start`` on, and whether they are all of these bytes.

    An append is believed only if its recorded digest is that of the bytes that stand where it wrote them.
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


def without(data: bytes, ranges: Iterable[Range]) -> bytes:
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
