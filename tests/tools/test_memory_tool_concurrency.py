"""Forty sessions edit one file at once: no edit is lost or refused. (Not on moto, which is not atomic.)"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.testing import race
from agent_memory.tools import AsyncMemoryTool, MemoryTool, ToolResult
from tests.support.servers import ATOMIC, Root
from tests.tools.calls import succeeded

SESSIONS = 40
NOTES = {"command": "create", "path": "/memories/notes.md", "file_text": "# Notes\n"}
DONE = ToolResult("The file /memories/notes.md has been edited.")
CREATED = "File created successfully at: /memories/notes.md"
TAKEN = "Error: File /memories/notes.md already exists"
on_every_atomic_backend = pytest.mark.parametrize("root", ATOMIC, indirect=True)


def insert(number: int) -> dict[str, object]:
    return {"command": "insert", "path": "/memories/notes.md", "insert_line": 1, "insert_text": f"- line {number}"}


def done(number: int) -> dict[str, object]:
    replaced = {"old_str": f"<{number}> is open", "new_str": f"{number} done"}
    return {"command": "str_replace", "path": "/memories/notes.md", **replaced}


def assert_all_are_there(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        first, *lines = memory.read("notes.md").removesuffix("\n").split("\n")
    assert first == "# Notes"
    assert sorted(lines) == sorted(f"- line {number}" for number in range(SESSIONS))


@on_every_atomic_backend
def test_forty_concurrent_async_inserts_keep_forty_lines(root: Root) -> None:
    async def use() -> list[ToolResult]:
        async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
            tool = AsyncMemoryTool(memory)
            succeeded(await tool.call(NOTES))
            return await asyncio.gather(*(tool.call(insert(number)) for number in range(SESSIONS)))

    assert asyncio.run(use()) == [DONE] * SESSIONS
    assert_all_are_there(root)


@on_every_atomic_backend
def test_forty_threads_inserting_at_once_keep_forty_lines(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        tool = MemoryTool(memory)
        succeeded(tool.call(NOTES))
        assert race([partial(tool.call, insert(number)) for number in range(SESSIONS)]) == [DONE] * SESSIONS
    assert_all_are_there(root)


@on_every_atomic_backend
def test_exactly_one_racing_creator_wins_and_the_others_get_an_error(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        tool = MemoryTool(memory)
        claims = [{**NOTES, "file_text": f"{number}"} for number in range(8)]
        results = race([partial(tool.call, claim) for claim in claims])
        won = [number for number, result in enumerate(results) if result == ToolResult(CREATED)]
        assert len(won) == 1
        assert memory.read("notes.md") == f"{won[0]}"
    assert results.count(ToolResult(TAKEN, is_error=True)) == 7


@on_every_atomic_backend
def test_no_concurrent_replacement_of_different_words_is_lost(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.write("notes.md", "".join(f"<{number}> is open\n" for number in range(12)))
        tool = MemoryTool(memory)
        for result in race([partial(tool.call, done(number)) for number in range(12)]):
            assert isinstance(result, ToolResult)
            succeeded(result)
        assert memory.read("notes.md") == "".join(f"{number} done\n" for number in range(12))
