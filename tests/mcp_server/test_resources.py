"""The files of a memory as resources of its MCP server."""

from __future__ import annotations

import base64

import pytest
from mcp import Client, MCPError
from mcp.types import BlobResourceContents

from agent_memory.mcp_server import MAX_RESOURCES, mcp_server
from tests.support.mcp_clients import Watcher, both_eras, called, connected, memory_at, resource
from tests.support.servers import Root

pytestmark = pytest.mark.asyncio

STRANGE_NAMES = ["a b.md", "café/メモ.md", "100%.md", "a+b&c=d@e,f;g'(h)[i]{j}!#k.md", ".hidden"]


async def test_a_listed_resource_can_be_read_by_its_uri(root: Root) -> None:
    async with memory_at(root) as memory, Client(mcp_server(memory)) as client:
        for name in STRANGE_NAMES:
            await memory.write(name, name)
        listed = (await client.list_resources()).resources
        assert {item.name: item.size for item in listed} == {name: len(name.encode()) for name in STRANGE_NAMES}
        for item in listed:
            assert item.uri.isascii()
            assert await resource(client, item.uri) == item.name


async def test_a_resource_that_is_no_text_is_a_blob() -> None:
    async with connected() as (client, memory):
        await memory.write("a.bin", b"\xff\0")
        (content,) = (await client.read_resource("memory://a.bin")).contents
    assert isinstance(content, BlobResourceContents)
    assert (base64.b64decode(content.blob), content.mime_type) == (b"\xff\0", "application/octet-stream")


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("memory://../x.md", "try 'x.md'"),
        ("memory://%2E%2E%2Fx.md", "try 'x.md'"),
        ("memory://%252e%252e/x.md", "try 'x.md'"),
        ("memory:///etc/passwd", "try 'etc/passwd'"),
        ("memory://a%00b", "try 'ab'"),
        ("memory://12%3A30.md", "try '12-30.md'"),
        ("memory://" + "x" * 10_000, "is refused"),
    ],
    ids=range(7),
)
@both_eras
async def test_an_escaping_uri_is_an_error_with_a_suggestion_and_is_reported_to_the_hooks(
    uri: str, told: str, mode: str
) -> None:
    watcher = Watcher()
    async with connected(watcher, mode=mode) as (client, _):
        with pytest.raises(MCPError, match=told):
            await client.read_resource(uri)
    assert len(watcher.refused) == 1


@pytest.mark.parametrize("uri", ["memory://absent.md", "other://notes.md", "notes.md", "memory://a?b", "memory://"])
async def test_a_missing_resource_is_an_error(uri: str) -> None:
    async with connected() as (client, _):
        with pytest.raises(MCPError):
            await client.read_resource(uri)
        assert not (await called(client, "view", path="/memories")).is_error


async def test_a_listing_of_resources_is_bounded() -> None:
    async with connected() as (client, memory):
        for number in range(MAX_RESOURCES + 1):
            await memory.write(f"{number:04}.md", "x")
        listed = (await client.list_resources()).resources
    assert [item.name for item in listed] == [f"{number:04}.md" for number in range(MAX_RESOURCES)]
