"""Async callers share a few threads: a wait for a lock occupies no thread, and a hook may call the async API."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AppendError,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    Operation,
    Outcome,
    hookimpl,
)
from agent_memory.runtime import threaded
from agent_memory.runtime import threads as threads_module
from agent_memory_local import _locks
from agent_memory_memory import MemoryBackend
from tests.backends.local.test_locks import end, held_by_another_process
from tests.core.test_hooks import AsyncTwin

SECONDS = 60
WAITERS = 200


@pytest.fixture
def root(tmp_path: Path) -> Path:
    memory = AgentMemory.open(tmp_path / "root")
    memory.write("a/log.md", "old\n")
    for number in range(40):
        memory.write(f"dir{number}/file.md", "x")
    return tmp_path / "root"


@pytest.fixture(params=["file", "tree"])
def holder(request: pytest.FixtureRequest, root: Path) -> Iterator[Popen[str]]:
    """Another process that holds the lock of a file or of its tree."""
    kind: str = request.param
    holder = held_by_another_process(kind, root / "a" / "log.md" if kind == "file" else root)
    try:
        yield holder
    finally:
        end(holder)


async def until_waiting(count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while threaded._waiting_flows.count != count:  # noqa: ASYNC110 - threads count
            await asyncio.sleep(0.01)


def threads() -> int:
    return sum(thread.name.startswith("agent-memory") for thread in threading.enumerate())


def test_calls_that_wait_for_a_lock_occupy_no_thread(root: Path, tmp_path: Path, holder: Popen[str]) -> None:
    async def use() -> None:
        memory = AsyncAgentMemory.open(root)
        waiting = [asyncio.create_task(memory.append("a/log.md", f"{number}\n")) for number in range(WAITERS)]
        await until_waiting(WAITERS)
        async with asyncio.timeout(SECONDS):
            await others_work(memory, tmp_path)
        assert not any(task.done() for task in waiting)
        assert threads() <= threads_module.THREADS
        gone, left = waiting[::2], waiting[1::2]
        for task in gone:
            task.cancel()
        await until_waiting(len(left))
        await asyncio.gather(*gone, return_exceptions=True)
        end(holder)
        await asyncio.gather(*left)
        assert all(task.cancelled() for task in gone)
        lines = (await memory.read("a/log.md")).splitlines()
        assert sorted(lines) == sorted(["old", *(str(number) for number in range(1, WAITERS, 2))])
        assert threaded._waiting_flows.count == 0

    asyncio.run(use())


async def others_work(memory: AsyncAgentMemory, tmp_path: Path) -> None:
    assert await memory.read("a/log.md") == "old\n"
    async with AsyncAgentMemoryService(tmp_path / "other") as service:
        await service.append_to_memory_file("bob", "log.md", "x")
        assert await service.read_memory_file("bob", "log.md") == "x"
    async with AsyncAgentMemory.open("memory://") as other:
        await other.append("log.md", "x")
        assert await other.read("log.md") == "x"


def test_renames_and_appends_that_wait_for_a_trees_lock_occupy_no_thread(root: Path, tmp_path: Path) -> None:
    async def use() -> None:
        holder = held_by_another_process("tree", root)
        try:
            memory = AsyncAgentMemory.open(root)
            renames = [memory.rename(f"dir{number}", f"new{number}") for number in range(40)]
            appends = [memory.append("a/log.md", "x\n") for _ in range(40)]
            waiting = asyncio.gather(*renames, *appends)
            await until_waiting(80)
            async with asyncio.timeout(SECONDS):
                await others_work(memory, tmp_path)
        finally:
            end(holder)
        await waiting
        assert (await memory.read("a/log.md")).count("x\n") == 40
        assert len(await memory.list()) == 41
        assert await memory.exists("new39/file.md")

    asyncio.run(use())


@pytest.mark.parametrize("timeout", [None, 0.05])
def test_an_async_call_waits_no_longer_than_its_timeout_and_names_the_lock(
    root: Path, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    if timeout is None:
        monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 0.05)
    holder = held_by_another_process("file", root / "a" / "log.md")

    async def use() -> None:
        memory = AsyncAgentMemory.open(root, timeout=timeout)
        with pytest.raises(AppendError, match=r"waited 0.05 s for the lock of the file, held by another writer"):
            await memory.append("a/log.md", "new")
        assert await memory.read("a/log.md") == "old\n"

    try:
        asyncio.run(use())
    finally:
        end(holder)


_caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="none")


class Told:
    """A plugin that records each outcome with the caller's context variable."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str, str | None]] = []
        self.told = threading.Semaphore(0)

    @hookimpl
    def agent_memory_after_operation(self, outcome: Outcome) -> None:
        self.outcomes.append((_caller.get(), outcome.status, outcome.error))
        self.told.release()


def test_cancelled_and_completed_waits_are_reported_once_in_their_callers_context(root: Path) -> None:
    told = Told()
    holder = held_by_another_process("file", root / "a" / "log.md")

    async def append(name: str, memory: AsyncAgentMemory) -> None:
        _caller.set(name)
        await memory.append("a/log.md", name)

    async def use() -> None:
        memory = AsyncAgentMemory.open(root, plugins=[told])
        one, other = (asyncio.create_task(append(name, memory)) for name in ("one", "other"))
        await until_waiting(2)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert await asyncio.to_thread(told.told.acquire, timeout=SECONDS)
        assert told.outcomes == [("one", "unknown", "interrupted")]
        end(holder)
        await other
        assert told.outcomes[1:] == [("other", "ok", None)]

    try:
        asyncio.run(use())
    finally:
        end(holder)


def test_a_call_cancelled_at_any_moment_leaves_no_waiting_flow(root: Path) -> None:
    holder = held_by_another_process("file", root / "a" / "log.md")

    async def use() -> None:
        memory = AsyncAgentMemory.open(root)
        for turn in range(300):
            task = asyncio.create_task(memory.append("a/log.md", "new"))
            await asyncio.sleep(turn * 0.00002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until_waiting(0)
        end(holder)
        await memory.append("a/log.md", "last")
        assert await memory.read("a/log.md") == "old\nlast"

    try:
        asyncio.run(use())
    finally:
        end(holder)


class Calls:
    """A hook that calls the async API, but only after as many hooks are running as the executor has threads."""

    def __init__(self, call: Callable[[Callable[[], Awaitable[Any]]], object]) -> None:
        self.other = AsyncAgentMemory.open(MemoryBackend())
        self.call = call
        self.barrier = threading.Barrier(threads_module.THREADS)
        self.places = threading.Semaphore(threads_module.THREADS)
        self.texts: list[str] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        if self.places.acquire(blocking=False):
            self.barrier.wait(SECONDS)
        self.call(lambda: self.use(operation.path))

    async def use(self, path: str) -> None:
        await self.other.append(path, "x")
        self.texts.append(await self.other.read(path))


@pytest.mark.parametrize("backend", [MemoryBackend, lambda: AsyncTwin(MemoryBackend())], ids=["blocking", "async"])
@pytest.mark.parametrize("way", ["a loop of its own", "the caller's loop"])
def test_a_hook_may_call_the_async_api(backend: Callable[[], Any], way: str) -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()

        def in_own_loop(work: Callable[[], Any]) -> None:
            asyncio.run(work())

        def in_callers_loop(work: Callable[[], Any]) -> None:
            asyncio.run_coroutine_threadsafe(work(), loop).result(SECONDS)

        calls = Calls(in_own_loop if way == "a loop of its own" else in_callers_loop)
        memory = AsyncAgentMemory.open(backend(), plugins=[calls])
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(memory.write(f"{number}.md", "x") for number in range(100)))
        assert calls.texts == ["x"] * 100

    asyncio.run(use())


def test_hooks_that_call_hooks_do_not_deadlock_on_a_single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "THREADS", 1)
    monkeypatch.setattr(threads_module, "_executors", {})
    depths: list[int] = []

    class Recursive:
        @hookimpl
        def agent_memory_after_operation(self, operation: Operation) -> None:
            depth = int(operation.path.removesuffix(".md"))
            depths.append(depth)
            if depth:
                asyncio.run(memory.write(f"{depth - 1}.md", "x"))

    memory = AsyncAgentMemory.open("memory://", plugins=[Recursive()])

    async def use() -> None:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(memory.write("5.md", "x") for _ in range(8)))

    asyncio.run(use())
    assert sorted(depths) == sorted([5, 4, 3, 2, 1, 0] * 8)
