"""``memory_search``: finds the lines of an agent's files that contain a text, as ``grep -Fi`` does."""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_right
from collections import deque
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from math import inf
from typing import Any, Final

from agent_memory.backend import Entry, Uncopied
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key.patterns import require_possible
from agent_memory.memory import AgentMemory, AsyncAgentMemory
from agent_memory.reading.lines import Lines, forwards
from agent_memory.reading.prefilter import SearchPrefilter
from agent_memory.reading.reader import Reader
from agent_memory.tools._protected import for_tools
from agent_memory.tools.arguments import Arguments, Parameter, Values, as_mapping, checked, object_schema
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolResult, answered

MAX_RESULTS: Final = 200
MAX_CONTEXT: Final = 10
RESULTS: Final = 50
"""The default number of matches."""
_SHOWN = 300
_LONGEST_GLOB = 1000  # characters; paths are shorter, and a pattern of 50 MB takes minutes to compile
_LONGEST_NUMBER = 18
_LEAD = 100
_SHOWN_TOO = "\t\u200c\u200d"  # tab, and two joiners that scripts and emoji need; none of them controls a terminal
_PARAMETERS: Final = {
    "query": Parameter("string", "The text to find, literally and ignoring case."),
    "path": Parameter("string", "Only this file, or below this directory.", required=False),
    "glob": Parameter("string", "Only files of this name or path, for example *.md or notes/*.", required=False),
    "context": Parameter("integer", f"Lines to show around each match: 0 to {MAX_CONTEXT}.", required=False),
    "max_results": Parameter("integer", f"The most matching lines: 1 to {MAX_RESULTS}.", required=False),
    "after": Parameter("string", "Continue after this match, given as path:line.", required=False),
}
_DEFINITION: Final[dict[str, object]] = {
    "name": "memory_search",
    "description": "Find the lines of your memory's files that contain a text.",
    "input_schema": object_schema(_PARAMETERS),
}


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A matching line, numbered from 1, and the lines around it; long lines are cut to 300 characters."""

    path: str
    line: int
    text: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Matches in the order of paths and lines, and whether there are more.

    Attributes:
        matches: the matches.
        more: whether there are matches after these.
        truncated: whether lines around the last match were left out, because the answer would be too long.
    """

    matches: tuple[LineMatch, ...]
    more: bool
    truncated: bool = False

    @property
    def next(self) -> str | None:
        """The value of ``after`` that continues the search, ``path:line``; None if there are no more matches."""
        return f"{self.matches[-1].path}:{self.matches[-1].line}" if self.more and self.matches else None

    def to_mapping(self) -> dict[str, object]:
        """The result as a mapping that JSON can encode; ``next`` and ``truncated`` are present only if they apply."""
        data: dict[str, object] = {"matches": [asdict(match) for match in self.matches], "more": self.more}
        return data | ({"next": self.next} if self.more else {}) | ({"truncated": True} if self.truncated else {})

    def __str__(self) -> str:
        rows = [row for match in self.matches for row in _rows(match)]
        if self.truncated:
            rows.append("[The lines around it are cut: view the file there, or ask for less context]")
        if self.more:
            on = f"go on with after {json.dumps(self.next, ensure_ascii=False)}, or narrow the query, path or glob"
            rows.append(f"[{len(self.matches)} matches are shown; there are more: {on}]")
        return "\n".join(rows)


class _FileSearch(Uncopied):
    """Finds the matching lines of one file, in bounded memory.

    Args:
        path: the file's path, for the matches.
        query: the text to find, in lower case.
        context: how many lines to return around each match.
        limit: the most matches.
        room: stop when two matches or more exceed this many characters.
        line: ignore matches up to and including this line.
    """

    def __init__(self, path: str, query: str, context: int, limit: int, room: float = inf, line: int = 0) -> None:
        self._path = path
        self._query = query
        self._prefilter = SearchPrefilter(query, json=False)
        self._context = context
        self._limit = limit
        self._room = room
        self._passed = line
        self._line = 1
        self._last: list[str] = []
        self.matches: list[LineMatch] = []

    async def run(self, reader: Reader) -> list[LineMatch]:
        async for lines in forwards(reader):
            self._search(lines)
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
        find = self._prefilter.finder(data)
        counted, found = 0, find(0)
        while found >= 0 and not self._is_enough():
            start = data.rfind(b"\n", 0, found) + 1
            end = data.find(b"\n", found) + 1 or len(data)
            self._line, counted = self._line + data.count(b"\n", counted, start), start
            text = _decoded(data[start:end])
            if self._line > self._passed and (at := _place(text, self._query)) >= 0:
                before = self._before(data, start)
                match = LineMatch(self._path, self._line, _shown(text, at), before)
                self._take_after(match, data, end)
                self.matches.append(match)
                self._room -= _size(match)
            found = find(end)
        self._line += data.count(b"\n", counted) + bool(lines.too_long)
        self._last = self._before(around, len(around))

    def _before(self, data: bytes, end: int) -> list[str]:
        found: deque[str] = deque(maxlen=self._context)
        while end > 0 and len(found) < self._context:
            start = data.rfind(b"\n", 0, end - 1) + 1
            found.appendleft(_shown(_decoded(data[start:end])))
            end = start
        return [*self._last, *found][-self._context :] if self._context else []

    def _take_after(self, match: LineMatch, data: bytes, at: int) -> None:
        after = match.after
        while len(after) < self._context and at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            after.append(_shown(_decoded(data[at:end])))
            at = end


def _place(text: str, query: str) -> int:
    """The position of a lower-case query in a text, ignoring case; -1 if it is absent."""
    lowered = text.lower()
    at = lowered.find(query)
    if at < 0 or len(lowered) == len(text):
        return at
    return bisect_right(range(len(text)), at, key=lambda end: len(text[:end].lower())) - 1  # U+0130 becomes two


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\n").decode(errors="replace")


def _shown(text: str, at: int = 0) -> str:
    text = text.removesuffix("\r")
    start = max(0, at - _LEAD) if len(text) > _SHOWN else 0
    cut = text[start : start + _SHOWN]
    printable = cut if cut.isprintable() else "".join(c if _is_shown(c) else "\ufffd" for c in cut)
    return ("..." if start else "") + printable + ("..." if len(text) > start + _SHOWN else "")


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in _SHOWN_TOO or unicodedata.category(character) == "Zs"


def _rows(match: LineMatch) -> list[str]:
    first = match.line - len(match.before)
    before = [f"{match.path}-{number}- {text}" for number, text in enumerate(match.before, first)]
    after = [f"{match.path}-{number}- {text}" for number, text in enumerate(match.after, match.line + 1)]
    return [*before, f"{match.path}:{match.line}: {match.text}", *after, *(["--"] if before or after else [])]


def _size(match: LineMatch) -> int:
    """The characters of a match in an answer: the longer of its text and its JSON."""
    text = sum(len(row) + 1 for row in _rows(match))
    return max(text, len(json.dumps(asdict(match), ensure_ascii=False)) + 2)


def fitting(result: SearchResult, most: int = MAX_CHARACTERS) -> SearchResult:
    """The first matches of a result that fit in an answer: at least one, if necessary with fewer lines around it."""
    room, shown = most, 0
    for match in result.matches:
        room -= _size(match)
        if room < 0:
            break
        shown += 1
    if shown == len(result.matches):
        return result
    first, more = result.matches[: max(1, shown)], result.more or max(1, shown) < len(result.matches)
    return SearchResult(first, more) if shown else SearchResult((_smaller(first[0], most),), more, truncated=True)


def _smaller(match: LineMatch, most: int) -> LineMatch:
    before, after = match.before, match.after
    while (smaller := replace(match, before=before, after=after)) and (before or after) and _size(smaller) > most:
        before, after = (before[1:], after) if len(before) >= len(after) else (before, after[:-1])
    return smaller


def _is_after(entry: Entry, path: str) -> bool:
    """Whether a file can hold matches after a match in ``path``: it is that file, or is later in a listing."""
    return entry.path.encode() >= path.encode()


def _position(after: str) -> tuple[str, int]:
    path, _, line = after.rpartition(":")
    if not path or not line.isdecimal() or len(line) > _LONGEST_NUMBER:
        raise ValueError("after must be the position of a match as an answer gives it, path:line")
    return path, int(line)


def _matches(entry: Entry, glob: str | None) -> bool:
    return glob is None or fnmatchcase(entry.path if "/" in glob else entry.key.name, glob)


class _Search(Uncopied):
    def __init__(self, memory: AsyncAgentMemory, at_once: int) -> None:
        self._memory = memory
        self._at_once = at_once

    async def search(
        self,
        query: str,
        path: str,
        glob: str | None,
        context: int,
        max_results: int,
        after: str | None = None,
        room: float = inf,
    ) -> SearchResult:
        if not isinstance(query, str) or not query:
            raise ValueError("query must be a text of one character or more")
        if glob is not None:
            require_possible(glob, of_names="/" not in glob, called="glob")
        if not isinstance(context, int) or not 0 <= context <= MAX_CONTEXT:
            raise ValueError(f"context must be 0 to {MAX_CONTEXT}")
        if not isinstance(max_results, int) or not 1 <= max_results <= MAX_RESULTS:
            raise ValueError(f"max_results must be 1 to {MAX_RESULTS}")
        first, line = _position(after) if after is not None else ("", 0)
        files = (entry for entry in await self._files(path) if _matches(entry, glob))
        paths = [entry.path for entry in files if _is_after(entry, first)]
        found: list[LineMatch] = []
        for start in range(0, len(paths), self._at_once):
            limit, left = max_results + 1 - len(found), room - sum(map(_size, found))
            scan = partial(
                self._scan, query=query.lower(), context=context, limit=limit, room=left, after=(first, line)
            )
            for matches in await self._memory._map(scan, paths[start : start + self._at_once]):
                found += matches
            if len(found) > max_results or (len(found) > 1 and sum(map(_size, found)) > room):
                break
        return SearchResult(tuple(found[:max_results]), len(found) > max_results)

    async def _scan(
        self, path: str, query: str, context: int, limit: int, room: float, after: tuple[str, int]
    ) -> list[LineMatch]:
        line = after[1] if path == after[0] else 0
        for last in (False, True):
            try:
                return await self._memory.scan(path, _FileSearch(path, query, context, limit, room, line).run)
            except AgentMemoryFileNotFoundError:
                break  # deleted after the listing
            except ConflictError:  # rewritten during the read: retry once with the new content
                if last:
                    raise
        return []

    async def _files(self, path: str) -> tuple[Entry, ...]:
        entries = await self._memory.list(path)
        if entries or not path.strip("./"):
            return entries
        try:
            return (await self._memory.stat(path),)
        except AgentMemoryFileNotFoundError:
            return ()

    async def call(self, arguments: object) -> ToolResult:
        return await answered(lambda: self._answer(checked(as_mapping(arguments), _PARAMETERS)))

    async def _answer(self, values: Values) -> ToolResult:
        given = {"path": "", "glob": None, "context": 0, "max_results": RESULTS, "room": MAX_CHARACTERS, **values}
        try:
            result = fitting(await self.search(**given))  # type: ignore[arg-type]  # checked against _PARAMETERS
        except ValueError as error:
            raise Malformed(str(error)) from None
        none = f"No matches found for {json.dumps(values['query'])[:_SHOWN]}."
        return ToolResult(str(result) or none, data=result.to_mapping())


async def found_lines(memory: AsyncAgentMemory, query: str, room: int, **given: Any) -> SearchResult:
    """As `AsyncMemorySearch.search`, but stops soon after the matches exceed ``room`` characters; see `fitting`."""
    given = {"path": "", "glob": None, "context": 0, "max_results": RESULTS, **given}
    return await _Search(memory, memory._at_once).search(query, room=room, **given)


class MemorySearch(Uncopied):
    """Searches one memory's files for a literal text, ignoring case, line by line.

    Lines end at ``\\n``. Files that are not UTF-8 are searched too, with their invalid bytes replaced. Files are read
    in blocks, in bounded memory; on remote storage, 16 files at once. Lines over 16 MiB are skipped.

    Args:
        memory: the tree.
        history: see `MemoryTool`.
    """

    def __init__(self, memory: AgentMemory, *, history: bool = False) -> None:
        self._search = _Search(sync_facade(for_tools(AgentMemory, memory, history)), memory._at_once)

    def search(
        self,
        query: str,
        path: str = "",
        *,
        glob: str | None = None,
        context: int = 0,
        max_results: int = RESULTS,
        after: str | None = None,
    ) -> SearchResult:
        """Find the matching lines of a file, or of all files below a directory, in the order of paths.

        Args:
            query: the text.
            path: a file or a directory; ``""`` is the whole memory.
            glob: an `fnmatch` pattern for a file's name, or with a ``/`` for its path: ``*.md``, ``notes/*``.
            context: how many lines to return around each match, 0 to 10.
            max_results: the most matches, 1 to 200.
            after: continue after this match, ``path:line``: `SearchResult.next` of the previous result.

        Raises:
            ValueError: an argument is out of range, the query is empty, or no file can match ``glob``.
        """
        return step(self._search.search(query, path, glob, context, max_results, after))

    def call(self, arguments: Arguments) -> ToolResult:
        """Run a model's search; never raises for bad input from a model."""
        return step(self._search.call(arguments))

    @staticmethod
    def tool_definition() -> dict[str, object]:
        """Name, description and JSON schema."""
        return deepcopy(_DEFINITION)


class AsyncMemorySearch(Uncopied):
    """`MemorySearch` for async callers."""

    def __init__(self, memory: AsyncAgentMemory, *, history: bool = False) -> None:
        self._search = _Search(for_tools(AsyncAgentMemory, memory, history), memory._at_once)

    async def search(
        self,
        query: str,
        path: str = "",
        *,
        glob: str | None = None,
        context: int = 0,
        max_results: int = RESULTS,
        after: str | None = None,
    ) -> SearchResult:
        return await self._search.search(query, path, glob, context, max_results, after)

    async def call(self, arguments: Arguments) -> ToolResult:
        return await self._search.call(arguments)

    tool_definition = staticmethod(MemorySearch.tool_definition)
