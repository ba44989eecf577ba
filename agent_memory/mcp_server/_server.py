"""The server: tools, resources, and for whom a call is made."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import INTERNAL_ERROR, CallToolResult, InputRequiredResult, Resource, TextContent, Tool

from agent_memory._uncopied import Uncopied
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, InvalidPathError
from agent_memory.mcp_server._definitions import INSTRUCTIONS, definitions
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._toolset import TOOLS, Toolset
from agent_memory.tools.arguments import shown
from agent_memory.tools.results import ToolResult

MAX_RESOURCES: Final = 1000
"""The most files that one listing of resources names; the view and search tools know all of them."""
_SCHEME: Final = "memory://"


def mcp_server(memory: AsyncAgentMemory, *, name: str = "agent-memory", actor: str | None = None) -> MCPServer[Any]:
    """A server of one memory, for any number of clients; the caller closes the memory.

    Args:
        memory: the tree that is ``/memories``.
        name: what the server calls itself.
        actor: who acts, for the hooks; left out, each client by the name it gives itself, ``mcp:<name>``.

    Raises:
        TypeError: ``actor`` is neither a str nor None.
    """
    return _MemoryServer(memory, name, actor)


class _MemoryServer(Uncopied, MCPServer[Any]):
    """Tools and listings come from here, not from the SDK's registries.

    Those would validate arguments by the signatures of functions, with answers that quote what was sent, and
    list only resources that are registered one by one. What is registered on the server besides is served too.
    """

    def __init__(self, memory: AsyncAgentMemory, name: str, actor: str | None) -> None:
        version = importlib.metadata.version("agent-memory")
        # Nothing tells this server of changes others make, so it offers no subscriptions.
        super().__init__(name, instructions=INSTRUCTIONS, version=version, log_level="WARNING", subscriptions=False)
        self._memory = memory if actor is None else memory.acting_as(actor)
        self._is_client_actor = actor is None
        self._add_files()

    async def list_tools(self) -> list[Tool]:
        return [*definitions(), *await super().list_tools()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        if name not in TOOLS:
            return await super().call_tool(name, arguments, context)
        return _answer(await Toolset(self._for(context)).call(name, arguments))

    async def list_resources(self) -> list[Resource]:
        try:
            entries = await self._memory.list()
        except Exception as error:
            raise MCPError(INTERNAL_ERROR, _told(error)) from error  # the SDK would send any error's own text
        files = [Resource(uri=_uri(entry.path), name=entry.path, size=entry.size) for entry in entries[:MAX_RESOURCES]]
        return [*files, *await super().list_resources()]

    async def read_resource(
        self, uri: Any, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        contents = await super().read_resource(uri, context)
        if isinstance(contents, InputRequiredResult) or not str(uri).startswith(_SCHEME):
            return contents
        return [replace(item, mime_type=_mime_type(item.content)) for item in contents]

    def _add_files(self) -> None:
        # The key grammar confines the path, at the one door that all names pass; were the SDK to refuse it first,
        # the hook agent_memory_key_rejected would never hear of the escapes that are tried here.
        security = ResourceSecurity(exempt_params={"path"})
        about = "A file of the memory; the path is as in the tools, without /memories/ and percent-encoded."

        @self.resource(_SCHEME + "{+path}", name="memory file", description=about, security=security)
        async def read(path: str, context: Context[Any, Any]) -> str | bytes:
            try:
                data = await self._for(context).read_bytes(path)
            except (AgentMemoryFileNotFoundError, InvalidPathError) as error:
                raise ResourceNotFoundError(str(error)) from error
            except Exception as error:
                raise ResourceError(_told(error)) from error
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data

    def _for(self, context: Context[Any, Any] | None) -> AsyncAgentMemory:
        """The memory as the hooks are to see it in one call."""
        client = _client(context) if self._is_client_actor else None
        return self._memory.acting_as(f"mcp:{client}") if client else self._memory


def _client(context: Context[Any, Any] | None) -> str | None:
    """The name a client gives itself; None if a program calls, or a client that gives none."""
    try:
        params = (context or Context()).session.client_params
    except ValueError:  # there is no request
        return None
    return shown(params.client_info.name) if params else None


def _answer(result: ToolResult) -> CallToolResult:
    structured = None if result.is_error else {"output": result.output, **(result.data or {})}
    text = TextContent(type="text", text=result.output)
    return CallToolResult(content=[text], structured_content=structured, is_error=result.is_error)


def _told(error: Exception) -> str:
    """What a client is told of an error: ours name no host path, others might."""
    return str(error) if isinstance(error, AgentMemoryError) else f"the memory failed ({type(error).__name__})"


def _uri(path: str) -> str:
    return _SCHEME + quote(path)


def _mime_type(content: str | bytes) -> str:
    return "text/plain" if isinstance(content, str) else "application/octet-stream"
