"""Search of a history in one pass; blocks that cannot contain the query are not parsed.

The result is the same as if every line were parsed, every message compared with the query, and the messages before
and after each match added; only lines that cannot change this result are not parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent_memory.conversation.damage import count_damaged
from agent_memory.conversation.messages import Message, Skipped, parse
from agent_memory.reading.lines import BLOCK, Lines, backwards, forwards
from agent_memory.reading.prefilter import SearchPrefilter
from agent_memory.reading.reader import Reader

SEARCHABLE_ROLES: Final = ("user", "assistant")
_SHOWN = 300
_SHOWN_OF_A_NAME = 100


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


class HistorySearch:
    """One search of a history.

    Args:
        query: the text that a message's content must contain, ignoring case.
        since: POSIX seconds; older messages count as absent. None: all messages.
        max_results: the most matches, the earliest first.
        block: bytes to read at once.
        skip: how many matches to skip first.
        is_cut: keep no more of each message than `formatted` shows.
    """

    def __init__(
        self,
        query: str,
        *,
        since: float | None = None,
        max_results: int = 10,
        block: int = BLOCK,
        skip: int = 0,
        is_cut: bool = False,
    ) -> None:
        self._query = query.lower()
        self._since = since
        self._max_results = max_results
        self._block = block
        self._skip = skip
        self._to_skip = skip
        self._is_cut = is_cut
        self._prefilter = SearchPrefilter(self._query, json=True)
        self._matches: list[Match] = []
        self._awaits_after = False

    async def run(self, reader: Reader) -> Matches:
        """The matches; pass this method to `agent_memory.AgentMemory.scan`."""
        self._matches, self._awaits_after, self._to_skip = [], False, self._skip
        skipped = Skipped()
        async for lines in forwards(reader, block=self._block):
            if lines.too_long:
                skipped.add(lines.too_long)
            count_damaged(lines.raw, lines.size, skipped)
            await self._search(reader, lines)
            if len(self._matches) == self._max_results and not self._awaits_after:
                break
        return Matches(self._matches, skipped.count)

    async def _search(self, reader: Reader, lines: Lines) -> None:
        data, size = lines.raw, lines.size  # raw may be longer than the lines; lines.data would then copy it
        self._take_after(data, 0, size)
        find = self._prefilter.finder(data)
        found = find(0)
        while 0 <= found < size and len(self._matches) < self._max_results:
            start, end = data.rfind(b"\n", 0, found) + 1, _line_end(data, found)
            line = data[start:end]
            message = self._seen(line) if _could_be_searchable(line) else None
            if message and self._is_match(message):
                if self._to_skip:
                    self._to_skip -= 1
                else:
                    before = await self._before(reader, lines, start)
                    self._matches.append(Match(before and self._kept(before), self._kept(message)))
                    self._awaits_after = True
                    self._take_after(data, end, size)
            found = find(end)

    def _take_after(self, data: bytes, at: int, size: int) -> None:
        """Set the first message from an offset on as ``after`` of the last match, if that is still missing."""
        while self._awaits_after and at < size:
            end = _line_end(data, at)
            if message := self._seen(data[at:end]):
                self._matches[-1].after = self._kept(message)
                self._awaits_after = False
            at = end

    async def _before(self, reader: Reader, lines: Lines, end: int) -> Message | None:
        """The message before an offset of a block; reads earlier blocks until there is one."""
        for line in _reversed_lines(lines.raw, end):
            if message := self._seen(line):
                return message
        async for earlier in backwards(reader, lines.start):
            for line in _reversed_lines(earlier.data, len(earlier.data)):
                if message := self._seen(line):
                    return message
        return None

    def _seen(self, line: bytes) -> Message | None:
        message = parse(line)
        return message if message and (self._since is None or _is_since(message, self._since)) else None

    def _kept(self, message: Message) -> Message:
        return _cut(message) if self._is_cut else message

    def _is_match(self, message: Message) -> bool:
        return _is_searchable(message) and self._query in message.content.lower()


def _could_be_searchable(line: bytes) -> bool:
    return b'"user"' in line or b'"assistant"' in line or b"\\u" in line


def _is_since(message: Message, since: float) -> bool:
    try:
        return message.timestamp.timestamp() >= since
    except (OverflowError, ValueError, OSError):
        return False  # a year outside the platform's range


def _line_end(data: bytes, at: int) -> int:
    return data.find(b"\n", at) + 1 or len(data)


def _reversed_lines(data: bytes, end: int) -> Iterator[bytes]:
    while end > 0:
        start = data.rfind(b"\n", 0, end - 1) + 1
        yield data[start:end]
        end = start


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
        rows += [f"## Match {number} — {where} | {hit.timestamp:%Y-%m-%d %H:%M}", ""]
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
