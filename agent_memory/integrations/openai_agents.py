"""A `Session` of the OpenAI Agents SDK, and tools. Needs ``pip install 'agent-memory-files[openai-agents]'``."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, cast

from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelTool,
    Records,
    append_records,
    async_view,
    checked_id,
    from_json,
    model_tools,
    record_line,
    records,
    unusable,
)
from agent_memory.key import encode_segment

try:
    from agents import FunctionTool, Tool, TResponseInputItem
    from agents.memory import Session, SessionSettings
except ImportError as error:
    raise unusable("openai-agents", "openai-agents", error) from error

__all__ = ["AgentMemorySession", "memory_tools"]

_log = logging.getLogger("agent_memory")
IsExpired: TypeAlias = Callable[[TResponseInputItem], bool]


class AgentMemorySession(Session):
    r"""The history of one session, for ``Runner.run(agent, input, session=...)``.

    The history is one file at the top of the memory, named ``encode_segment(session_id, ".jsonl")``, with one item a
    line. Any number of processes may use one session at once.

    Args:
        memory: the tree that holds the file.
        session_id: any text.
        session_settings: their ``limit`` is the default of `get_items`; may be changed later.

    An `OpenAIResponsesCompactionSession` over a session replaces what it compacts in one step. Automatic compaction
    replaces the end of the history that the model saw, or nothing if another caller changed that end meanwhile. The two
    private methods are those that the SDK calls of its own sessions, since 0.24. Earlier releases clear the
    session, then add the summary, and so remove what others add during a compaction.

    Lines that hold no JSON object are skipped, and counted in one logged warning. Methods raise the errors of
    `agent_memory.AgentMemory`. A call that is cancelled takes effect whole or not at all.

    Raises:
        TypeError: ``memory`` is no memory, or ``session_id`` is no str.
    """

    def __init__(self, memory: AnyMemory, session_id: str, session_settings: SessionSettings | None = None) -> None:
        self.session_id = checked_id("session_id", session_id)
        self.session_settings = session_settings if session_settings is not None else SessionSettings()
        self._memory = async_view(memory)
        self._path = encode_segment(session_id, ".jsonl")

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last ``limit`` items, oldest first; only the end of the file is read.

        Args:
            limit: the most items; 0 or less is none. None is the limit of the settings; if that is None too, all.
        """
        limit = SessionSettings().resolve(self.session_settings).limit if limit is None else limit
        try:
            items: Records[TResponseInputItem] | None = await records(self._memory, self._path, _item, limit)
            if items is None:
                items = Records[TResponseInputItem]()
        except ConflictError:  # another caller removed items during the scan: read one state of the file in one step
            items = await self._read(limit)
        if items.damaged:
            _log.warning("%s: %d lines hold no item of a session", self._path, items.damaged)
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items in one append: all or none, with no others between them.

        Raises:
            TypeError: an item is no dict; nothing was written.
            InvalidContentError: an item is not JSON, or its line has more than 16 MiB; nothing was written.
        """
        await append_records(self._memory, self._path, [_checked(item) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it, None if there is none; each item is returned to one caller.

        Lines without an item stay.

        Raises:
            FileTooLargeError: the history is larger than the backend's ``max_bytes`` (50 MB by default).
            ConflictError: other callers were faster until the timeout; nothing was removed.
            OutcomeUnknownError: the item may be removed, and no caller gets it.
        """
        item: TResponseInputItem | None = None

        def without_last(data: bytes) -> bytes:
            nonlocal item  # of the last call, which is the one that took effect
            rest, item = _split(data)
            return rest

        try:
            await self._memory.edit_bytes(self._path, without_last)
        except AgentMemoryFileNotFoundError:
            return None
        return item

    async def clear_session(self) -> None:
        """Remove all items, and lines without an item, in one step; the file stays, empty."""
        await self._memory.write(self._path, "")

    async def _get_compaction_snapshot(self, limit: int, *, prune_prefix: IsExpired | None = None) -> Any:
        """Return the last ``limit`` items for a compaction; None lets the SDK ask for all items.

        ``prune_prefix`` tells which items at the beginning of the history a replacement removes too.
        """
        try:
            from agents.memory.session import _CompactionSnapshot
        except ImportError:  # it is private
            return None
        if type(self) is not AgentMemorySession:
            return None  # a subclass may change the items
        try:
            data = await self._data()
        except FileTooLargeError:
            return None
        found = [line for line in _lines(data) if line.item is not None]
        last = found[-limit:]
        items = [cast(TResponseInputItem, line.item) for line in last]
        tail = data[last[0].start :] if last else b""

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            if start >= len(last):
                return False
            return await self._replace(tail[last[start].start - last[0].start :], output, prune_prefix)

        return _CompactionSnapshot(items, len(found) <= limit, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step, for a compaction that a caller asked for."""
        await self._memory.write(self._path, "".join(map(record_line, items)))
        return True

    async def _replace(self, end: bytes, output: list[TResponseInputItem], is_expired: IsExpired | None) -> bool:
        """Replace the end of the history, unless another caller has changed it; lines without an item stay."""
        damaged = [line.text.rstrip(b"\n") + b"\n" for line in _lines(end) if line.item is None and line.text.strip()]
        new, is_replaced = b"".join(damaged) + "".join(map(record_line, output)).encode(), False

        def replaced(data: bytes) -> bytes:
            nonlocal is_replaced  # of the last call, which is the one that took effect
            rest = data.removesuffix(end)
            is_replaced = len(rest) < len(data) and rest[-1:] in (b"", b"\n")
            return _without_expired(rest, is_expired) + new if is_replaced else data

        try:
            await self._memory.edit_bytes(self._path, replaced)
        except AgentMemoryFileNotFoundError:
            return False
        return is_replaced

    async def _data(self) -> bytes:
        files = await self._memory.read_many([self._path], missing_ok=True, bytes=True)
        return files.get(self._path, b"")

    async def _read(self, limit: int | None) -> Records[TResponseInputItem]:
        items = Records[TResponseInputItem]()
        for line in (await self._data()).split(b"\n"):
            items.add(line, _item)
        if limit is not None:
            del items[: max(0, len(items) - limit)]
        return items


def memory_tools(memory: AnyMemory, *, versions: bool = False) -> list[Tool]:
    """Return tools for ``Agent(tools=...)``, with which a model keeps notes; see `toolkit.model_tools`."""
    return [_function_tool(tool) for tool in model_tools(async_view(memory), versions=versions)]


def _function_tool(tool: ModelTool) -> FunctionTool:
    async def invoke(context: Any, arguments: str) -> str:
        return (await tool.call(arguments, context.tool_call_id)).output

    return FunctionTool(tool.name, tool.description, tool.parameters, invoke, strict_json_schema=False)


def _item(value: Any) -> TResponseInputItem | None:
    return cast(TResponseInputItem, value) if isinstance(value, dict) else None


def _checked(item: TResponseInputItem) -> TResponseInputItem:
    if not isinstance(item, dict):
        raise TypeError(f"an item of a session must be a dict, not {type(item).__name__}")
    return item


def _split(data: bytes) -> tuple[bytes, TResponseInputItem | None]:
    """Return a history without its last item, and that item; lines without an item stay."""
    end = len(data)
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        item = _item(from_json(data[start:end]))
        if item is not None:
            return data[:start] + data[end:], item
        end = start
    return data, None


class _Line(NamedTuple):
    """A line of a history, with its end of line; ``item`` is None if it holds none."""

    start: int
    text: bytes
    item: TResponseInputItem | None


def _lines(data: bytes) -> Iterator[_Line]:
    start = 0
    for text in io.BytesIO(data):
        yield _Line(start, text, _item(from_json(text)))
        start += len(text)


def _without_expired(data: bytes, is_expired: IsExpired | None) -> bytes:
    """Return a history without the expired items at its beginning."""
    if is_expired is None:
        return data
    for line in _lines(data):
        if line.item is None or not is_expired(line.item):
            return data[line.start :]
    return b""
