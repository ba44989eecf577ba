"""Cancel an operation at every await: at the first suspension of its task in the first trial, and so on."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec.asyn

from agent_memory import AgentMemory, AsyncAgentMemory, Limits, OperationDenied, VersionLimits
from agent_memory.audit import records
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from tests.object_store.matrix import CANCELLED, Cell, Cells, Files, Operation, OtherFault, files_of, judged
from tests.support.servers import S3Server

SECONDS = 30
_MANY = 1 << 30


async def cancel_at_every_await(operation: Operation, server: S3Server, after: float) -> list[str]:
    """The state that each trial left, "old" or "new"; "done" for the last trial, which ended before its cancellation.

    ``after``: seconds between the suspension and the cancellation; the I/O loop works in between.
    """
    found: list[str] = []
    for number in range(1, _MANY):
        found.append(await _trial(operation, server, number, after))
        if found[-1] == "done":
            return found
    raise AssertionError


async def close_at_every_await(operation: Operation, server: S3Server, directory: Path) -> list[str]:
    """The same as `cancel_at_every_await`, but the memory is closed right after the cancellation.

    ``directory``: for the audit logs of the trials; each must have a record of a change that was made.
    """
    found: list[str] = []
    for number in range(1, _MANY):
        found.append(await _closing_trial(operation, server, number, directory / f"{number}.jsonl"))
        if found[-1] == "done":
            return found
    raise AssertionError


async def _closing_trial(operation: Operation, server: S3Server, number: int, log: Path) -> str:
    url, reached = server.new_url(), [0]
    versions = VersionLimits() if operation.earlier else None
    with AgentMemory.open(url, storage_options=server.options, versions=versions) as direct:
        for path, text in operation.before.items():
            await asyncio.to_thread(direct.write, path, text)
        if operation.prepare:
            await asyncio.to_thread(operation.prepare, direct)
        before = await asyncio.to_thread(files_of, direct)
        memory = AsyncAgentMemory.open(url, storage_options=server.options, plugins=[AuditPlugin(log, required=True)])
        cancelled = asyncio.Event()
        work = _cancelled_at(number, 0.0, operation.call(memory), reached, cancelled.set)  # type: ignore[arg-type]
        task = asyncio.ensure_future(work)
        waits = asyncio.ensure_future(cancelled.wait())
        await asyncio.wait([task, waits], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await memory.aclose()
        waits.cancel()
        await asyncio.wait([task], timeout=SECONDS)
        files = await asyncio.to_thread(files_of, direct)
    assert files == before or _recorded(log) & {"ok", "unknown"}, f"await {number}: a change without a record: {files}"
    if reached[0] < number:
        return "done"
    return "old" if files == before else "new"


def _recorded(log: Path) -> set[str]:
    """The outcomes in a log, which an operation without a record may not have created."""
    return {str(each.get("outcome")) for each in records(log)} if log.exists() else set()


async def _trial(operation: Operation, server: S3Server, number: int, after: float) -> str:
    url, limits = server.new_url(), _limits_of(operation)
    backend = open_backend(url, server.options)
    versions = VersionLimits() if operation.earlier else None
    with AgentMemory.open(url, storage_options=server.options, versions=versions, limits=limits) as direct:
        for path, text in operation.before.items():
            await asyncio.to_thread(direct.write, path, text)
        sync = AgentMemory.open(backend)
        await asyncio.to_thread(_made_ready, operation, sync)
        memory = AsyncAgentMemory.open(backend)  # it takes a lease of its own
        tasks = asyncio.all_tasks()
        reached = [0]
        work = _cancelled_at(number, after, operation.call(memory), reached)  # type: ignore[arg-type]
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=SECONDS)
        assert task.done(), "an operation that was cancelled goes on"
        files = await asyncio.to_thread(files_of, direct)
        result = CANCELLED if task.cancelled() else "done"
        if result == "done":
            task.result()
        told = "OutcomeUnknownError" if result == CANCELLED else result
        fault = await asyncio.to_thread(judged, told, operation, direct)
        assert not fault.startswith(("lost", "twice")), f"await {number}: {fault}: {files}"
        await _require_nothing_left(tasks)
        await _require_next(memory, sync, operation)
        await _fill(memory, sync, limits)
        _require_within(limits, await asyncio.to_thread(files_of, direct))
        await memory.aclose()
    if reached[0] < number:
        return "done"
    return "old" if files == operation.before else "new"


def _made_ready(operation: Operation, memory: AgentMemory) -> None:
    memory.write("ready.md", "")
    memory.create("d/ready.md", "")
    if operation.prepare:
        operation.prepare(memory)


@types.coroutine
def _cancelled_at(
    number: int,
    after: float,
    awaited: Awaitable[object],
    reached: list[int],
    told: Callable[[], object] = lambda: None,
) -> Generator[Any, Any, object]:
    steps = awaited.__await__()
    advance: Callable[[], Any] = partial(steps.send, None)
    while True:
        try:
            suspended = advance()
        except StopIteration as stop:
            return stop.value
        reached[0] += 1
        if reached[0] == number:
            task = asyncio.current_task()
            assert task
            asyncio.get_running_loop().call_later(after, partial(_cancel, task, told))
        try:
            advance = partial(steps.send, (yield suspended))
        except BaseException as error:  # noqa: BLE001 - passed on to the operation
            advance = partial(steps.throw, error)


def _cancel(task: asyncio.Task[object], told: Callable[[], object]) -> None:
    task.cancel()
    told()


def _limits_of(operation: Operation) -> Limits:
    """Limits that leave room for the operation, although it may count twice, and for little more."""
    texts = (*operation.before.values(), *operation.after.values())
    return Limits(agent_bytes=4 * sum(map(len, texts)) + 600, agent_files=12)


async def _fill(memory: AsyncAgentMemory, sync: AgentMemory, limits: Limits) -> None:
    """Write until the limits refuse it; the two memories have different leases."""
    assert limits.agent_bytes
    assert limits.agent_files
    text = "x" * (limits.agent_bytes // 6)
    for kind, count, content in (("fill", 4, text), ("empty", limits.agent_files // 2, "")):
        refused = 0
        for number in range(count):
            writes = (
                memory.create(f"{kind} {number}a", content),
                asyncio.to_thread(sync.create, f"{kind} {number}b", content),
            )
            for written in writes:
                try:
                    await written
                except OperationDenied:
                    refused += 1
        assert refused, kind


def _require_within(limits: Limits, files: Files) -> None:
    assert limits.agent_bytes
    assert limits.agent_files
    assert sum(len(text.encode()) for text in files.values()) <= limits.agent_bytes, files.keys()
    assert len(files) <= limits.agent_files, files.keys()


async def _require_nothing_left(before: set[asyncio.Task[Any]]) -> None:
    io_loop = fsspec.asyn.get_loop()
    async with asyncio.timeout(SECONDS):
        while asyncio.all_tasks() - before or asyncio.all_tasks(io_loop):  # noqa: ASYNC110 - threads end the tasks
            await asyncio.sleep(0.005)


async def _require_next(memory: AsyncAgentMemory, sync: AgentMemory, operation: Operation) -> None:
    """Check that the next calls on the same files work, from this loop and from another."""
    for path in sorted({*operation.before, *operation.after}):
        async with asyncio.timeout(SECONDS):
            await memory.append(path, "next\n")
            await asyncio.to_thread(sync.append, path, "next\n")
            assert (await memory.read(path)).endswith("next\nnext\n")


def remember(cells: Cells, engine: str, operation: Operation, found: list[str], end: OtherFault = CANCELLED) -> None:
    """Record the trials of one operation for the page."""
    result = f"{len(found) - 1} awaits: {found.count('old')} old, {found.count('new')} new"
    cells[engine, operation.name, end, False] = Cell(result, 0, 0.0)
