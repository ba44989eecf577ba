"""Reads the audit log for pages, from its end: bounded in lines and seconds; called in a thread."""

from __future__ import annotations

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


class TimelinePage(NamedTuple):
    """Records, the newest first.

    Attributes:
        records: the records.
        looked_at: how many lines of the log were looked at for them.
        next: continues after them, at an older line; "" at the beginning of the log.
        others: how many lines no writer of the log wrote.
        until: the time of the oldest record that was looked at, in POSIX seconds; None if there was none.
    """

    records: tuple[Record, ...]
    looked_at: int
    next: str
    others: int
    until: float | None


def timeline(location: LogLocation, chosen: RecordFilter, after: str, most: int = PAGE) -> TimelinePage:
    """Read the newest chosen records older than the line ``after``, which is `TimelinePage.next` of an earlier page."""
    found: list[Record] = []
    others = looked_at = 0
    until, texts = None, chosen.texts
    for line in _in_time(_older(lines_of(location, newest_first=True), after)):
        looked_at += 1
        if texts and has_none_of(line, texts):
            if looked_at >= _MOST_LINES:
                return TimelinePage(tuple(found), looked_at, _place(line) or "", others, until)
            continue
        if (record := parsed(line)) is None:
            others += bool(line)
            continue
        until = time_of(record.record).timestamp()
        facts = record.record if record.is_as_written else {**record.record, EDITED: True}
        if chosen(facts):
            found.append(chosen.plain(facts))
        if (len(found) >= most or looked_at >= _MOST_LINES) and (place := _place(line)):
            return TimelinePage(tuple(found), looked_at, place, others, until)
    return TimelinePage(tuple(found), looked_at, "", others, until)


def _older(lines: Iterator[bytes], after: str) -> Iterator[bytes]:
    """The lines after the one with a place; all lines if no place is given."""
    if after:
        writer, _, number = after.partition("-")
        wanted = f'"writer":"{writer}","seq":{number},'.encode(errors="replace")
        for line in lines:
            if wanted in line[:_FRONT]:
                break
    return lines


def _place(line: bytes) -> str | None:
    found = head(line)
    return f"{found.writer}-{found.seq}" if found else None


def _in_time(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines that are read in `_SECONDS`, at least one."""
    until = time.monotonic() + _SECONDS
    for line in lines:
        yield line
        if time.monotonic() > until:
            return


@dataclass
class Activity:
    """The changes of the last `DAYS` days, as far as they were counted.

    Attributes:
        by_agent: the changes of each agent and day.
        by_actor: the changes of each actor.
        since: the first day that was counted to its end.
        is_whole: whether all days were.
    """

    by_agent: dict[str, Counter[date]] = field(default_factory=dict)
    by_actor: Counter[str] = field(default_factory=Counter)
    since: date = date.min
    is_whole: bool = True

    def of(self, agent: str | None) -> Counter[date]:
        """The changes of each day, of one agent or of all."""
        if agent is not None:
            return self.by_agent.get(agent, Counter())
        return sum(self.by_agent.values(), Counter[date]())


def activity(location: LogLocation, agent: str | None) -> Activity:
    """Count the changes that the log has of an agent, or of all agents."""
    first = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    found = Activity(since=first, is_whole=False)
    for looked_at, line in enumerate(_in_time(lines_of(location, newest_first=True))):
        record = parsed(line)
        if record is None:
            continue
        day = time_of(record.record).date()
        if day < first - timedelta(days=1) or looked_at > _MOST_LINES:
            found.is_whole = looked_at <= _MOST_LINES
            break
        found.since = max(day, first)
        _count(found, record.record, day, agent, first)
    else:
        found.is_whole = True
    if found.is_whole:
        found.since = first
    return found


def _count(found: Activity, record: Record, day: date, agent: str | None, first: date) -> None:
    changes = record.get("outcome") == "ok" and record.get("operation") not in READING
    name = record.get("agent")
    if changes and name is not None and agent in (None, name) and day >= first:
        found.by_agent.setdefault(name, Counter())[day] += 1
        found.by_actor[record.get("actor") or "nobody named"] += 1
