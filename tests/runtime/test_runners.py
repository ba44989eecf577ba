"""Where flows run: in the caller's thread, in the executor or in the caller's loop; never on the I/O loop."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import threading
from collections.abc import Generator
from typing import Any

import fsspec.asyn
import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, Outcome, UnsupportedOperationError, hookimpl
from agent_memory.registry import open_backend
from agent_memory.runtime.run import Run, step
from agent_memory.runtime.runners import run_async, run_sync
from agent_memory.runtime.threads import in_thread
from tests.support.servers import S3Server


class Threads:
    """A plugin that records the thread of every hook call."""

    def __init__(self) -> None:
        self.seen: list[threading.Thread] = []

    @hookimpl
    def agent_memory_after_operation(self, outcome: Outcome) -> None:
        assert outcome.status == "ok"
        self.seen.append(threading.current_thread())


def test_a_sync_call_runs_completely_in_the_callers_thread() -> None:
    threads = Threads()
    seen: list[threading.Thread] = []
    with AgentMemory.open("memory://", plugins=[threads]) as memory:
        memory.write("a.md", "x")

        def change(text: str) -> str:
            seen.append(threading.current_thread())
            return text + "y"

        memory.edit("a.md", change)
    assert {*threads.seen, *seen} == {threading.current_thread()}


def test_an_async_call_on_a_blocking_backend_runs_completely_in_the_executor() -> None:
    threads = Threads()

    async def use() -> None:
        async with AsyncAgentMemory.open("memory://", plugins=[threads]) as memory:
            await memory.write("a.md", "x")

    asyncio.run(use())
    assert [thread.name.startswith("agent-memory") for thread in threads.seen] == [True]


def test_hooks_of_an_async_backend_do_not_block_an_event_loop(ministack: S3Server) -> None:
    threads = Threads()

    async def use() -> None:
        async with AsyncAgentMemory.open(ministack.new_backend(), plugins=[threads]) as memory:
            await memory.write("a.md", "x")

    asyncio.run(use())
    io_threads = {threading.main_thread(), *(t for t in threading.enumerate() if t.name == "fsspecIO")}
    assert len(threads.seen) == 1
    assert not io_threads & set(threads.seen)


def test_a_sync_call_on_the_io_loop_is_refused_instead_of_deadlocking(ministack: S3Server) -> None:
    with AgentMemory.open(ministack.new_backend()) as memory:

        async def call() -> None:
            memory.read("a.md")

        with pytest.raises(UnsupportedOperationError, match="AsyncAgentMemory"):
            fsspec.asyn.sync(fsspec.asyn.get_loop(), call)


def test_the_executor_sees_the_callers_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def use() -> str:
        variable.set("set")
        return await in_thread(variable.get)

    assert asyncio.run(use()) == "set"


def test_an_async_caller_is_not_blocked_while_a_blocking_backend_works() -> None:
    entered, release = threading.Event(), threading.Event()

    def change(text: str) -> str:
        entered.set()
        assert release.wait(60)
        return text + "!"

    async def use() -> str:
        async with AsyncAgentMemory.open("memory://") as memory:
            await memory.write("a.md", "x")
            editing = asyncio.create_task(memory.edit("a.md", change))
            while not entered.is_set():  # noqa: ASYNC110 - another thread sets the event
                await asyncio.sleep(0)
            release.set()
            await editing
            return await memory.read("a.md")

    assert asyncio.run(use()) == "x!"


def test_a_flow_that_awaits_no_primitive_and_no_run_raises_runtime_error() -> None:
    class Suspends:
        def __await__(self) -> Generator[None]:
            yield

    async def flow() -> None:
        await Suspends()

    with pytest.raises(RuntimeError, match="neither a primitive nor its Run"):
        step(flow())


def test_map_runs_every_item_and_keeps_their_order(ministack: S3Server) -> None:
    async def squares(run: Run) -> list[int]:
        async def square(number: int) -> int:
            return number * number

        return await run.map(square, range(50), 8)

    expected = [number * number for number in range(50)]
    with AgentMemory.open("memory://") as blocking, AgentMemory.open(ministack.new_backend()) as hopping:
        assert run_sync(blocking._tree.backend, squares) == expected
        assert run_sync(hopping._tree.backend, squares) == expected


def _use_in_child(results: Any) -> None:
    async def use() -> str:
        async with AsyncAgentMemory.open("memory://") as memory:
            await memory.write("a.md", "child")
            return await memory.read("a.md")

    results.put(asyncio.run(use()))


def test_a_failing_item_cancels_the_others_but_not_the_calling_task(ministack: S3Server) -> None:
    backend = open_backend(ministack.new_url(), ministack.options)
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 2:
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await run_async(backend, lambda run: run.map(work, range(3), 3))
        assert sorted(ended) == [0, 1]
        task = asyncio.current_task()
        assert task
        assert not task.cancelling()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")  # this test forks on purpose
def test_a_forked_child_has_its_own_executor() -> None:
    asyncio.run(in_thread(lambda: None))  # the parent's executor has threads now
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_use_in_child, args=(results,))
    child.start()
    assert results.get(timeout=60) == "child"
    child.join(10)
