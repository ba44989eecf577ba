"""Every answer of the MCP server, including structured content, resources and errors, is bounded with a hint."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents

from agent_memory import AsyncAgentMemory
from agent_memory.mcp_server import MAX_RESOURCES
from agent_memory.mcp_server._server import MAX_LISTING_CHARACTERS, MAX_RESOURCE_BYTES
from agent_memory.tools.results import MAX_AROUND, MAX_CHARACTERS
from tests.support import sizes
from tests.support.mcp_clients import both_eras, connected, text_of
from tests.tools.test_bounds import HUGE, LONG_NAME, QUOTES, VALUES

pytestmark = pytest.mark.asyncio

MOST = MAX_CHARACTERS + MAX_AROUND


async def filled(memory: AsyncAgentMemory) -> None:
    await memory.write("line.md", "needle " + "x" * 10 * HUGE)
    await memory.write("lines.md", f"needle {QUOTES}\n" * 5000)
    await memory.write("bytes.bin", b"\xff\x00" * HUGE)
    for number in range(100):
        await memory.write(f"many/{LONG_NAME}/{number:04}.md", f"needle {QUOTES}\n" * 3)


async def calls(client: Client) -> list[tuple[str, dict[str, Any]]]:
    """Calls of every tool with every value of every parameter, together with valid other parameters.

    In the short run, every third of them.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    tools = sorted((await client.list_tools()).tools, key=lambda tool: tool.name not in ("view", "search"))
    for tool in tools:  # reading tools first
        parameters = tool.input_schema["properties"]
        values = {name: [value for value in VALUES[name] if is_json(value)] for name in parameters}
        good = {name: values[name][0] for name in tool.input_schema["required"]}
        found += [(tool.name, {**good, name: value}) for name in values for value in values[name]]
        found.append((tool.name, dict.fromkeys(values, "x" * HUGE)))
        found.append((tool.name, {"x" * HUGE: "x"}))
    return [*(found if sizes.is_long else found[::3]), ("no such tool", {"x": "y" * HUGE})]


def is_json(value: object) -> bool:
    return len(repr(value)) < 4000 or isinstance(value, str)  # the SDK's client cannot write longer numbers


@both_eras
async def test_every_answer_of_every_tool_is_bounded(mode: str) -> None:
    async with connected(mode=mode) as (client, memory):
        await filled(memory)
        longest = dict[str, int]()
        for name, arguments in await calls(client):
            result = await client.call_tool(name, arguments)
            assert len(text_of(result)) <= MOST, name
            assert len(json.dumps(result.structured_content or {}, ensure_ascii=False)) <= MOST, name
            longest[name] = max(longest.get(name, 0), len(text_of(result)))
        assert longest["view"] > 14_000
        assert longest["search"] > 10_000


@both_eras
async def test_an_error_that_quotes_the_request_is_bounded(mode: str) -> None:
    long = "x" * HUGE
    async with connected(mode=mode) as (client, _):
        for request in (
            client.read_resource("memory://" + long),
            client.read_resource("other://" + long),
            client.read_resource("memory://a.md?offset=" + "1" * HUGE),
            client.get_prompt(long),
            client.call_tool(long, {}),
        ):
            with pytest.raises(MCPError) as raised:
                await request
            assert len(raised.value.error.model_dump_json()) <= MOST


async def test_following_the_search_hints_returns_every_match_once() -> None:
    async with connected() as (client, memory):
        for number in range(40):
            await memory.write(f"{LONG_NAME}/{number:04}.md", f"needle {QUOTES}\n" * 4)
        arguments: dict[str, Any] = {"query": "needle", "context": 3, "max_results": 200}
        found: list[tuple[str, int]] = []
        while True:
            result = await client.call_tool("search", arguments)
            data = result.structured_content or {}
            found += [(match["path"], match["line"]) for match in data["matches"]]
            if not data["more"]:
                break
            assert f"go on with after {json.dumps(data['next'])}" in text_of(result)
            arguments["after"] = data["next"]
    assert found == [(f"/memories/{LONG_NAME}/{number:04}.md", line) for number in range(40) for line in (1, 2, 3, 4)]


CONTENTS = {
    "one line": b"x" * 100_000,
    "characters of three bytes": "\u30e1".encode() * 20_000 + b"x",
    "no text": b"\xff\x00" * 30_000,
    "text, then none": b"x" * MAX_RESOURCE_BYTES + b"\xff" * 20_000,
    "exactly the bound": b"x" * MAX_RESOURCE_BYTES,
    "one more": b"x" * (MAX_RESOURCE_BYTES + 1),
    "no text, under the bound": b"\xff" * MAX_RESOURCE_BYTES,
    "nothing": b"",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@both_eras
async def test_following_the_hints_of_a_resource_returns_every_byte_once(content: bytes, mode: str) -> None:
    async with connected(mode=mode) as (client, memory):
        await memory.write("a b.md", content)
        uri, parts = "memory://a%20b.md", list[bytes]()
        while uri:
            result = await client.read_resource(uri)
            part, told = result.contents[0], note(result)
            assert len(result.model_dump_json()) < 2 * MOST
            parts.append(base64.b64decode(part.blob) if isinstance(part, BlobResourceContents) else part.text.encode())
            on = re.search(r"Read (memory://\S+\?offset=\d+) for the next", told)
            uri = on[1] if on else ""
        assert b"".join(parts) == content


def note(result: ReadResourceResult) -> str:
    """The hint about the rest of a file."""
    told = result.contents[1:]
    assert len(told) <= 1
    for content in told:
        assert isinstance(content, TextResourceContents)
        return content.text
    return ""


async def test_each_file_is_on_exactly_one_page_of_the_resource_listing() -> None:
    names = [*(f"{number:04}.md" for number in range(MAX_RESOURCES + 5)), *(f"{LONG_NAME}/{n:04}" for n in range(200))]
    async with connected() as (client, memory):
        for name in names:
            await memory.write(name, "x")
        found: list[str] = []
        cursor = None
        while True:
            page = await client.list_resources(cursor=cursor)
            assert len(page.resources) <= MAX_RESOURCES
            assert sum(len(item.uri) + len(item.name) for item in page.resources) <= MAX_LISTING_CHARACTERS
            found += [item.name for item in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert found == names
