"""The memory tool for the tool runner of Claude's Python SDK. Needs ``pip install 'agent-memory-files[anthropic]'``."""

from __future__ import annotations

from typing import TypedDict, Unpack

from agent_memory.core.sync_facade import step
from agent_memory.integrations.toolkit import unusable
from agent_memory.memory import AgentMemory, AsyncAgentMemory
from agent_memory.tools._each_file import LeftOut, each_file
from agent_memory.tools._protected import logic_view
from agent_memory.tools._strings import StringSet
from agent_memory.tools.memory_tool import AsyncMemoryTool, MemoryTool, OnExisting
from agent_memory.tools.results import ToolResult

try:
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types.beta import BetaCacheControlEphemeralParam, BetaMemoryTool20250818Command
except ImportError as error:
    raise unusable("anthropic", "anthropic", error) from error

__all__ = ["AgentMemoryTool", "AsyncAgentMemoryTool"]


class _Options(TypedDict, total=False):
    """The options of `MemoryTool`."""

    on_existing: OnExisting
    strings: StringSet
    max_view_characters: int
    history: bool
    conversation: bool


class AgentMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for ``client.beta.messages.tool_runner(tools=[...])``, over one memory.

    Args:
        memory: the tree that is ``/memories``.
        cache_control: see the SDK.
        **options: ``on_existing``, ``strings``, ``max_view_characters``, ``history``, ``conversation`` of `MemoryTool`.

    Every failure becomes a `ToolError`; the model sees only its text.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(memory, **options)
        self._memory = logic_view(AgentMemory, memory, False, options.get("conversation", True))

    def call(self, input: object) -> str:  # noqa: A002 - the SDK's name
        """Run the tool's input unchanged; the SDK would not check it."""
        return _output(self._tool.call(input))  # type: ignore[arg-type]  # any input is answered

    def execute(self, command: BetaMemoryTool20250818Command) -> str:
        """Run a command object of the SDK."""
        return self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = execute

    def clear_all_memory(self) -> str:
        """Delete every file of the memory except the files of a conversation.

        Raises:
            ToolError: some files could not be deleted; all others were.
        """
        return step(_clear(self._memory))


class AsyncAgentMemoryTool(BetaAsyncAbstractMemoryTool):
    """`AgentMemoryTool` for the async client."""

    def __init__(
        self,
        memory: AsyncAgentMemory,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = AsyncMemoryTool(memory, **options)
        self._memory = logic_view(AsyncAgentMemory, memory, False, options.get("conversation", True))

    async def call(self, input: object) -> str:  # noqa: A002 - the SDK's name
        """Run the tool's input unchanged; the SDK would not check it."""
        return _output(await self._tool.call(input))  # type: ignore[arg-type]  # any input is answered

    async def execute(self, command: BetaMemoryTool20250818Command) -> str:
        """Run a command object of the SDK."""
        return await self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> str:
        """As `AgentMemoryTool.clear_all_memory`."""
        return await _clear(self._memory)


async def _clear(memory: AsyncAgentMemory) -> str:
    left_out: list[LeftOut] = []
    entries = await memory.list()
    await each_file(memory, memory.delete, [entry.path for entry in entries], left_out)
    if left_out:
        path, reason = min(left_out)
        raise ToolError(f"{len(left_out)} of {len(entries)} files could not be deleted; one is {path}: {reason}")
    return "All memory cleared"


def _output(result: ToolResult) -> str:
    if result.is_error:
        raise ToolError(result.output)
    return result.output
