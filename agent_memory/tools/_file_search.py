"""What a search looks for in a line, and the lines of one file that match, for `agent_memory.tools.search`."""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Final, TypeAlias

from agent_memory.errors import BackendNotAvailableError, install_hint
from agent_memory.reading.lines import MARK, forwards
from agent_memory.reading.reader import Reader

MOST_SHOWN: Final = 300
"""The most characters of a line in an answer."""
_LEAD = 100
_LONGEST_EXPRESSION: Final = 10_000
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


Place: TypeAlias = Callable[[str], int]
"""What a search looks for: the position of the first match in a line, -1 if there is none."""


def line_query(query: str, *, case_sensitive: bool, regex: bool) -> Place:
    """Return the query of a search: a text with or without regard to case, or a regular expression.

    Raises:
        BackendNotAvailableError: ``regex``, and its engine is not installed.
        ValueError: the query is empty, or not a valid regular expression.
    """
    if not isinstance(query, str) or not query:
        raise ValueError("query must be a text of one character or more")
    if regex:
        return _expression(query, case_sensitive)
    return _text(query) if case_sensitive else _text_ignoring_case(query)


def _text(text: str) -> Place:
    return lambda line: line.find(text)


def _text_ignoring_case(text: str) -> Place:
    lowered_text = text.lower()

    def place(line: str) -> int:
        lowered = line.lower()
        at = lowered.find(lowered_text)
        if at < 0 or len(lowered) == len(line):
            return at
        return bisect_right(range(len(line)), at, key=lambda end: len(line[:end].lower())) - 1  # U+0130 becomes two

    return place


def _expression(pattern: str, case_sensitive: bool) -> Place:
    """A regular expression of RE2, which takes linear time for every expression and every line."""
    if len(pattern) > _LONGEST_EXPRESSION:
        raise ValueError(f"a regular expression can have at most {_LONGEST_EXPRESSION:,} characters")
    try:
        import re2
    except ImportError:
        raise BackendNotAvailableError(
            f"regular expressions need the package google-re2: {install_hint('search')}"
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = case_sensitive
    options.never_capture = True  # only the place of the whole match is used, and groups cost time
    try:
        compiled: Any = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(f"query is not a regular expression that RE2 accepts: {_reason(error)}") from None

    def place(line: str) -> int:
        found = compiled.search(line)
        return found.start() if found else -1

    return place


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else "it is not valid Unicode"


class FileSearch:
    """Finds the matching lines of one file, in bounded memory.

    Args:
        path: the file's path, for the matches.
        place: what to find.
        context: how many lines to return around each match.
        limit: the most matches.
        room: stop when two matches or more exceed this many characters.
        line: ignore matches up to and including this line.
        whole: return lines as they are.
    """

    def __init__(
        self,
        path: str,
        place: Place,
        context: int,
        limit: float,
        room: float = inf,
        line: int = 0,
        *,
        whole: bool = False,
    ) -> None:
        self._path = path
        self._place = place
        self._context = context
        self._shown = _whole if whole else _shown
        self._end = "" if whole else "\r"
        self._limit = limit
        self._room = room
        self._passed = line
        self._line = 0
        self._before: deque[str] = deque(maxlen=context)
        self.matches: list[LineMatch] = []
        self.too_long = 0

    async def run(self, reader: Reader) -> list[LineMatch]:
        async for lines in forwards(reader):
            if lines.too_long:
                self.too_long += 1
                self._take(lines.too_long, is_whole=False)
            else:
                for line in lines.data.removesuffix(b"\n").split(b"\n"):
                    self._take(line)
            if self._is_enough() and len(self.matches[-1].after) == self._context:
                break
        return self.matches

    def _is_enough(self) -> bool:
        return len(self.matches) == self._limit or (len(self.matches) > 1 and self._room < 0)

    def _take(self, data: bytes, *, is_whole: bool = True) -> None:
        """Search the next line. A line that is not whole is cut, and only serves as a neighbour of a match."""
        self._line += 1
        line = (data.removeprefix(MARK) if self._line == 1 else data).decode(errors="replace")
        for match in self.matches[-self._context :] if self._context else ():
            if len(match.after) < self._context:
                match.after.append(self._shown(line))
        if is_whole and self._line > self._passed and not self._is_enough():
            at = self._place(line.removesuffix(self._end))
            if at >= 0:
                before = [self._shown(each) for each in self._before]
                self.matches.append(LineMatch(self._path, self._line, self._shown(line, at), before))
                self._room -= self.matches[-1].size
        self._before.append(line)


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
