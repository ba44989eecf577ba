"""A `Storage` and tools of Strands Agents over a memory. Needs ``pip install 'agent-memory-files[strands]'``."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, InvalidPathError
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelTool,
    async_view,
    checked_id,
    known_text,
    mapped_errors,
    model_tools,
    record_segment,
    refusal,
    unusable,
)
from agent_memory.key import Key, encode_segment

try:
    from strands.storage import Storage
    from strands.tools import PythonAgentTool
    from strands.types.exceptions import StorageError
    from strands.types.tools import ToolResult, ToolUse
except ImportError as error:
    raise unusable("strands-agents", "strands", error) from error

__all__ = ["AgentMemoryStorage", "memory_tools"]

_TEXTS: Final = ".texts"
_ENCODED: Final = ".encoded"
"""The end of a segment that is not the text itself."""
_ERRORS: Final = {
    InvalidPathError: lambda error: StorageError(f"the storage key is refused: {refusal(error)}"),
    AgentMemoryError: lambda error: StorageError(str(error)),
}


class AgentMemoryStorage(Storage):
    """The storage of an agent: each key is the path of a file in the memory.

    As in the SDK's own storages, slashes at both ends and repeated slashes are removed from a key, and a key with a
    backslash or a segment ``..`` is refused. Any other segment that the memory refuses, such as a session id ``a:b``,
    is encoded by `agent_memory.encode_segment`, with the end ``.encoded``; one over 240 bytes is also kept in
    ``.texts/``.

    Args:
        memory: the tree that holds the files.

    Every error of the memory is a `StorageError`. `search` is the SDK's own search by keywords, over all keys.

    Raises:
        TypeError: ``memory`` is no memory.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = async_view(memory)
        self._prefix: tuple[str, ...] = ()

    async def write(self, key: str, data: bytes) -> None:
        """Write a file in one atomic step; the last writer wins. See `Storage.write`."""
        content = bytes(memoryview(data))
        with mapped_errors(_ERRORS):
            for text in self._texts(key):
                if not _is_plain(text, is_first=False):
                    await record_segment(self._memory, text, _ENCODED)
            await self._memory.write(self._path(key), content)

    async def read(self, key: str) -> bytes | None:
        """See `Storage.read`."""
        with mapped_errors(_ERRORS), suppress(AgentMemoryFileNotFoundError):
            return await self._memory.read_bytes(self._path(key))
        return None

    async def delete(self, key: str) -> None:
        """See `Storage.delete`."""
        with mapped_errors(_ERRORS), suppress(AgentMemoryFileNotFoundError):
            await self._memory.delete(self._path(key))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with a text, sorted; the directory of the text is listed. See `Storage.list`."""
        directory, _, name = _checked_prefix("query", query).rpartition("/")
        start = "/".join((*_segments(directory), name))
        known = dict[tuple[str, bool], str | None]()
        with mapped_errors(_ERRORS):
            found = await self._memory.list(self._path(directory, allow_empty=True))
            keys = [await self._key(entry.path, known) for entry in found]
        return sorted(key for key in keys if key is not None and key.startswith(start))

    def namespace(self, prefix: str) -> AgentMemoryStorage:
        """Return a storage of the keys below a prefix; its `search` reads only these.

        Raises:
            StorageError: the prefix has a backslash or a segment ``..``.
        """
        inner = AgentMemoryStorage(self._memory)
        inner._prefix = self._texts(_checked_prefix("prefix", prefix))
        return inner

    def _texts(self, key: str) -> tuple[str, ...]:
        return (*self._prefix, *_segments(checked_id("key", key)))

    def _path(self, key: str, *, allow_empty: bool = False) -> str:
        """The path of a key; "" is refused by the memory, unless it is that of a listing."""
        if not _segments(checked_id("key", key)) and not allow_empty:
            raise StorageError("a storage key must name a file")
        texts = enumerate(self._texts(key))
        return "/".join(_segment(text, is_first=not at) for at, text in texts)

    async def _key(self, path: str, known: dict[tuple[str, bool], str | None]) -> str | None:
        """The key of a path, below the prefix; None if no key has this path."""
        texts = builtins.list[str]()
        for at, segment in enumerate(path.split("/")):
            if (segment, not at) not in known:
                known[segment, not at] = await self._text(segment, is_first=not at)
            if (text := known[segment, not at]) is None:
                return None
            texts.append(text)
        return "/".join(texts[len(self._prefix) :])

    async def _text(self, segment: str, *, is_first: bool) -> str | None:
        if segment == _TEXTS:
            return None
        if _is_plain(segment, is_first=is_first):
            return segment
        return await known_text(self._memory, segment, _ENCODED)


def memory_tools(memory: AnyMemory, *, versions: bool = False) -> list[Any]:
    """Return tools for ``Agent(tools=...)``, with which a model keeps notes; see `toolkit.model_tools`."""
    return [_agent_tool(tool) for tool in model_tools(async_view(memory), versions=versions)]


def _agent_tool(tool: ModelTool) -> PythonAgentTool:
    async def call(use: ToolUse, **_: object) -> ToolResult:
        answer = await tool.call(use["input"], use["toolUseId"])
        return {"toolUseId": use["toolUseId"], "status": answer.status, "content": [{"text": answer.output}]}

    schema = {"json": tool.parameters}
    return PythonAgentTool(tool.name, {"name": tool.name, "description": tool.description, "inputSchema": schema}, call)


def _checked_prefix(name: str, prefix: str) -> str:
    if "\\" in checked_id(name, prefix) or ".." in prefix.split("/"):
        raise StorageError("a prefix of keys must not contain a backslash or a segment '..'")
    return prefix


def _segments(key: str) -> Sequence[str]:
    return [segment for segment in key.split("/") if segment]


def _segment(text: str, *, is_first: bool) -> str:
    return text if _is_plain(text, is_first=is_first) else encode_segment(text, _ENCODED)


def _is_plain(text: str, *, is_first: bool) -> bool:
    """Whether the segment of a path is the text itself: the memory allows it, and it is not that of another text."""
    if text == ".." or "\\" in text:
        return True  # the memory refuses it, as the SDK does
    path = text if is_first else f"x/{text}"
    try:
        return text != _TEXTS and not text.endswith(_ENCODED) and Key.tree().join(path).path == path
    except InvalidPathError:
        return False
