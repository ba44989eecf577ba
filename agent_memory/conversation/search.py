"""Search of a history in one pass; a line that is certain not to match is not parsed.

The result is the same as if every line were parsed, every message compared with the query, and the messages before
and after each match added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from agent_memory.conversation.messages import Message, Skipped, parse
from agent_memory.conversation.shapes import NO_TIME
from agent_memory.reading.lines import forwards
from agent_memory.reading.reader import Reader

SEARCHABLE_ROLES: Final = ("user", "assistant")
_SHOWN = 300
_SHOWN_OF_A_NAME = 100
_ESCAPED: Final = re.compile(r'["\\/\x00-\x1f]')
"""The characters that JSON may escape in another way than by their number."""
_PLAIN = r'[^"\\\x00-\x1f]*'
_TEXT = rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{{4}}){_PLAIN})*"'
_DAY = r"[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"  # later days are left to the parser
_TIME = rf"{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{6}})?(?:\+00:00)?"
_USUAL: Final = re.compile(
    rf'\{{"role": "[a-z]+", "content": {_TEXT}, "timestamp": "({_TIME})"'
    rf'(?:, "(?:tool_call_id|reasoning_content|channel|sender_id)": {_TEXT})*\}}'
)
"""A line in the form that this package writes, which holds a message; its group is the time."""


@dataclass(slots=True)
class Match:
    """A matching message, and its neighbours of any role."""

    before: Message | None
    hit: Message
    after: Message | None = None


class Matches(list[Match]):
    """Matches, the earliest first.

    Attributes:
        skipped: the number of damaged lines, which hold no message, among the lines that the search read.
    """

    def __init__(self, matches: Sequence[Match] = (), skipped: int = 0) -> None:
        super().__init__(matches)
        self.skipped = skipped


def _folded(text: str) -> str:
    """Replace the sigma of a word's end: in a line, the letter of an escape may stand beside the word."""
    return text.replace("\u03c2", "\u03c3")


class HistorySearch:
    """One search of a history.

    Args:
        query: the text that a message's content must contain, ignoring case.
        since: POSIX seconds; older messages, and those without a time, count as absent. None: all messages.
        max_results: the most matches, the earliest first.
        skip: how many matches to skip first.
        is_cut: keep no more of each message than `formatted` shows.
    """

    def __init__(
        self,
        query: str,
        *,
        since: float | None = None,
        max_results: int = 10,
        skip: int = 0,
        is_cut: bool = False,
    ) -> None:
        self._query = query.lower()
        self._literal = _folded(max(_ESCAPED.split(self._query), key=len))
        self._since = since
        self._max_results = max_results
        self._skip = skip
        self._is_cut = is_cut
        self._to_skip = skip
        self._last = b""
        self._matches: list[Match] = []
        self._awaits_after = False

    async def run(self, reader: Reader) -> Matches:
        """The matches; pass this method to `agent_memory.AgentMemory.scan`."""
        self._matches, self._awaits_after, self._to_skip, self._last = [], False, self._skip, b""
        skipped = Skipped()
        if not self._query:  # it would be in every message
            return Matches()
        async for lines in forwards(reader):
            if lines.too_long:
                skipped.add(lines.too_long)
            for line in lines.data.split(b"\n"):
                self._take(line, skipped)
            if self._is_full() and not self._awaits_after:
                break
        return Matches(self._matches, skipped.count)

    def _take(self, line: bytes, skipped: Skipped) -> None:
        usual = _usual(line)
        if usual and not self._awaits_after and (self._is_full() or not self._could_match(usual.string)):
            is_seen = self._is_since(datetime.fromisoformat(usual[1]))
        else:
            message = skipped.parse(line)
            is_seen = message is not None and self._is_since(message.timestamp)
            if message and is_seen:
                self._take_message(message)
        if is_seen:
            self._last = line

    def _take_message(self, message: Message) -> None:
        if self._awaits_after:
            self._matches[-1].after = self._kept(message)
            self._awaits_after = False
        if self._is_full() or not (_is_searchable(message) and self._query in message.content.lower()):
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        before = parse(self._last)
        self._matches.append(Match(before and self._kept(before), self._kept(message)))
        self._awaits_after = True

    def _could_match(self, line: str) -> bool:
        """Whether a message can match: its line has the query's longest part without escapes, or escapes by number."""
        return self._literal in _folded(line.lower()) or "\\u" in line

    def _is_full(self) -> bool:
        return len(self._matches) >= self._max_results

    def _is_since(self, time: datetime) -> bool:
        if self._since is None:
            return True
        try:
            return time.timestamp() >= self._since
        except (OverflowError, ValueError, OSError):
            return False  # a year outside the platform's range

    def _kept(self, message: Message) -> Message:
        return _cut(message) if self._is_cut else message


def _usual(line: bytes) -> re.Match[str] | None:
    try:
        return _USUAL.fullmatch(line.decode())
    except UnicodeDecodeError:
        return None


def _cut(message: Message) -> Message:
    """Cut a message to the parts that `formatted` shows, with shortened names."""
    channel, sender = (name and name[:_SHOWN_OF_A_NAME] for name in (message.channel, message.sender_id))
    content = message.content[: _SHOWN + 1]  # one character more, so that `formatted` still marks it as longer
    return Message(message.role, content, message.timestamp, channel=channel, sender_id=sender)


def formatted(matches: list[Match], first: int = 1) -> str:
    """Format the matches for a model, numbered from ``first``."""
    rows: list[str] = []
    for number, match in enumerate(matches, first):
        hit = match.hit
        where = f"[{hit.channel or 'unknown'} / {hit.sender_id or 'unknown'}]"
        time = "no time" if hit.timestamp == NO_TIME else f"{hit.timestamp:%Y-%m-%d %H:%M}"
        rows += [f"## Match {number} — {where} | {time}", ""]
        around = (message for message in (match.before, hit, match.after) if message)
        rows += [_row(message, message is hit) for message in around if _is_searchable(message)]
        rows.append("---")
    return "\n".join(rows)


def _row(message: Message, is_hit: bool) -> str:
    content = message.content if len(message.content) <= _SHOWN else message.content[:_SHOWN] + "..."
    text = f"{message.role.upper()}: {content}"
    return f"**{text}**" if is_hit else text


def _is_searchable(message: Message) -> bool:
    return message.role in SEARCHABLE_ROLES and bool(message.content)
