"""Never executed: type checkers check this use of the public API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

from agent_memory import (
    ABSENT,
    SHA256,
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    Budget,
    Capabilities,
    Entry,
    Limits,
    Operation,
    Outcome,
    Statistics,
    TreeResult,
    WriteResult,
    agent_id,
    external_id,
    hookimpl,
)
from agent_memory.filesystem import AgentMemoryFileSystem, filesystem
from agent_memory.plugins.audit import AuditPlugin


class Observer:
    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None: ...


def sync_api(path: Path) -> None:
    with AgentMemoryService(path, plugins=[Observer(), AuditPlugin(path / "audit.jsonl")]) as service:
        assert_type(service.limits(), Limits | None)
        assert_type(service.statistics(), Statistics)
        assert_type(Limits(warn_at={"a.md": Budget(lines=1)}).warn_at, Mapping[str, Budget])
        memory = service.agent(agent_id("slack:C0123"))
        assert_type(memory, AgentMemory)
        assert_type(service.agent_ids(), tuple[str, ...])
        assert_type(service.read_memory_file("a", "b"), str)
        assert_type(service.append_to_memory_file("a", "b", "c"), WriteResult)
        assert_type(service.list_memory_files("a"), tuple[Entry, ...])
    assert_type(memory.write("a", "b", when=SHA256("0" * 64)), WriteResult)
    assert_type(memory.edit("a", str.upper), WriteResult)
    assert_type(memory.read_bytes("a"), bytes)
    assert_type(memory.append("a", b"b"), WriteResult)
    assert_type(memory.write_blocks("a", [b"b"], 1, when=ABSENT), WriteResult)
    assert_type(filesystem(memory), AgentMemoryFileSystem)
    assert_type(memory.rename("a", "b"), TreeResult)
    assert_type(memory.list("a", recursive=False), tuple[Entry, ...])
    assert_type(memory.subtree("a").read_only().acting_as("me", "call-1"), AgentMemory)
    assert_type(memory.capabilities, Capabilities)
    assert_type(AgentMemory.open("memory://x"), AgentMemory)
    assert_type(external_id("a"), str)
    memory.write("a", 5)  # type: ignore[arg-type]


async def async_api() -> None:
    async with AsyncAgentMemoryService("memory://x", storage_options={}, actor="me") as service:
        memory = service.agent("a")
        assert_type(memory, AsyncAgentMemory)
        assert_type(await service.read_memory_file("a", "b"), str)
        assert_type(await service.agent_ids(), tuple[str, ...])
    assert_type(await memory.append("a", "b"), WriteResult)
    assert_type(await memory.list(), tuple[Entry, ...])
    assert_type(memory.read_only(), AsyncAgentMemory)
