"""Calls that perform each kind of operation, with a canary in all contents and in the texts of errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from agent_memory import SHA256, AgentMemoryError, Limits, Operation, OperationDenied, VersionLimits, hookimpl

CANARY = "canary-5f3a"


async def value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def every_kind(service: Any) -> None:
    """Perform each kind of operation on agent bob's files, with the canary in all contents."""
    memory = service.agent("bob")
    await value(memory.create("a.md", f"{CANARY} one\n"))
    await value(memory.write("a.md", f"{CANARY} two\n"))
    await value(memory.append("a.md", CANARY, separator=f"{CANARY}\n"))
    await value(memory.edit("a.md", str.upper))
    await value(memory.copy("a.md", "dir/b.md"))
    await value(memory.rename("dir/b.md", "dir/c.md"))
    for method in ("read", "stat", "exists"):
        await value(getattr(memory, method)("a.md"))
    await value(memory.list())
    await value(service.agent_ids())
    versions = await value(memory.versions.list("a.md"))
    earlier = [each for each in versions if each.ended_by]
    await value(memory.versions.read("a.md", earlier[0]))
    await value(memory.versions.restore("a.md", earlier[0]))
    await value(memory.versions.redact("a.md", earlier[-1], reason="a test"))
    await value(memory.delete("a.md"))
    await value(memory.delete_tree("dir"))
    await value(memory.write("d.md", CANARY))
    await value(memory.forget("d.md"))
    await value(memory.versions.set_limits(VersionLimits(keep=5)))
    await value(service.set_limits(Limits(file_bytes=1_000_000)))
    await value(memory.versions.prune())
    await failing(memory)


async def failing(memory: Any) -> None:
    """Perform operations that fail, with the canary in the texts of errors."""

    def crash(_: str) -> NoReturn:
        raise ZeroDivisionError(CANARY)

    await value(memory.write("e.md", CANARY))
    calls: list[Callable[[], Any]] = [
        lambda: memory.edit("e.md", crash),
        lambda: memory.write("e.md", CANARY, when=SHA256("0" * 64)),
        lambda: memory.create("e.md", CANARY),
        lambda: memory.read("missing.md"),
        lambda: memory.write("denied.md", CANARY),
        lambda: memory.write("../x.md", CANARY),
        lambda: memory.write("e.md", CANARY + "\ud800"),
    ]
    for call in calls:
        with pytest.raises((AgentMemoryError, ZeroDivisionError)):
            await value(call())


class Guard:
    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.path == "denied.md":
            raise OperationDenied(f"no {CANARY}")
