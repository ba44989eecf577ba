"""The memory as tools of an agent framework, from the table of the MCP server."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._toolset import Toolset, description_of, table
from agent_memory.tools.arguments import as_mapping, object_schema
from agent_memory.tools.results import ToolResult, answered

_PREFIX = "memory_"


@dataclass(frozen=True)
class ModelTool:
    """One tool over a memory.

    Attributes:
        name: the name for the model, such as ``memory_view``.
        description: what the tool does.
        parameters: the JSON schema of the arguments.
    """

    name: str
    description: str
    parameters: dict[str, object]
    _memory: AsyncAgentMemory
    _command: str

    async def call(self, arguments: object, tool_call_id: str | None = None) -> ToolResult:
        """Run the tool; never raises for bad input from a model.

        Args:
            arguments: the arguments as the model gave them, an object or its JSON text.
            tool_call_id: the framework's id of this call, for the hooks and the audit log.
        """
        memory = self._memory
        if tool_call_id is not None:
            memory = memory.acting_as(memory._tree.by.actor, tool_call_id)

        async def run() -> ToolResult:
            return await Toolset(memory).call(self._command, as_mapping(arguments))

        return await answered(run)


def model_tools(memory: AsyncAgentMemory, *, versions: bool = False) -> list[ModelTool]:
    """Return the tools over a memory: view, create, str_replace, insert, append, search, rename and delete.

    The model sees the memory as ``/memories``. It cannot reach the files of a conversation.

    Args:
        memory: a view that `async_view` returned.
        versions: whether to add the tools ``memory_versions`` and ``memory_restore``.
    """
    return [
        ModelTool(
            name if name.startswith(_PREFIX) else f"{_PREFIX}{name}",
            description_of(name, schema),
            object_schema(schema.parameters),
            memory,
            name,
        )
        for name, schema in table(versions=versions).items()
    ]
