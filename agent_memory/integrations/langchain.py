"""LangChain's `BaseStore[str, bytes]` and tools. Needs ``pip install 'agent-memory-files[langchain]'``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from agent_memory.errors import InvalidPathError
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelTool,
    async_view,
    checked_bytes,
    checked_id,
    done_each,
    known_text,
    map_each,
    mapped_errors,
    model_tools,
    record_segment,
    remove,
    step,
    sync_view,
    unusable,
)
from agent_memory.key import decode_segment, encode_segment
from agent_memory.memory import AsyncAgentMemory

try:
    from langchain_core.stores import BaseStore, InvalidKeyException
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr
except ImportError as error:
    raise unusable("langchain-core", "langchain", error) from error

__all__ = ["AgentMemoryByteStore", "memory_tools"]

_tool_call: ContextVar[str | None] = ContextVar("agent_memory_langchain_tool_call", default=None)


class AgentMemoryByteStore(BaseStore[str, bytes]):
    """A store of bytes by key, for LangChain's caches of embeddings, retrievers and others.

    Each value is one file in the top directory of the memory, byte for byte. Its name is the key, encoded by
    `agent_memory.encode_segment`; a key over 240 bytes is kept in ``.texts/``, also after its value is deleted.
    A key may be any str. A plain file that another program puts there is a value too. The calls change several files
    concurrently, not in one step: what one file cannot do stops no other one, unless the storage itself fails.

    Args:
        memory: the tree of the values.

    Raises `InvalidKeyException` if the memory is a subtree with so long a path that there is no room for the key;
    otherwise the errors of `AgentMemory`, or `PartialOperationError` if several files failed.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._sync, self._async = sync_view(memory), async_view(memory)

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `BaseStore.mget`."""
        return step(_get(self._sync, keys))

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `BaseStore.mget`."""
        return await _get(self._async, keys)

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """See `BaseStore.mset`; the last value of a key wins."""
        step(_set(self._sync, key_value_pairs))

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """See `BaseStore.mset`; the last value of a key wins."""
        await _set(self._async, key_value_pairs)

    def mdelete(self, keys: Sequence[str]) -> None:
        """See `BaseStore.mdelete`; a missing key is no error."""
        step(_delete(self._sync, keys))

    async def amdelete(self, keys: Sequence[str]) -> None:
        """See `BaseStore.mdelete`; a missing key is no error."""
        await _delete(self._async, keys)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """See `BaseStore.yield_keys`; the keys come in the order of their files' names."""
        yield from step(_keys(self._sync, prefix))

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        """See `BaseStore.yield_keys`; the keys come in the order of their files' names."""
        for key in await _keys(self._async, prefix):
            yield key


def _errors() -> AbstractContextManager[None]:
    return mapped_errors({InvalidPathError: lambda error: InvalidKeyException(str(error))})


def _paths(keys: Sequence[str]) -> list[str]:
    return [encode_segment(checked_id("a key", key)) for key in keys]


async def _get(memory: AsyncAgentMemory, keys: Sequence[str]) -> list[bytes | None]:
    paths = _paths(keys)
    with _errors():
        found = await memory.read_many(paths, missing_ok=True, bytes=True)
    return [found.get(path) for path in paths]


async def _set(memory: AsyncAgentMemory, pairs: Sequence[tuple[str, bytes]]) -> None:
    async def write(path: str) -> None:
        key, value = values[path]
        await memory.write(await record_segment(memory, key), checked_bytes(value))

    values = {encode_segment(checked_id("a key", key)): (key, value) for key, value in pairs}
    with _errors():
        await done_each(memory, write, values)


async def _delete(memory: AsyncAgentMemory, keys: Sequence[str]) -> None:
    with _errors():
        await done_each(memory, partial(remove, memory), _paths(keys))


async def _keys(memory: AsyncAgentMemory, prefix: str | None) -> list[str]:
    async def text(segment: str) -> str | None:
        try:
            return decode_segment(segment)
        except InvalidPathError as error:
            return await known_text(memory, segment) if error.rule == "hashed" else None

    files = [entry.path for entry in await memory.list(recursive=False) if not entry.is_directory]
    return [key for key in await map_each(memory, text, files) if key is not None and key.startswith(prefix or "")]


def memory_tools(memory: AnyMemory, *, versions: bool = False) -> list[BaseTool]:
    """Return tools for ``create_agent(tools=...)``, with which a model keeps notes; see `toolkit.model_tools`."""
    return [_NotesTool(tool) for tool in model_tools(async_view(memory), versions=versions)]


class _NotesTool(BaseTool):
    """A tool that gets the id of its call, which LangChain gives only to arguments of a model of Pydantic's."""

    _tool: ModelTool = PrivateAttr()

    def __init__(self, tool: ModelTool) -> None:
        super().__init__(
            name=tool.name, description=tool.description, args_schema=tool.parameters, handle_tool_error=True
        )
        self._tool = tool

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - LangChain's
        """See `BaseTool.invoke`."""
        with _call_of(input):
            return super().invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - LangChain's
        """See `BaseTool.ainvoke`."""
        with _call_of(input):
            return await super().ainvoke(input, config, **options)

    def _run(self, /, **arguments: object) -> str:
        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop already
            return thread.submit(copy_context().run, asyncio.run, self._arun(**arguments)).result()

    async def _arun(self, /, **arguments: object) -> str:
        result = await self._tool.call(arguments, _tool_call.get())
        if result.is_error:
            raise ToolException(result.output)
        return result.output


@contextmanager
def _call_of(given: Any) -> Iterator[None]:
    """Set the id of a call for the tool, which LangChain may run in another thread."""
    token = _tool_call.set(given.get("id") if isinstance(given, dict) and given.get("type") == "tool_call" else None)
    try:
        yield
    finally:
        _tool_call.reset(token)
