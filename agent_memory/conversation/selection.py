"""`MessageSelection`: which messages of a history stay in a compaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from agent_memory.conversation.messages import Message, Skipped, is_system, parse
from agent_memory.conversation.shapes import NO_TIME
from agent_memory.core.results import checked_count
from agent_memory.reading.lines import MAX_LINE


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which messages stay: the last ones, and those that are not older than a time.

    At least one stays: an empty history would be the same state as an earlier empty one, and on object stores a late
    request of that time could then take effect.

    Attributes:
        keep_last: the number of messages.
        since: messages of this time or later stay, in UTC, and in local time for those without a zone; None: this
            selects none.
        system: whether messages of the roles ``system`` and ``developer`` count.
    """

    keep_last: int
    since: tuple[datetime, datetime] | None
    system: bool

    @staticmethod
    def of(keep_last: int | None, older_than: timedelta | None, *, system: bool) -> MessageSelection:
        """Check the arguments of a call.

        Raises:
            TypeError: ``older_than`` is no `timedelta`.
            ValueError: both are None, ``keep_last`` is not a positive whole number, or ``older_than`` is not positive.
        """
        if keep_last is None and older_than is None:
            raise ValueError("give keep_last, older_than, or both: without them no line can be removed")
        if keep_last is not None:
            checked_count("keep_last", keep_last)
        return MessageSelection(keep_last or 1, None if older_than is None else _time_before(older_than), system)

    def end_of_removed(self, history: bytes) -> int:
        """Return the offset of the first line that stays; 0 if all do.

        A line without a message goes with the message before it, at the beginning with the first one. If this selects
        by time, a message without a time goes with the message before it, at the beginning with the first one that has
        a time; if no message has one, all stay.
        """
        rows = [self._row(start, message) for start, message in _messages(history)]
        end = _before_calls(rows, min(self._first_of_last(rows), self._first_recent(rows)))
        return rows[end].start if end else 0

    def _row(self, start: int, message: Message) -> _Row:
        time = None if message.timestamp == NO_TIME else message.timestamp
        is_recent = None if self.since is None or time is None else time >= self.since[time.tzinfo is None]
        ids = (each.get("id") for each in message.tool_calls or () if isinstance(each, Mapping))
        calls = tuple(each for each in ids if isinstance(each, str))
        return _Row(start, self.system or not is_system(message), is_recent, calls, message.tool_call_id)

    def _first_recent(self, rows: list[_Row]) -> int:
        is_first_recent = next((row.is_recent for row in rows if row.is_recent is not None), True)
        if self.since is not None and is_first_recent:
            return 0
        return next((place for place, row in enumerate(rows) if row.is_recent), len(rows))

    def _first_of_last(self, rows: list[_Row]) -> int:
        counted = [place for place, row in enumerate(rows) if row.counts][-self.keep_last :]
        return counted[0] if len(counted) == self.keep_last else 0


class _Row(NamedTuple):
    """A message: the offset of its line, whether it counts and is recent, the ids of its calls and of its answer.

    ``is_recent`` is None without a time, or if no time selects.
    """

    start: int
    counts: bool
    is_recent: bool | None
    calls: tuple[str, ...]
    answers: str | None


def _before_calls(rows: list[_Row], end: int) -> int:
    """Return the greatest place up to ``end`` that lies not between a tool call and its result.

    A call with the same id as an earlier one begins anew. Calls at the end of the history still wait for results.
    """
    made: dict[str, int] = {}
    first = list(range(len(rows)))  # the place of the call that a message answers, or its own place
    for place, row in enumerate(rows):
        if row.answers is not None:
            first[place] = made.get(row.answers, place)
        made |= dict.fromkeys(row.calls, place)
    last = next((place for place in reversed(range(len(rows))) if rows[place].answers is None), 0)
    if rows and not {*rows[last].calls} <= {row.answers for row in rows[last:]}:
        end = min(end, last)
    least = min(first[end:], default=end)
    while least < end:
        end -= 1
        least = min(least, first[end])
    return end


def _messages(history: bytes) -> Iterator[tuple[int, Message]]:
    start = 0
    for line in history.split(b"\n"):
        if len(line) <= MAX_LINE and (message := parse(line)):
            yield start, message
        start += len(line) + 1


def skipped_lines(history: bytes) -> int:
    """Count the lines without a message."""
    skipped = Skipped()
    for line in history.split(b"\n"):
        if len(line) > MAX_LINE:
            skipped.add(line)
        else:
            skipped.parse(line)
    return skipped.count


def _time_before(age: timedelta) -> tuple[datetime, datetime]:
    if not isinstance(age, timedelta):
        raise TypeError(f"older_than must be a timedelta, not {type(age).__name__}")
    if age <= timedelta(0):
        raise ValueError(f"older_than must be positive, not {age}")
    try:
        since = datetime.now(UTC) - age
        return since, since.astimezone().replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise ValueError(f"older_than is too long: {age}") from None
