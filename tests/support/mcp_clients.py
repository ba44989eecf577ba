"""MCP clients for the tests: connections, and complete sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from io import TextIOWrapper
from typing import Any, NamedTuple, TextIO

import pytest
from anyio import wrap_file
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, Implementation, TextContent, TextResourceContents

from agent_memory import AsyncAgentMemory, Operation, hookimpl
from agent_memory.mcp_server import mcp_server
from agent_memory_memory import MemoryBackend
from tests.support import sizes
from tests.support.forked import popen
from tests.support.servers import Root

both_eras = pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.long)])
"""The protocol of a client: the current one, and the earlier one with its handshake."""
TESTER = Implementation(name="tester", version="1")


class Answer(NamedTuple):
    """The answer of a tool: its text, and whether it is an error."""

    text: str
    is_error: bool


def over_stdio(command: Sequence[str], errors: TextIO, mode: str = "auto", *, real: bool = False) -> Client:
    """A client that starts the server; the server's stderr goes to a file.

    In the short run the server is forked, unless it must be ``real``: then the SDK starts the command.
    """
    if real or sizes.is_long:
        server = StdioServerParameters(command=command[0], args=[*command[1:]])
        return Client(stdio_client(server, errors), mode=mode, client_info=TESTER)
    return Client(_forked(command, errors), mode=mode, client_info=TESTER)


@asynccontextmanager
async def _forked(command: Sequence[str], errors: TextIO) -> AsyncIterator[Any]:
    """The connection to a forked server, which must end well when it is closed."""
    with popen(command, stderr=errors.fileno()) as process:
        answers, requests = (wrap_file(TextIOWrapper(pipe)) for pipe in (process.stdout, process.stdin) if pipe)
        async with stdio_server(answers, requests) as streams:  # reads and writes lines, as a client does
            yield streams
            await requests.aclose()
    assert process.returncode == 0


@asynccontextmanager
async def over_http(url: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that sends a token."""
    async with create_mcp_http_client({"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, client_info=TESTER) as client:
            yield client


async def called(client: Client, tool: str, **arguments: Any) -> Answer:
    """The answer of a tool. Check that only the matches of a search are structured content."""
    result = await client.call_tool(tool, arguments)
    assert (result.structured_content is not None) == (tool == "search" and not result.is_error)
    return Answer(text_of(result), bool(result.is_error))


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def resource(client: Client, uri: str) -> str:
    """The text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


SESSION: Sequence[tuple[str, Mapping[str, Any], str]] = [
    ("create", {"path": "/memories/notes.md", "file_text": "one\ntwo\n"}, "File created successfully at: "),
    ("view", {"path": "/memories"}, "Here're the files and directories up to 2 levels deep in /memories"),
    ("view", {"path": "/memories/notes.md", "view_range": [2, 2]}, "Here's the content of /memories/notes.md"),
    ("str_replace", {"path": "/memories/notes.md", "old_str": "two", "new_str": "zwei"}, "The memory file has been"),
    ("insert", {"path": "/memories/notes.md", "insert_line": 2, "insert_text": "three"}, "The file /memories/notes.md"),
    ("append", {"path": "/memories/notes.md", "text": "four"}, "The text was added to /memories/notes.md."),
    ("append", {"path": "/memories/notes.md", "text": "five"}, "The text was added to /memories/notes.md."),
    ("append", {"path": "/memories/new/log.md", "text": "THREE"}, "The text was added to /memories/new/log.md."),
    ("search", {"query": "three"}, "/memories/new/log.md:1: THREE\n/memories/notes.md:3: three"),
    ("search", {"query": "three", "path": "/memories/new", "glob": "*.md"}, "/memories/new/log.md:1: THREE"),
    ("search", {"query": "three", "glob": "/memories/new/*"}, "/memories/new/log.md:1: THREE"),
    ("search", {"query": "absent"}, "No matches found for absent."),
    ("rename", {"old_path": "/memories/notes.md", "new_path": "/memories/old/notes.md"}, "Successfully renamed "),
]
AFTERWARDS = {"new/log.md": "THREE", "old/notes.md": "one\nzwei\nthree\nfour\nfive"}


async def hold_session(client: Client) -> None:
    """Use all eight tools and the resources; the memory is empty before and after."""
    for tool, arguments, answer in SESSION:
        told = await called(client, tool, **arguments)
        assert not told.is_error, told
        assert told.text.startswith(answer)
    listed = (await client.list_resources()).resources
    assert {item.uri: item.size for item in listed} == {
        f"memory://{path}": len(text) for path, text in AFTERWARDS.items()
    }
    for path, text in AFTERWARDS.items():
        assert await resource(client, f"memory://{path}") == text
    for directory in ("new", "old"):
        deleted = await called(client, "delete", path=f"/memories/{directory}")
        assert deleted == (f"Successfully deleted /memories/{directory}", False)
    assert (await client.list_resources()).resources == []


async def insert_forty_lines(clients: Sequence[Client]) -> None:
    """Make 40 concurrent inserts into one file from several clients. Check that none is refused or lost."""
    await clients[0].call_tool("create", {"path": "/memories/log.md", "file_text": ""})
    lines = [f"line {number}" for number in range(40)]
    answers = await asyncio.gather(
        *(
            called(clients[number % len(clients)], "insert", path="/memories/log.md", insert_line=0, insert_text=line)
            for number, line in enumerate(lines)
        )
    )
    assert set(answers) == {("The file /memories/log.md has been edited.", False)}
    kept = await resource(clients[0], "memory://log.md")
    assert sorted(kept.splitlines()) == sorted(lines)
    await clients[0].call_tool("delete", {"path": "/memories/log.md"})


@asynccontextmanager
async def all_of(clients: Sequence[Any]) -> AsyncIterator[list[Client]]:
    """Several connected clients."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client) for client in clients]


class Watcher:
    """A plugin that records operations with their actors, and refused names."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str | None]] = []
        self.refused: list[str] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        self.done.append((operation.kind, operation.actor))

    @hookimpl
    def agent_memory_key_rejected(self, text: str) -> None:
        self.refused.append(text)


@asynccontextmanager
async def memory_at(root: Root, *plugins: object) -> AsyncIterator[AsyncAgentMemory]:
    async with AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=plugins) as memory:
        yield memory


@asynccontextmanager
async def connected(*plugins: object, mode: str = "auto") -> AsyncIterator[tuple[Client, AsyncAgentMemory]]:
    async with AsyncAgentMemory.open(MemoryBackend(), plugins=plugins) as memory:
        async with Client(mcp_server(memory), mode=mode, client_info=TESTER) as client:
            yield client, memory
