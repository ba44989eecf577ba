"""The tools as plain functions, and the files of a memory, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.tools import AsyncMemoryTool, MemoryTool, ToolResult
from tests.support.servers import Root

Call = Callable[..., ToolResult]
"""The type of ``call(command, **parameters)`` of a memory tool."""
Kind = Literal["sync", "async"]


def caller(memory: AgentMemory, **options: Any) -> Call:
    """The six commands on a memory; keyword arguments are passed to the tool."""
    tool = MemoryTool(memory, **options)
    return lambda command, **parameters: tool.call({"command": command, **parameters})


def async_caller(memory: AsyncAgentMemory, **options: Any) -> Call:
    """Like `caller`, with the async tool; each call runs in a new event loop."""
    tool = AsyncMemoryTool(memory, **options)
    return lambda command, **parameters: asyncio.run(tool.call({"command": command, **parameters}))


@contextmanager
def opened(root: Root, kind: Kind) -> Iterator[Callable[..., Call]]:
    """A function that makes a sync or async `caller` on a root with the tool's options."""
    if kind == "sync":
        with AgentMemory.open(root.url, storage_options=root.options) as memory:
            yield lambda **options: caller(memory, **options)
    else:
        other = AsyncAgentMemory.open(root.url, storage_options=root.options)
        yield lambda **options: async_caller(other, **options)
        asyncio.run(other.aclose())


def everything(memory: AgentMemory) -> dict[str, bytes]:
    """The bytes of every file by path."""
    return {entry.path: memory.read_bytes(entry.path) for entry in memory.list()}


def fill(memory: AgentMemory, files: Mapping[str, str | bytes]) -> AgentMemory:
    """Write files and return the memory."""
    for path, content in files.items():
        memory.write(path, content.encode() if isinstance(content, str) else content)
    return memory


def succeeded(result: ToolResult) -> str:
    """The output of a call that must succeed."""
    assert not result.is_error, result.output
    assert result.status == "success"
    return result.output


def refused(result: ToolResult) -> str:
    """The output of a call that must be an error."""
    assert result.is_error, result.output
    assert result.status == "error"
    return result.output
