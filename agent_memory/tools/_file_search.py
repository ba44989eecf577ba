"""`FileSearch`: the lines of one file that match a query, for `agent_memory.tools.search`."""

from __future__ import annotations

import json
import unicodedata
from collections import deque
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Final

from agent_memory.reading.lines import MARK, Lines, forwards
from agent_memory.reading.reader import Reader
from agent_memory.tools._line_queries import LineQuery

MOST_SHOWN: Final = 300
"""The most characters of a line in an answer."""
_LEAD = 100
_ALSO_SHOWN = "\t\u200c\u200d"  # tab, and two joiners that scripts and emoji need; none of them controls a terminal


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A matching line, numbered from 1, and the lines around it.

    Lines are cut to 300 characters, and characters that a terminal would interpret are replaced, unless the search was
    for whole lines.
    """

    path: str
    line: int
    text: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def rows(self) -> list[str]:
        """The lines of the match in a text, as ``grep -n`` prints them."""
        first = self.line - len(self.before)
        before = [f"{self.path}-{number}- {text}" for number, text in enumerate(self.before, first)]
        after = [f"{self.path}-{number}- {text}" for number, text in enumerate(self.after, self.line + 1)]
        return [*before, f"{self.path}:{self.line}: {self.text}", *after, *(["--"] if before or after else [])]

    @property
    def size(self) -> int:
        """The characters of the match in an answer: the longer of its text and its JSON."""
        text = sum(len(row) + 1 for row in self.rows())
        return max(text, len(json.dumps(asdict(self), ensure_ascii=False)) + 2)


class FileSearch:
    """Finds the matching lines of one file, in bounded memory.

    Args:
        path: the file's path, for the matches.
        query: what to find.
        context: how many lines to return around each match.
        limit: the most matches.
        room: stop when two matches or more exceed this many characters.
        line: ignore matches up to and including this line.
        whole: return lines as they are.
    """

    def __init__(
        self,
        path: str,
        query: LineQuery,
        context: int,
        limit: float,
        room: float = inf,
        line: int = 0,
        *,
        whole: bool = False,
    ) -> None:
        self._path = path
        self._query = query
        self._context = context
        self._shown = _whole if whole else _shown
        self._end = "" if whole else "\r"
        self._limit = limit
        self._room = room
        self._passed = line
        self._line = 1
        self._last: list[str] = []
        self.matches: list[LineMatch] = []
        self.too_long = 0

    async def run(self, reader: Reader) -> list[LineMatch]:
        async for lines in forwards(reader):
            self.too_long += bool(lines.too_long)
            self._search(lines if lines.start else _without_mark(lines))
            if self._is_enough() and len(self.matches[-1].after) == self._context:
                break
        return self.matches

    def _is_enough(self) -> bool:
        return len(self.matches) == self._limit or (len(self.matches) > 1 and self._room < 0)

    def _search(self, lines: Lines) -> None:
        data = lines.data
        around = data or lines.too_long
        for match in self.matches[-self._context - 1 :]:
            self._take_after(match, around, 0)
        find = self._query.finder(data)
        counted, found = 0, find(0)
        while found >= 0 and not self._is_enough():
            start = data.rfind(b"\n", 0, found) + 1
            end = data.find(b"\n", found) + 1 or len(data)
            self._line, counted = self._line + data.count(b"\n", counted, start), start
            text = _decoded(data[start:end])
            if self._line > self._passed and (at := self._query.place(text.removesuffix(self._end))) >= 0:
                before = self._before(data, start)
                match = LineMatch(self._path, self._line, self._shown(text, at), before)
                self._take_after(match, data, end)
                self.matches.append(match)
                self._room -= match.size
            found = find(end)
        self._line += data.count(b"\n", counted) + bool(lines.too_long)
        self._last = self._before(around, len(around))

    def _before(self, data: bytes, end: int) -> list[str]:
        found: deque[str] = deque(maxlen=self._context)
        while end > 0 and len(found) < self._context:
            start = data.rfind(b"\n", 0, end - 1) + 1
            found.appendleft(self._shown(_decoded(data[start:end])))
            end = start
        return [*self._last, *found][-self._context :] if self._context else []

    def _take_after(self, match: LineMatch, data: bytes, at: int) -> None:
        after = match.after
        while len(after) < self._context and at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            after.append(self._shown(_decoded(data[at:end])))
            at = end


def _without_mark(lines: Lines) -> Lines:
    return lines._replace(
        start=min(len(MARK), lines.end) if lines.raw.startswith(MARK) else lines.start,
        raw=lines.raw.removeprefix(MARK),
        too_long=lines.too_long.removeprefix(MARK),
    )


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\n").decode(errors="replace")


def _whole(text: str, at: int = 0) -> str:
    del at
    return text


def _shown(text: str, at: int = 0) -> str:
    text = text.removesuffix("\r")
    start = max(0, at - _LEAD) if len(text) > MOST_SHOWN else 0
    cut = text[start : start + MOST_SHOWN]
    printable = cut if cut.isprintable() else "".join(c if _is_shown(c) else "\ufffd" for c in cut)
    return ("..." if start else "") + printable + ("..." if len(text) > start + MOST_SHOWN else "")


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in _ALSO_SHOWN or unicodedata.category(character) == "Zs"
