"""The MCP server: its tools, its resources, and the actor of each call."""

from __future__ import annotations

import codecs
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolResult,
    InputRequiredResult,
    ListResourcesResult,
    PaginatedRequestParams,
    Resource,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from agent_memory.core.actor import Actor
from agent_memory.errors import DISTRIBUTION, AgentMemoryError, AgentMemoryFileNotFoundError, InvalidPathError
from agent_memory.mcp_server._definitions import INSTRUCTIONS, definitions
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import MARK
from agent_memory.reading.reader import Reader
from agent_memory.tools._paths import ROOT
from agent_memory.tools._protected import for_tools
from agent_memory.tools._toolset import Toolset, table
from agent_memory.tools.agent_tools import MAX_READ_BYTES
from agent_memory.tools.arguments import shown
from agent_memory.tools.results import MAX_AROUND, MAX_CHARACTERS, ToolResult, cut

MAX_RESOURCES: Final = 1000
"""The most files in one page of a listing of resources."""
MAX_LISTING_CHARACTERS: Final = 250_000
"""The most characters of names and URIs in one page of a listing of resources."""
MAX_RESOURCE_BYTES: Final = MAX_CHARACTERS
"""The most bytes of a file that one read of a resource returns."""
_SCHEME: Final = "memory://"
_LONGEST_TOOL_NAME: Final = 128
_PART: Final = re.compile(r"(.*)\?offset=([0-9]{1,18})", re.DOTALL)
"""A file and an offset in it; no name in a memory contains a question mark."""


def mcp_server(
    memory: AsyncAgentMemory | Callable[[AccessToken], AsyncAgentMemory],
    *,
    name: str = "agent-memory",
    actor: str | None = None,
    history: bool = False,
    conversation: bool = True,
    versions: bool = False,
) -> MCPServer[Any]:
    """Create a server of one memory, for any number of clients; the caller closes the memory.

    Args:
        memory: the tree that is ``/memories``; or a function that returns the tree, with its actor, for the access
            token of a request, so that each user can have one. Then a request without an access token is refused.
        name: the server's name for clients.
        actor: the actor for the hooks; None: the subject of the access token, without one the client's own name, as
            ``mcp:<name>``.
        history: whether clients may read the files of a conversation; see `agent_memory.tools.MemoryTool`.
        conversation: whether the tree may hold a conversation; see `agent_memory.tools.MemoryTool`.
        versions: whether clients get the tools ``memory_versions`` and ``memory_restore``, for a store that keeps
            versions.

    Raises:
        TypeError: ``actor`` is neither a str nor None, or ``history``, ``conversation`` or ``versions`` is not a bool.
    """
    options = _ServerOptions(history, conversation, versions)
    for option, value in options._asdict().items():
        if not isinstance(value, bool):
            raise TypeError(f"{option} must be True or False, not {value!r}")
    if not callable(memory):
        for_tools(AsyncAgentMemory, memory, history, conversation)  # checks its type
    return _MemoryServer(memory, name, Actor.of(actor).actor, options)


class _ServerOptions(NamedTuple):
    history: bool
    conversation: bool
    versions: bool


class _MemoryServer(MCPServer[Any]):
    """An MCP server with its own tools and listings, instead of those of the SDK's registries.

    The registries would validate arguments by the signatures of functions, quote the arguments in their answers, and
    list only resources that are registered one by one. Registered tools and resources are served too.
    """

    def __init__(
        self,
        memory: AsyncAgentMemory | Callable[[AccessToken], AsyncAgentMemory],
        name: str,
        actor: str | None,
        options: _ServerOptions,
    ) -> None:
        version = importlib.metadata.version(DISTRIBUTION)
        # The server is not notified of changes by other programs, so it offers no subscriptions.
        super().__init__(name, instructions=INSTRUCTIONS, version=version, log_level="WARNING", subscriptions=False)
        self._memory = memory
        self._actor = actor
        self._options = options
        self.middleware.append(_with_bounded_errors)
        self._lowlevel_server.add_request_handler("resources/list", PaginatedRequestParams, self._page)
        self._add_files()

    async def list_tools(self) -> list[Tool]:
        return [*definitions(versions=self._options.versions), *await super().list_tools()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        if len(name) > _LONGEST_TOOL_NAME:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {shown(name)}")
        if name not in table(versions=self._options.versions):
            return await super().call_tool(name, arguments, context)
        tools = Toolset(self._for(context), self._options.history, self._options.conversation)
        return _answer(await tools.call(name, arguments))

    async def list_resources(self) -> list[Resource]:
        """The first page of the files, and all registered resources."""
        files, _ = await self._files_after("")
        return [*files, *await super().list_resources()]

    async def _page(self, _: Any, params: PaginatedRequestParams) -> ListResourcesResult:
        """A page of the files in the order of their paths; the cursor is the last path of the previous page."""
        files, is_last = await self._files_after(params.cursor or "")
        others = await super().list_resources() if is_last else []
        return ListResourcesResult(resources=[*files, *others], next_cursor=None if is_last else files[-1].name)

    async def _files_after(self, path: str) -> tuple[list[Resource], bool]:
        memory = self._for(None)
        try:
            entries = await memory.list()
        except Exception as error:
            raise MCPError(INTERNAL_ERROR, _told(error)) from error  # the SDK would send the text of any error
        start = path.encode(errors="replace")
        left = (entry for entry in entries if entry.path.encode() > start)
        page, room = list[Resource](), MAX_LISTING_CHARACTERS
        for entry in left:
            resource = Resource(uri=_uri(entry.path), name=entry.path, size=entry.size)
            room -= len(resource.uri) + len(resource.name)
            if len(page) == MAX_RESOURCES or room < 0:
                return page, False
            page.append(resource)
        return page, True

    async def read_resource(
        self, uri: Any, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        if not str(uri).startswith(_SCHEME):
            return await super().read_resource(uri, context)
        return await self._read(str(uri).removeprefix(_SCHEME), context)

    async def _read(self, quoted: str, context: Context[Any, Any] | None = None) -> list[ReadResourceContents]:
        """Read a file, or a part of it and a note how to continue.

        The key grammar confines the path, as it does all names. If the SDK refused the path first, the hook
        agent_memory_key_rejected would not be called for attempts to escape.
        """
        part = _PART.fullmatch(quoted)
        quoted, start = (part[1], int(part[2])) if part else (quoted, 0)

        async def work(reader: Reader) -> tuple[bytes, int]:
            return await reader.read(start, start + MAX_RESOURCE_BYTES), reader.size

        memory = self._for(context)
        try:
            path = unquote(quoted, errors="strict")
            data, size = await memory.scan(path, work)
        except UnicodeDecodeError:
            raise ResourceNotFoundError("the path is not percent-encoded UTF-8") from None
        except (AgentMemoryFileNotFoundError, InvalidPathError) as error:
            raise ResourceNotFoundError(str(error)) from error
        except Exception as error:
            raise ResourceError(_told(error)) from error
        content, end = _decoded(data, start, size)
        found = [ReadResourceContents(content, _mime_type(content))]
        if end < size:
            then = f"{_SCHEME}{quoted}?offset={end}"
            note = f"[Bytes {start} to {end} of {size} are here. Read {then} for the next, or view {ROOT}/{path}]"
            found.append(ReadResourceContents(note, "text/plain"))
        return found

    def _add_files(self) -> None:
        about = (
            "A file of the memory; the path is as in the tools, without /memories/ and percent-encoded. A read returns "
            f"at most {MAX_RESOURCE_BYTES:,} bytes; ?offset=N after the path sets the first byte."
        )

        @self.resource(_SCHEME + "{+path}", name="memory file", description=about)
        async def read(path: str) -> str | bytes:
            raise ResourceNotFoundError(path)  # never called: read_resource reads the files; this adds the template

    def _for(self, context: Context[Any, Any] | None) -> AsyncAgentMemory:
        """The memory of one request as tools see it, with its actor for the hooks."""
        token = get_access_token()
        memory = self._tree(token)
        view = for_tools(AsyncAgentMemory, memory, self._options.history, self._options.conversation)
        actor = self._actor
        if actor is None:
            actor = token.subject if token else _client(context)
        return view if actor is None else view.acting_as(actor)

    def _tree(self, token: AccessToken | None) -> AsyncAgentMemory:
        """The tree for an access token; never another one if there is no token, or it names no tree."""
        if not callable(self._memory):
            return self._memory
        if token is None:
            raise MCPError(INVALID_REQUEST, "this server needs an access token of its OAuth issuer")
        try:
            return self._memory(token)
        except AgentMemoryError as error:
            raise MCPError(INVALID_REQUEST, str(error)) from error


def _client(context: Context[Any, Any] | None) -> str | None:
    """The client by its own name; None if a program calls, or the client gives no name."""
    try:
        params = (context or Context()).session.client_params
    except ValueError:  # there is no request
        return None
    return f"mcp:{shown(params.client_info.name)}" if params else None


def _answer(result: ToolResult) -> CallToolResult:
    """A text, with its records as structured content if it has some.

    Claude Code and Codex show a model the JSON of structured content in place of the text, also without a schema. There
    quotes, backslashes, tabs and line ends are escaped: a model that copies a line into str_replace finds nothing.
    """
    text = TextContent(type="text", text=result.output)
    structured = None if result.data is None else dict(result.data)
    return CallToolResult(content=[text], structured_content=structured, is_error=result.is_error)


async def _with_bounded_errors(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Cut the errors of the SDK, which quote the request; its validation errors quote nothing and are not cut."""
    try:
        return await call_next(ctx)
    except ValidationError:
        raise
    except MCPError as error:
        data = error.data if len(json.dumps(error.data, default=str)) <= MAX_AROUND else None
        raise MCPError(error.code, cut(error.message, MAX_CHARACTERS), data) from error
    except Exception as error:
        if len(str(error)) <= MAX_CHARACTERS:
            raise
        raise MCPError(INTERNAL_ERROR, cut(str(error), MAX_CHARACTERS)) from error


def _decoded(data: bytes, start: int, size: int) -> tuple[str | bytes, int]:
    """Decode a part of a file to text for a model, or to bytes if it is not UTF-8; its end splits no character."""
    is_cut = start + len(data) < size
    try:
        text, used = codecs.utf_8_decode(data, "strict", not is_cut)
    except UnicodeDecodeError:
        data = data[:MAX_READ_BYTES]  # base64 is longer
        return data, start + len(data)
    if is_cut and text.endswith("\r"):
        text, used = text[:-1], used - 1  # the next part begins with it, and may have the other half of a line end
    return (text if start else text.removeprefix(MARK.decode())).replace("\r\n", "\n"), start + used


def _told(error: Exception) -> str:
    """The text of an error for a client; the text of other errors could name a host path."""
    return str(error) if isinstance(error, AgentMemoryError) else f"the memory failed ({type(error).__name__})"


def _uri(path: str) -> str:
    return _SCHEME + quote(path)


def _mime_type(content: str | bytes) -> str:
    return "text/plain" if isinstance(content, str) else "application/octet-stream"
