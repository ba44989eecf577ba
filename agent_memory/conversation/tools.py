"""Tools for a model: search of the history, and a write of the memory document."""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from itertools import accumulate
from typing import Final

from agent_memory.conversation.memory import MEMORY, AsyncConversationMemory, ConversationMemory
from agent_memory.conversation.search import HistorySearch, Match, formatted
from agent_memory.core.sync_facade import step
from agent_memory.tools._model_text import overwriting
from agent_memory.tools._warnings import warned
from agent_memory.tools.arguments import Arguments, Parameter, as_mapping, object_schema
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolRefusal, ToolResult, answered

MAX_RESULTS = 50
RESULTS = 10
_DAY_SECONDS = 86_400
_ALL_DAYS = 1_000_000
_SHOWN = 300
_LIMITS: Final = {
    "days": Parameter("integer", "How many days back to search; 0, the default, is all time.", required=False),
    "max_results": Parameter("integer", "The most matches: 1 to 50, default 10.", required=False),
    "offset": Parameter("integer", "How many matches to skip, to continue after them; default 0.", required=False),
}
_SEARCH: Final[dict[str, object]] = {
    "name": "search_history",
    "description": "Search past conversations of all channels for a text; shows each match with the messages "
    "before and after it, the earliest match first.",
    "input_schema": object_schema({"query": Parameter("string", "The text to find, ignoring case."), **_LIMITS}),
}
_WRITE: Final[dict[str, object]] = {
    "name": "memory_write",
    "description": "Replace your memory document, which is shown to you in every conversation.",
    "input_schema": object_schema({"content": Parameter("string", "The whole new text of the document.")}),
}


def _fitting(matches: list[Match], offset: int) -> str:
    """Format as many matches as fit in an answer, and say how to continue after them."""
    blocks = [formatted([match], offset + number) for number, match in enumerate(matches, 1)]
    ends = accumulate(len(block) + 1 for block in blocks)
    shown = sum(end <= MAX_CHARACTERS for end in ends)
    if shown == len(blocks):
        return "\n".join(blocks)
    hint = f"{shown} of {len(blocks)} matches are shown; go on with offset {offset + shown}, or narrow the query"
    return "\n".join([*blocks[:shown], f"[Cut at {MAX_CHARACTERS:,} characters: {hint}]"])


def _left_out(skipped: int) -> str:
    lines = "1 damaged line" if skipped == 1 else f"{skipped:,} damaged lines"
    return f"\n[{lines} of the history left out]" if skipped else ""


def since(days: int) -> float | None:
    """The time ``days`` days ago in POSIX seconds; None, for all time, if ``days`` is not 1 to 1,000,000."""
    return time.time() - days * _DAY_SECONDS if 0 < days <= _ALL_DAYS else None


def _integer(given: Mapping[str, object], name: str, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"the parameter `{name}` must be an integer, not {type(value).__name__}")
    return value


class SearchHistoryTool:
    """``search_history``: the earliest matching messages of users and assistants, each with its neighbours.

    Parameters of a call: ``query``; ``days``, default 0, which is all time; ``max_results``, 1 to 50, default 10;
    ``offset``, how many matches to skip, default 0.

    If lines of the history are damaged, the result's ``data`` has their number as ``damaged_lines``, and an answer
    without matches says it. The text of an answer with matches has a format that other programs know.
    """

    def __init__(self, conversation: ConversationMemory) -> None:
        self._async = AsyncSearchHistoryTool(conversation._async)

    def call(self, arguments: Arguments) -> ToolResult:
        """Run one search; never raises for bad input from a model."""
        return step(self._async.call(arguments))

    @staticmethod
    def tool_definition() -> dict[str, object]:
        """Name, description and JSON schema."""
        return deepcopy(_SEARCH)


class AsyncSearchHistoryTool:
    """`SearchHistoryTool` for async callers, and with the logic of a sync conversation its own logic."""

    def __init__(self, conversation: AsyncConversationMemory) -> None:
        self._conversation = conversation

    async def call(self, arguments: Arguments) -> ToolResult:
        """See `SearchHistoryTool.call`."""
        return await answered(lambda: self._answer(arguments))

    async def _answer(self, arguments: Arguments) -> ToolResult:
        given = as_mapping(arguments)
        query = given.get("query")
        if not isinstance(query, str) or not query.strip():
            raise ToolRefusal("Error: query is required")
        query = query.strip()
        offset = max(0, _integer(given, "offset", 0))
        search = HistorySearch(
            query,
            since=since(_integer(given, "days", 0)),
            max_results=min(MAX_RESULTS, max(1, _integer(given, "max_results", RESULTS))),
            skip=offset,
            is_cut=True,
        )
        matches = await self._conversation._search(search)
        data = {"damaged_lines": matches.skipped} if matches.skipped else None
        if matches:
            return ToolResult(_fitting(matches, offset), data=data)
        none = f"No matches found for '{query if len(query) <= _SHOWN else query[:_SHOWN] + '...'}'."
        return ToolResult(none + _left_out(matches.skipped), data=data)

    tool_definition = staticmethod(SearchHistoryTool.tool_definition)


class MemoryWriteTool:
    """``memory_write``: replaces the memory document by ``content``."""

    def __init__(self, conversation: ConversationMemory) -> None:
        self._async = AsyncMemoryWriteTool(conversation._async)

    def call(self, arguments: Arguments) -> ToolResult:
        """Write the document; never raises for bad input from a model."""
        return step(self._async.call(arguments))

    @staticmethod
    def tool_definition() -> dict[str, object]:
        """Name, description and JSON schema."""
        return deepcopy(_WRITE)


class AsyncMemoryWriteTool:
    """`MemoryWriteTool` for async callers, and with the logic of a sync conversation its own logic."""

    def __init__(self, conversation: AsyncConversationMemory) -> None:
        self._conversation = conversation

    async def call(self, arguments: Arguments) -> ToolResult:
        """See `MemoryWriteTool.call`."""
        return await answered(lambda: self._answer(arguments))

    async def _answer(self, arguments: Arguments) -> ToolResult:
        content = as_mapping(arguments).get("content")
        if not isinstance(content, str):
            raise ToolRefusal("Error: content is required")
        memory = self._conversation._memory
        written = await memory.write(MEMORY, await overwriting(memory, MEMORY, content))
        answer = "Memory updated successfully."
        return ToolResult(await warned(memory, answer, MEMORY, shown="MEMORY.md", size=written.size, text=content))

    tool_definition = staticmethod(MemoryWriteTool.tool_definition)
