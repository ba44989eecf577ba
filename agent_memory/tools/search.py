"""``memory_search``: finds the lines of an agent's files that contain a text, as ``grep -Fi`` does."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from math import inf
from typing import Any, Final, Generic

from agent_memory.backend import Entry
from agent_memory.core.sync_facade import step
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key.patterns import require_possible
from agent_memory.memory import AgentMemory, AsyncAgentMemory
from agent_memory.reading.lines import MAX_LINE
from agent_memory.tools._each_file import LeftOut, each_file
from agent_memory.tools._file_search import MOST_SHOWN, FileSearch, LineMatch, line_query
from agent_memory.tools._protected import EitherMemory, logic_view
from agent_memory.tools.arguments import Arguments, Parameter, Values, as_mapping, checked, object_schema
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolResult, answered

__all__ = ["AsyncMemorySearch", "LeftOut", "LineMatch", "MemorySearch", "SearchResult"]

MAX_RESULTS: Final = 200
MAX_CONTEXT: Final = 10
RESULTS: Final = 50
"""The default number of matches."""
_LONGEST_NUMBER = 18
_NAMED = 3
"""The most files that an answer names as left out."""
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
class SearchResult:
    """Matches in the order of paths and lines, and whether there are more.

    Attributes:
        matches: the matches.
        more: whether there are matches after these.
        truncated: whether lines around the last match were left out, because the answer would be too long.
        left_out: the files that could not be searched, and those with lines that are too long; in the order of paths.
    """

    matches: tuple[LineMatch, ...]
    more: bool
    truncated: bool = False
    left_out: tuple[LeftOut, ...] = ()

    @property
    def next(self) -> str | None:
        """The value of ``after`` that continues the search, ``path:line``; None if there are no more matches."""
        return f"{self.matches[-1].path}:{self.matches[-1].line}" if self.more and self.matches else None

    def to_mapping(self) -> dict[str, object]:
        """The result as a mapping that JSON can encode.

        ``next``, ``truncated``, ``left_out`` (the first 3) and ``left_out_count`` are present only if they apply.
        """
        data: dict[str, object] = {"matches": [asdict(match) for match in self.matches], "more": self.more}
        if self.left_out:
            named = [each._asdict() for each in self.left_out[:_NAMED]]
            data |= {"left_out_count": len(self.left_out), "left_out": named}
        return data | ({"next": self.next} if self.more else {}) | ({"truncated": True} if self.truncated else {})

    def __str__(self) -> str:
        rows = [row for match in self.matches for row in match.rows()]
        if self.truncated:
            rows.append("[The lines around it are cut: view the file there, or ask for less context]")
        if self.more:
            on = f"go on with after {json.dumps(self.next, ensure_ascii=False)}, or narrow the query, path or glob"
            rows.append(f"[{len(self.matches)} matches are shown; there are more: {on}]")
        return "\n".join([*rows, *self.notes()])

    def notes(self) -> list[str]:
        """A line for each file that was left out, at most 3, and one for the number of the others."""
        rows = [f"[Left out: {path}: {reason[:MOST_SHOWN]}]" for path, reason in self.left_out[:_NAMED]]
        more = len(self.left_out) - _NAMED
        return [*rows, f"[Left out: {more:,} more files]"] if more > 0 else rows


def fitting(result: SearchResult, most: int = MAX_CHARACTERS) -> SearchResult:
    """The first matches of a result that fit in an answer: at least one, if necessary with fewer lines around it."""
    room, shown = most, 0
    for match in result.matches:
        room -= match.size
        if room < 0:
            break
        shown += 1
    if shown == len(result.matches):
        return result
    first, more = result.matches[: max(1, shown)], result.more or max(1, shown) < len(result.matches)
    if shown:
        return replace(result, matches=first, more=more)
    return replace(result, matches=(_smaller(first[0], most),), more=more, truncated=True)


def _smaller(match: LineMatch, most: int) -> LineMatch:
    before, after = match.before, match.after
    while (smaller := replace(match, before=before, after=after)) and (before or after) and smaller.size > most:
        before, after = (before[1:], after) if len(before) >= len(after) else (before, after[:-1])
    return smaller


@dataclass(frozen=True, slots=True)
class LineSearch:
    """One search; the fields are the arguments of `MemorySearch.search`.

    Raises:
        ValueError: an argument is out of range, or no file can match ``glob``.
    """

    query: str
    path: str = ""
    glob: str | None = None
    context: int = 0
    max_results: int | None = RESULTS
    after: str | None = None
    case_sensitive: bool = False
    regex: bool = False
    whole_lines: bool = False

    def __post_init__(self) -> None:
        if self.glob is not None:
            if not isinstance(self.glob, str):
                raise ValueError(f"glob must be a str, not {type(self.glob).__name__}")
            require_possible(self.glob, of_names="/" not in self.glob, called="glob")
        if type(self.context) is not int or not 0 <= self.context <= MAX_CONTEXT:
            raise ValueError(f"context must be 0 to {MAX_CONTEXT}")
        most = self.max_results
        if most is not None and (type(most) is not int or not 1 <= most <= MAX_RESULTS):
            raise ValueError(f"max_results must be 1 to {MAX_RESULTS}")

    async def run(self, memory: AsyncAgentMemory, at_once: int, room: float = inf) -> SearchResult:
        """Search a memory.

        Args:
            memory: the memory; may be a facade of a sync one.
            at_once: how many files to search at once.
            room: stop soon after the matches exceed this many characters; see `fitting`.
        """
        place = line_query(self.query, case_sensitive=self.case_sensitive, regex=self.regex)
        most = inf if self.max_results is None else self.max_results
        first, line = _position(self.after) if self.after is not None else ("", 0)
        files, is_one = await _files(memory, self.path)
        paths = [entry.path for entry in files if self._selects(entry) and _is_after(entry, first)]
        found: list[LineMatch] = []
        left_out: list[LeftOut] = []
        for start in range(0, len(paths), at_once):
            limit, left = most + 1 - len(found), room - sum(match.size for match in found)

            def search_in(path: str, limit: float = limit, left: float = left) -> FileSearch:
                passed = line if path == first else 0
                return FileSearch(path, place, self.context, limit, left, passed, whole=self.whole_lines)

            scan = partial(_scan, memory, search_in)
            some = paths[start : start + at_once]
            if is_one:
                searched = [(path, await scan(path)) for path in some]
            else:
                searched = await each_file(memory, scan, some, left_out)
            for path, file in searched:
                found += file.matches
                if file.too_long:
                    left_out.append(LeftOut(path, _lines_too_long(file.too_long)))
            if len(found) > most or (len(found) > 1 and sum(match.size for match in found) > room):
                break
        return SearchResult(tuple(found[: self.max_results]), len(found) > most, left_out=tuple(sorted(left_out)))

    def _selects(self, entry: Entry) -> bool:
        glob = self.glob
        return glob is None or fnmatchcase(entry.path if "/" in glob else entry.key.name, glob)


async def _scan(memory: AsyncAgentMemory, search_in: Callable[[str], FileSearch], path: str) -> FileSearch:
    for last in (False, True):
        search = search_in(path)
        try:
            await memory.scan(path, search.run)
            break
        except ConflictError:  # rewritten during the read: retry once with the new content
            if last:
                raise
    return search


async def _files(memory: AsyncAgentMemory, path: str) -> tuple[tuple[Entry, ...], bool]:
    """The files below a directory; or the file of this path, and True."""
    entries = await memory.list(path)
    if entries or not path.strip("./"):
        return entries, False
    try:
        return (await memory.stat(path),), True
    except AgentMemoryFileNotFoundError:
        return (), False


def _is_after(entry: Entry, path: str) -> bool:
    """Whether a file can hold matches after a match in ``path``: it is that file, or is later in a listing."""
    return entry.path.encode() >= path.encode()


def _position(after: str) -> tuple[str, int]:
    path, _, line = after.rpartition(":") if isinstance(after, str) else ("", "", "")
    if not path or not line.isdecimal() or len(line) > _LONGEST_NUMBER:
        raise ValueError("after must be the position of a match as an answer gives it, path:line")
    return path, int(line)


def _lines_too_long(count: int) -> str:
    lines = "1 line" if count == 1 else f"{count:,} lines"
    return f"{lines} of more than {MAX_LINE:,} bytes"


class _Search(Generic[EitherMemory]):
    _kind: type[EitherMemory]

    def __init__(self, memory: EitherMemory, *, history: bool = False, conversation: bool = True) -> None:
        self._memory = logic_view(self._kind, memory, history, conversation)
        self._at_once = memory._at_once

    @staticmethod
    def tool_definition() -> dict[str, object]:
        """Name, description and JSON schema."""
        return deepcopy(_DEFINITION)

    async def _call(self, arguments: object) -> ToolResult:
        return await answered(lambda: self._answer(checked(as_mapping(arguments), _PARAMETERS)))

    async def _answer(self, values: Values) -> ToolResult:
        given: dict[str, Any] = values  # checked against _PARAMETERS
        try:
            result = fitting(await LineSearch(**given).run(self._memory, self._at_once, MAX_CHARACTERS))
        except ValueError as error:
            raise Malformed(str(error)) from None
        none = f"No matches found for {json.dumps(values['query'])[:MOST_SHOWN]}."
        text = str(result) if result.matches else "\n".join([none, *result.notes()])
        return ToolResult(text, data=result.to_mapping())


class MemorySearch(_Search[AgentMemory]):
    r"""Searches one memory's files line by line, for a text or a regular expression.

    Lines end at ``\n``. Files that are not UTF-8 are searched too, with their invalid bytes replaced. Files are read
    in blocks, in bounded memory; on remote storage, 16 files at once. A file below a directory that cannot be read
    does not stop the search: `SearchResult.left_out` names it, and files with lines over 16 MiB, which are left out.

    Args:
        memory: the tree.
        history: see `MemoryTool`.
        conversation: see `MemoryTool`.
    """

    _kind = AgentMemory

    def search(
        self,
        query: str,
        path: str = "",
        *,
        glob: str | None = None,
        context: int = 0,
        max_results: int | None = RESULTS,
        after: str | None = None,
        case_sensitive: bool = False,
        regex: bool = False,
        whole_lines: bool = False,
    ) -> SearchResult:
        """Find the matching lines of a file, or of all files below a directory, in the order of paths.

        Args:
            query: the text, or the regular expression.
            path: a file or a directory; ``""`` is the whole memory.
            glob: an `fnmatch` pattern for a file's name, or with a ``/`` for its path: ``*.md``, ``notes/*``.
            context: how many lines to return around each match, 0 to 10.
            max_results: the most matches, 1 to 200; None for all.
            after: continue after this match, ``path:line``: `SearchResult.next` of the previous result.
            case_sensitive: whether upper and lower case are different.
            regex: whether ``query`` is a regular expression in the syntax of RE2, which has no backreferences and no
                look-around, and takes linear time. Needs the package google-re2.
            whole_lines: return lines as they are, instead of cut to 300 characters and without control characters.

        Raises:
            ValueError: an argument is out of range, the query is empty or no regular expression, or no file can match
                ``glob``.
            BackendNotAvailableError: ``regex``, and google-re2 is not installed.
        """
        search = LineSearch(query, path, glob, context, max_results, after, case_sensitive, regex, whole_lines)
        return step(search.run(self._memory, self._at_once))

    def call(self, arguments: Arguments) -> ToolResult:
        """Run a model's search; never raises for bad input from a model."""
        return step(self._call(arguments))


class AsyncMemorySearch(_Search[AsyncAgentMemory]):
    """`MemorySearch` for async callers."""

    _kind = AsyncAgentMemory

    async def search(
        self,
        query: str,
        path: str = "",
        *,
        glob: str | None = None,
        context: int = 0,
        max_results: int | None = RESULTS,
        after: str | None = None,
        case_sensitive: bool = False,
        regex: bool = False,
        whole_lines: bool = False,
    ) -> SearchResult:
        """See `MemorySearch.search`."""
        search = LineSearch(query, path, glob, context, max_results, after, case_sensitive, regex, whole_lines)
        return await search.run(self._memory, self._at_once)

    async def call(self, arguments: Arguments) -> ToolResult:
        """See `MemorySearch.call`."""
        return await self._call(arguments)
