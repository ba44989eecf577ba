"""Reads the audit log for pages, from its end: bounded in lines and seconds; called in a thread."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from agent_memory.audit import LogLocation, Record
from agent_memory.audit.filtering import EDITED, RecordFilter, time_of
from agent_memory.audit.record import head
from agent_memory.audit.records import has_none_of, lines_of, parsed
from agent_memory.hookspecs import READING

PAGE: Final = 100
"""The records of a page."""
DAYS: Final = 30
"""The days of a picture of the activity."""
_MOST_LINES: Final = 50_000
_SECONDS: Final = 3.0
_FRONT: Final = 400
_WRITTEN: Final = re.compile(rb'","time":"(\d{4}-\d\d-\d\d)T')


class TimelinePage(NamedTuple):
    """Records, the newest first.

    Attributes:
        records: the records.
        looked_at: how many lines of the log were looked at for them.
        next: continues after them, at an older line; "" if there is none, or if no line has a place.
        others: how many lines no writer of the log wrote.
        until: the time of the oldest record that was looked at, in POSIX seconds; None if there was none.
        is_reached: whether the place was found after which the page begins.
        is_whole: whether the log was read to its beginning.
    """

    records: tuple[Record, ...]
    looked_at: int
    next: str
    others: int
    until: float | None
    is_reached: bool
    is_whole: bool


def timeline(location: LogLocation, chosen: RecordFilter, after: str, most: int = PAGE) -> TimelinePage:
    """Read the newest chosen records older than the line ``after``, which is `TimelinePage.next` of an earlier page."""
    timed = _TimedLines(lines_of(location, newest_first=True))
    lines = iter(timed)
    if after and not _skip(lines, after):
        return TimelinePage((), 0, after if timed.is_late else "", 0, None, is_reached=False, is_whole=False)
    found: list[Record] = []
    others = looked_at = 0
    last, until, texts = b"", None, chosen.texts
    for line in lines:
        looked_at += 1
        if texts and has_none_of(line, texts):
            last = line
        elif record := parsed(line):
            last, until = line, time_of(record.record).timestamp()
            facts = record.record if record.is_as_written else {**record.record, EDITED: True}
            if chosen(facts):
                found.append(chosen.plain(facts))
        else:
            others += bool(line)
        if last and (len(found) >= most or looked_at >= _MOST_LINES):
            return TimelinePage(tuple(found), looked_at, _place(last), others, until, is_reached=True, is_whole=False)
    if timed.is_late and after and not looked_at:
        return TimelinePage((), 0, after, 0, None, is_reached=False, is_whole=False)
    place = _place(last) if timed.is_late and last else ""
    return TimelinePage(tuple(found), looked_at, place, others, until, is_reached=True, is_whole=not timed.is_late)


def _skip(lines: Iterator[bytes], after: str) -> bool:
    """Read the lines up to the one with a place, and return whether there is one."""
    writer, _, number = after.partition("-")
    wanted = f'"writer":"{writer}","seq":{number},'.encode(errors="replace")
    return any(wanted in line[:_FRONT] for line in lines)


def _place(line: bytes) -> str:
    found = head(line)
    return f"{found.writer}-{found.seq}" if found else ""


class _TimedLines:
    """The lines that are read in `_SECONDS`, at least one.

    Attributes:
        is_late: whether there were more lines when the time was over.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.is_late = False
        self._lines = lines
        self._ends = time.monotonic() + _SECONDS

    def __iter__(self) -> Iterator[bytes]:
        for number, line in enumerate(self._lines):
            if number and time.monotonic() > self._ends:
                self.is_late = True
                return
            yield line


@dataclass
class Activity:
    """The changes of the last `DAYS` days, as far as they were counted.

    Attributes:
        by_agent: the changes of each agent and day.
        by_actor: the changes of each actor and day; "" is nobody named.
        looked_at: how many lines of the log were looked at.
        is_whole: whether these were all.
    """

    by_agent: dict[str, Counter[date]] = field(default_factory=dict)
    by_actor: dict[str, Counter[date]] = field(default_factory=dict)
    looked_at: int = 0
    is_whole: bool = False

    def of(self, agent: str | None) -> Counter[date]:
        """The changes of each day, of one agent or of all."""
        if agent is not None:
            return self.by_agent.get(agent, Counter())
        return sum(self.by_agent.values(), Counter[date]())


def activity(location: LogLocation, agent: str | None) -> Activity:
    """Count the changes that the log has of an agent, or of all agents."""
    first = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    found = Activity()
    old = str(first - timedelta(days=1)).encode()
    lines = _TimedLines(lines_of(location, newest_first=True))
    for line in lines:
        if found.looked_at >= _MOST_LINES:
            return found
        found.looked_at += 1
        # Clocks differ and logs are merged: newer records may follow an old one. To parse all would take seconds.
        if (written := _WRITTEN.search(line[:_FRONT])) and written[1] < old:
            continue
        if record := parsed(line):
            _count(found, record.record, time_of(record.record).date(), agent, first)
    found.is_whole = not lines.is_late
    return found


def _count(found: Activity, record: Record, day: date, agent: str | None, first: date) -> None:
    changes = record.get("outcome") == "ok" and record.get("operation") not in READING
    name = record.get("agent")
    if changes and name is not None and agent in (None, name) and day >= first:
        found.by_agent.setdefault(name, Counter())[day] += 1
        found.by_actor.setdefault(record.get("actor") or "", Counter())[day] += 1
