"""The MCP server with real clients connected in memory, on every backend; as a process in tests/cli/test_mcp.py."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel.helper_types import ReadResourceContents

from agent_memory import AsyncAgentMemory
from agent_memory.backend import BlockingBackend
from agent_memory.mcp_server import OAuth, mcp_server, serve_http
from agent_memory_memory import MemoryBackend
from tests.integrations.obedient import BAD_NAMES, obeyed
from tests.support.mcp_clients import (
    TESTER,
    Watcher,
    all_of,
    both_eras,
    called,
    connected,
    hold_session,
    insert_forty_lines,
    memory_at,
    resource,
    text_of,
)
from tests.support.servers import ATOMIC, Root

pytestmark = pytest.mark.asyncio

HOSTILE_PATHS = [
    ("/memories/12:30 meeting.md", "/memories/12-30 meeting.md"),
    ("/memories/Q&A?.md", "/memories/Q&A.md"),
    ("/memories/../../etc/passwd", "/memories/etc/passwd"),
    ("/memories/%2e%2e/x.md", "/memories/x.md"),
    ("/memories/a/..\\b", "/memories/a"),
    ("/memories/C:\\x.md", "/memories/"),
    ("/memories/a\0b.md", "/memories/ab.md"),
    ("/memories/" + "x" * 100_000, "/memories/xxx"),
    ("/memories/\ud800.md", "/memories/"),
    ("/etc/passwd", "/memories"),
    ("/memoriesX/a.md", "/memories"),
    ("../x", "/memories"),
    ("", "/memories"),
]
MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("view", {}),
    ("view", {"path": None}),
    ("view", {"path": 7}),
    ("view", {"path": ["/memories"]}),
    ("view", {"path": "/memories/kept.md", "view_range": "[1, 2]"}),
    ("view", {"path": "/memories/kept.md", "view_range": [1.5, "2"]}),
    ("create", {"path": "/memories/a.md"}),
    ("create", {"path": "/memories/a.md", "file_text": {"text": "x"}}),
    ("create", {"path": "/memories/a.md", "file_text": "\ud800"}),
    ("create", {"path": "/memories/a.md", "file_text": "x" * 50_000_001}),
    ("create", {"path": "/memories", "file_text": "x"}),
    ("str_replace", {"path": "/memories/kept.md", "old_str": ""}),
    ("str_replace", {"path": "/memories/kept.md", "old_str": "absent"}),
    ("insert", {"path": "/memories/kept.md", "insert_line": "0", "insert_text": "x"}),
    ("insert", {"path": "/memories/kept.md", "insert_line": True, "insert_text": "x"}),
    ("insert", {"path": "/memories/kept.md", "insert_line": 10**30, "insert_text": "x"}),
    ("insert", {"path": "/memories/kept.md", "insert_line": -1, "insert_text": "x"}),
    ("append", {"path": "/memories/kept.md"}),
    ("append", {"path": "/memories/kept.md", "text": 7}),
    ("append", {"path": "/memories/kept.md", "text": "x" * 50_000_001}),
    ("append", {"path": "/memories", "text": "x"}),
    ("append", {"path": "/memories/kept.md/below", "text": "x"}),
    ("delete", {"path": "/memories"}),
    ("delete", {"path": "/memories/absent.md"}),
    ("rename", {"old_path": "/memories/kept.md"}),
    ("rename", {"old_path": "/memories", "new_path": "/memories/x"}),
    ("rename", {"old_path": "/memories/absent.md", "new_path": "/memories/x"}),
    ("search", {"query": ""}),
    ("search", {"query": 7}),
    ("search", {"query": "x", "max_results": 0}),
    ("search", {"query": "x", "context": "2"}),
    ("search", {"query": "x", "path": "/etc"}),
    ("format_disk", {}),
]


def every_tool_on(path: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("view", {"path": path}),
        ("create", {"path": path, "file_text": "x"}),
        ("str_replace", {"path": path, "old_str": "x"}),
        ("insert", {"path": path, "insert_line": 0, "insert_text": "x"}),
        ("append", {"path": path, "text": "x"}),
        ("delete", {"path": path}),
        ("rename", {"old_path": path, "new_path": "/memories/x.md"}),
        ("search", {"query": "x", "path": path}),
    ]


@both_eras
async def test_a_client_can_use_all_tools_and_resources_in_one_session(root: Root, mode: str) -> None:
    async with memory_at(root) as memory, Client(mcp_server(memory), mode=mode) as client:
        await hold_session(client)
        assert await memory.list() == ()


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
async def test_forty_inserts_of_several_clients_at_once_keep_forty_lines(root: Root) -> None:
    async with memory_at(root) as memory, all_of([Client(mcp_server(memory)) for _ in range(4)]) as clients:
        await insert_forty_lines(clients)


@both_eras
async def test_every_tool_is_described_annotated_and_has_schemas(mode: str) -> None:
    async with connected(mode=mode) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "below /memories" in (client.instructions or "")
    hints = {}
    for name, tool in tools.items():
        assert tool.annotations
        assert tool.annotations.open_world_hint is False
        told = tool.annotations
        hints[name] = (told.read_only_hint, told.destructive_hint, told.idempotent_hint)
        assert "/memories" in (tool.description or "")
        assert tool.input_schema["additionalProperties"] is False
        assert all(parameter["description"] for parameter in tool.input_schema["properties"].values())
        assert (tool.output_schema is not None) == (name == "search")  # a client may show only what has a schema
    read_only, destructive, idempotent = True, True, True
    assert hints == {
        "view": (read_only, False, idempotent),
        "create": (False, False, idempotent),
        "str_replace": (False, destructive, False),
        "insert": (False, False, False),
        "delete": (False, destructive, idempotent),
        "rename": (False, destructive, idempotent),
        "append": (False, False, False),
        "search": (read_only, False, idempotent),
    }


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_model_that_follows_the_advice_writes_with_it(name: str) -> None:
    async with connected() as (client, memory):
        path = f"/memories/{name}"
        for tool, text in (("create", "file_text"), ("append", "text")):
            refused = await called(client, tool, path=path, **{text: "x"})
            assert refused.is_error
            advised = obeyed(path, refused.text)
            assert not (await called(client, tool, path=advised, **{text: "kept"})).is_error
        (entry,) = await memory.list()
        assert (f"/memories/{entry.path}", await memory.read(entry.path)) == (advised, "kept\nkept")


async def test_a_second_call_of_an_idempotent_tool_changes_nothing() -> None:
    async with connected() as (client, memory):
        calls: list[tuple[str, dict[str, str]]] = [
            ("create", {"path": "/memories/a.md", "file_text": "x"}),
            ("rename", {"old_path": "/memories/a.md", "new_path": "/memories/b.md"}),
            ("delete", {"path": "/memories/b.md"}),
        ]
        for tool, arguments in calls:
            assert not (await called(client, tool, **arguments)).is_error
            files = await memory.list()
            assert (await called(client, tool, **arguments)).is_error
            assert await memory.list() == files


@both_eras
async def test_a_search_returns_its_matches_as_data(mode: str) -> None:
    async with connected(mode=mode) as (client, memory):
        await memory.write("a/b.md", "one\nTwo\nthree\n")
        result = await client.call_tool("search", {"query": "two", "context": 1, "max_results": 1})
    match = {"path": "/memories/a/b.md", "line": 2, "text": "Two", "before": ["one"], "after": ["three"]}
    assert text_of(result) == "/memories/a/b.md-1- one\n/memories/a/b.md:2: Two\n/memories/a/b.md-3- three\n--"
    assert result.structured_content == {"matches": [match], "more": False}


@pytest.mark.parametrize(("path", "suggestion"), HOSTILE_PATHS, ids=range(len(HOSTILE_PATHS)))
async def test_a_hostile_path_is_an_error_with_a_suggestion_and_is_reported_to_the_hooks(
    path: str, suggestion: str
) -> None:
    watcher = Watcher()
    async with connected(watcher) as (client, memory):
        for tool, arguments in every_tool_on(path):
            told = await called(client, tool, **arguments)
            assert told.is_error, (tool, told)
            assert suggestion in told.text
            assert len(told.text) < 1000
        assert await memory.list() == ()
    assert len(watcher.refused) == (8 if path else 0)


@both_eras
async def test_hostile_arguments_give_error_results_and_the_server_continues(mode: str) -> None:
    async with connected(mode=mode) as (client, memory):
        await memory.write("kept.md", "kept\n")
        for tool, arguments in MALFORMED:
            told = await called(client, tool, **arguments)
            assert told.is_error, (tool, arguments)
            assert "Traceback" not in told.text
            assert len(told.text) < 1000
        assert await memory.read("kept.md") == "kept\n"
        assert [entry.path for entry in await memory.list()] == ["kept.md"]


@both_eras
async def test_the_hooks_receive_the_client_as_the_actor(mode: str) -> None:
    watcher = Watcher()
    async with connected(watcher, mode=mode) as (client, _):
        await client.call_tool("append", {"path": "/memories/a.md", "text": "x"})
        await client.read_resource("memory://a.md")
    assert watcher.done == [("read", "mcp:tester"), ("append", "mcp:tester"), ("read", "mcp:tester")]


async def test_the_hooks_receive_the_given_actor() -> None:
    watcher = Watcher()
    async with AsyncAgentMemory.open(MemoryBackend(), plugins=[watcher]) as memory:
        async with Client(mcp_server(memory, actor="nightly-job"), client_info=TESTER) as client:
            await client.call_tool("append", {"path": "/memories/a.md", "text": "x"})
            await client.list_resources()
    assert watcher.done == [("read", "nightly-job"), ("append", "nightly-job"), ("list", "nightly-job")]


async def test_a_program_can_call_the_server_without_a_client() -> None:
    watcher = Watcher()
    async with AsyncAgentMemory.open(MemoryBackend(), plugins=[watcher], actor="me") as memory:
        server = mcp_server(memory)
        assert await server.call_tool("append", {"path": "/memories/a.md", "text": "x"})
        (content,) = cast("list[ReadResourceContents]", await server.read_resource("memory://a.md"))
    assert (content.content, content.mime_type) == ("x", "text/plain")
    assert watcher.done == [("read", "me"), ("append", "me"), ("read", "me")]


class Broken(MemoryBackend):
    """A backend with a programming error whose message names a host path."""

    def read(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("/host/path")

    stat = list = write = delete = append = read


@both_eras
async def test_the_error_of_a_fault_names_no_host_path(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert isinstance(Broken(), BlockingBackend)
    async with AsyncAgentMemory.open(Broken()) as memory, Client(mcp_server(memory), mode=mode) as client:
        for tool, arguments in [
            ("view", {"path": "/memories"}),
            ("append", {"path": "/memories/a.md", "text": "x"}),
            ("search", {"query": "x"}),
        ]:
            told = await called(client, tool, **arguments)
            assert told == ("Error: the memory failed (RuntimeError)", True)
        for request in (client.list_resources(), client.read_resource("memory://a.md")):
            with pytest.raises(MCPError, match="the memory failed"):
                await request


async def test_additionally_registered_tools_and_resources_are_served() -> None:
    async with AsyncAgentMemory.open(MemoryBackend()) as memory:
        server = mcp_server(memory, name="mine")

        @server.tool()
        def twice(number: int) -> int:
            return 2 * number

        @server.resource("about://me")
        def about() -> str:
            return "an example"

        async with Client(server) as client:
            assert client.server_info
            assert client.server_info.name == "mine"
            assert (await client.call_tool("twice", {"number": 4})).structured_content == {"result": 8}
            assert (await client.list_tools()).tools[-1].name == "twice"
            assert await resource(client, "about://me") == "an example"
            assert [item.uri for item in (await client.list_resources()).resources] == ["about://me"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "2001:db8::1"])
async def test_http_is_served_beyond_loopback_only_with_a_public_url(host: str) -> None:
    async with AsyncAgentMemory.open(MemoryBackend()) as memory:
        with pytest.raises(ValueError, match="can be reached by other hosts: give the public URL"):
            await serve_http(mcp_server(memory), token="t" * 16, host=host)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "needs a token or an OAuth issuer"),
        ({"token": "t" * 16, "oauth": OAuth("https://issuer.example")}, "and not both"),
        ({"token": "t" * 16, "host": "localhost"}, "must be an IP address"),
        ({"token": "t" * 16, "host": ""}, "must be an IP address"),
        ({"token": "t" * 16, "public_url": "https://a/?x"}, "the public URL must be"),
        ({"token": "t" * 16, "public_url": "ftp://a"}, "the public URL must be"),
        ({"token": "t" * 16, "graceful_timeout": 0}, "1 second or more"),
    ],
)
async def test_http_is_served_only_with_valid_arguments(arguments: dict[str, Any], told: str) -> None:
    async with AsyncAgentMemory.open(MemoryBackend()) as memory:
        with pytest.raises(ValueError, match=told):
            await serve_http(mcp_server(memory), **arguments)


async def test_a_server_for_users_serves_no_request_without_an_access_token() -> None:
    async with AsyncAgentMemory.open(MemoryBackend()) as memory:
        async with Client(mcp_server(lambda _: memory)) as client:
            for request in (
                client.call_tool("create", {"path": "/memories/a.md", "file_text": "x"}),
                client.list_resources(),
                client.read_resource("memory://a.md"),
            ):
                with pytest.raises(MCPError, match="needs an access token"):
                    await request
        assert await memory.list() == ()


@pytest.mark.parametrize("token", ["", "short", "t" * 16 + "\n", "t t" * 16, "é" * 16])
async def test_http_is_served_only_with_a_token(token: str) -> None:
    async with AsyncAgentMemory.open(MemoryBackend()) as memory:
        with pytest.raises(ValueError, match="the token must be 16 or more"):
            await serve_http(mcp_server(memory), token=token)
