"""The tools memory_versions and memory_restore, which a server offers only if it is told to."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client

from agent_memory import AsyncAgentMemory, Budget, Limits, VersionLimits
from agent_memory.mcp_server import mcp_server
from agent_memory.testing.recording import RecordingPlugin
from tests.support.mcp_clients import called

pytestmark = pytest.mark.asyncio
_numbers = itertools.count()
SEEN = RecordingPlugin()


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[AsyncAgentMemory]:
    SEEN.after.clear()
    url = f"memory://mcp-versions-{next(_numbers)}"
    memory = AsyncAgentMemory.open(url, versions=VersionLimits(), plugins=[SEEN], actor="ann")
    yield memory
    await memory.aclose()


async def test_a_server_has_the_tools_only_if_it_is_told_to(memory: AsyncAgentMemory) -> None:
    for versions in (False, True):
        async with Client(mcp_server(memory, versions=versions)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert ({"memory_versions", "memory_restore"} <= tools.keys()) is versions
    assert tools["memory_versions"].annotations
    assert tools["memory_versions"].annotations.read_only_hint
    assert tools["memory_restore"].annotations
    assert tools["memory_restore"].annotations.destructive_hint
    async with Client(mcp_server(memory)) as client:
        assert (await client.call_tool("memory_restore", {"path": "/memories/a.md", "version": "x"})).is_error
    with pytest.raises(TypeError, match="versions must be"):
        mcp_server(memory, versions=1)  # type: ignore[arg-type]


async def test_a_model_brings_a_wrecked_file_back(memory: AsyncAgentMemory) -> None:
    await memory.write("MEMORY.md", "- tea\n- Rome\n")
    await memory.write("MEMORY.md", "- nothing\n")
    async with Client(mcp_server(memory, versions=True)) as client:
        listed, _ = await called(client, "memory_versions", path="/memories/MEMORY.md")
        present, lost = listed.splitlines()
        assert present.endswith("present")
        assert "/memories/MEMORY.md  13 bytes" in lost
        assert "write ann" in lost
        version = lost.split()[0]
        assert await called(client, "memory_versions", path="/memories/MEMORY.md", version=version) == (
            "- tea\n- Rome\n",
            False,
        )
        await called(client, "memory_restore", path="/memories/MEMORY.md", version=version)
        assert await memory.read("MEMORY.md") == "- tea\n- Rome\n"
        await memory.delete("MEMORY.md")
        recent, _ = await called(client, "memory_versions")
        assert recent.splitlines()[0].split()[1] == "/memories/MEMORY.md"
        await called(client, "memory_restore", path="/memories/MEMORY.md", version=version)
    assert await memory.read("MEMORY.md") == "- tea\n- Rome\n"
    restored = [operation for operation, _ in SEEN.after if operation.kind == "restore"]
    assert {operation.actor for operation in restored} == {"mcp:mcp"}


async def test_the_answers_of_all_changing_tools_warn_of_a_budget() -> None:
    limits = Limits(warn_at={"**": Budget(lines=1)})
    memory = AsyncAgentMemory.open("memory://", versions=VersionLimits(), limits=limits)
    async with Client(mcp_server(memory, versions=True)) as client:
        path = {"path": "/memories/a.md"}
        for tool, arguments in (
            ("create", {**path, "file_text": "one\n"}),
            ("append", {**path, "text": "two\n"}),
            ("insert", {**path, "insert_line": 0, "insert_text": "three\n"}),
            ("str_replace", {**path, "old_str": "two", "new_str": "four"}),
            ("rename", {"old_path": "/memories/a.md", "new_path": "/memories/b.md"}),
        ):
            text, _ = await called(client, tool, **arguments)
            assert " of 1 line; move older notes to other files." in text.splitlines()[-1], tool
        version = (await memory.versions.list("b.md"))[-1].id
        text, _ = await called(client, "memory_restore", path="/memories/b.md", version=str(version))
        assert text.endswith(" of 1 line; move older notes to other files.")
    await memory.aclose()


async def test_a_long_list_is_continued(memory: AsyncAgentMemory) -> None:
    for number in range(25):
        await memory.write("a.md", f"{number}")
    async with Client(mcp_server(memory, versions=True)) as client:
        text, _ = await called(client, "memory_versions", path="/memories/a.md")
        *lines, more = text.splitlines()
        assert len(lines) == 20
        after = more.rpartition("=")[2].rstrip("]")
        text, _ = await called(client, "memory_versions", path="/memories/a.md", after=after)
        assert len(text.splitlines()) == 5


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("memory_versions", {"path": 7}, "must be text"),
        ("memory_versions", {"path": "/etc/passwd"}, "/memories"),
        ("memory_versions", {"path": "/memories/../x"}, "/memories"),
        ("memory_versions", {"version": "x"}, "give its path"),
        ("memory_versions", {"path": "/memories/a.md", "version": "x"}, "no version 'x'"),
        ("memory_versions", {"path": "/memories/a.md", "after": "x" * 100_000}, "no version"),
        ("memory_restore", {"path": "/memories/a.md"}, "`version` is missing"),
        ("memory_restore", {"path": "/memories/a.md", "version": "\n\0"}, "no version"),
        ("memory_restore", {"path": "/memories", "version": "x"}, "give its path"),
        ("memory_restore", {"path": "/memories/history.jsonl", "version": "x"}, "history.jsonl"),
    ],
)
async def test_a_mistake_is_told_and_changes_nothing(
    memory: AsyncAgentMemory, tool: str, arguments: dict[str, Any], told: str
) -> None:
    await memory.write("a.md", "1")
    await memory.write("a.md", "2")
    async with Client(mcp_server(memory, versions=True)) as client:
        text, is_error = await called(client, tool, **arguments)
    assert is_error
    assert told in text
    assert len(text) < 5000
    assert await memory.read("a.md") == "2"


async def test_a_conversation_is_neither_listed_nor_restored(memory: AsyncAgentMemory) -> None:
    for text in ("1", "2"):
        await memory.write("history.jsonl", text)
        await memory.write("a.md", text)
    async with Client(mcp_server(memory, versions=True)) as client:
        text, _ = await called(client, "memory_versions")
        assert [line.split()[1] for line in text.splitlines()] == ["/memories/a.md"]
        version = (await memory.versions.list("history.jsonl"))[1].id
        for tool in ("memory_versions", "memory_restore"):
            _, is_error = await called(client, tool, path="/memories/history.jsonl", version=version)
            assert is_error
    async with Client(mcp_server(memory, versions=True, history=True)) as client:
        shown = await called(client, "memory_versions", path="/memories/history.jsonl", version=version)
        assert shown == ("1", False)
        _, is_error = await called(client, "memory_restore", path="/memories/history.jsonl", version=version)
        assert is_error
    assert await memory.read("history.jsonl") == "2"
