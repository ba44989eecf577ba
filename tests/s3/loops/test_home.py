"""Which event loop of callers has obstore's requests run on it, and what holds there as on fsspec's."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import cast

import fsspec.asyn
import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, OutcomeUnknownError, ReadError
from agent_memory.object_store import Object
from agent_memory.object_store._kept import Kept
from agent_memory_obstore import ObstoreBackend, _home
from agent_memory_obstore._client import ObstoreStore
from agent_memory_obstore._home import Home
from tests.s3.loops.opening import opened
from tests.s3.proxy import Proxy
from tests.servers import S3Server

THREADS = 8


@pytest.fixture
def asked_on(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.AbstractEventLoop]:
    """The event loops on which files were looked at."""
    loops: list[asyncio.AbstractEventLoop] = []
    head = ObstoreStore.head

    async def noted(self: ObstoreStore, name: str) -> Object:
        loops.append(asyncio.get_running_loop())
        return await head(self, name)

    monkeypatch.setattr(ObstoreStore, "head", noted)
    return loops


def test_requests_of_an_async_caller_are_sent_on_its_own_loop(
    server: S3Server, asked_on: list[asyncio.AbstractEventLoop]
) -> None:
    backend = opened(server)
    AgentMemory.open(backend).write("a.md", "x")

    async def ask() -> asyncio.AbstractEventLoop:
        await AsyncAgentMemory.open(backend).stat("a.md")
        return asyncio.get_running_loop()

    assert [asyncio.run(ask()) for _ in range(3)] == asked_on


def test_requests_of_sync_callers_and_of_further_loops_are_sent_on_the_io_loop(
    server: S3Server, asked_on: list[asyncio.AbstractEventLoop]
) -> None:
    backend = opened(server)
    memory = AgentMemory.open(backend)
    memory.write("a.md", "x")

    async def ask() -> None:
        await AsyncAgentMemory.open(backend).stat("a.md")
        memory.stat("a.md")
        await asyncio.to_thread(asyncio.run, AsyncAgentMemory.open(backend).stat("a.md"))

    asyncio.run(ask())
    io_loop = fsspec.asyn.get_loop()
    assert asked_on[0] is not io_loop
    assert asked_on[1:] == [io_loop, io_loop]


def test_all_backends_of_a_process_have_the_same_loop(
    server: S3Server, asked_on: list[asyncio.AbstractEventLoop]
) -> None:
    one, two = opened(server), opened(server)

    async def ask(backend: ObstoreBackend) -> None:
        assert not await AsyncAgentMemory.open(backend).exists("a.md")

    async def ask_both() -> None:
        await ask(one)
        await ask(two)
        await asyncio.to_thread(asyncio.run, ask(two))

    asyncio.run(ask_both())
    assert asked_on[0] is asked_on[1]
    assert asked_on[2] is fsspec.asyn.get_loop()


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_the_next_loop_takes_over_from_one_that_is_closed_or_gone(home: Home) -> None:
    async def claim() -> bool:
        return home.claim()

    one, two, three = (asyncio.new_event_loop() for _ in range(3))
    assert one.run_until_complete(claim())
    assert not two.run_until_complete(claim()), "the first may run again"
    assert one.run_until_complete(claim())
    one.close()
    assert two.run_until_complete(claim())
    assert not three.run_until_complete(claim())
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None, "to be home keeps no loop alive"
    assert three.run_until_complete(claim())
    three.close()


def test_of_racing_loops_one_is_home(home: Home) -> None:
    async def claim() -> bool:
        start.wait(60)
        return home.claim()

    class Late:
        """A loop that is home no more, which all of them find so before one of them takes its place."""

        def is_closed(self) -> bool:
            with suppress(threading.BrokenBarrierError):
                seen.wait(0.05)  # whoever claims alone waits in vain
            return True

    start = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(20):
            seen, late = threading.Barrier(THREADS), cast(asyncio.AbstractEventLoop, Late())
            home._loop = lambda late=late: late  # type: ignore[misc]
            loops = [asyncio.new_event_loop() for _ in range(THREADS)]
            claims = list(pool.map(lambda loop: loop.run_until_complete(claim()), loops))
            assert Counter(claims) == {True: 1, False: THREADS - 1}
            for loop in loops:
                loop.close()


def test_the_io_loop_is_nobodys_home(home: Home) -> None:
    async def claim() -> bool:
        return home.claim()

    assert not asyncio.run_coroutine_threadsafe(claim(), fsspec.asyn.get_loop()).result(60)
    assert asyncio.run(claim())


@pytest.mark.parametrize("ahead", [-1_000.0, 1_000.0])
def test_a_loop_with_a_clock_of_its_own_is_not_home_and_deadlines_hold_there(
    server: S3Server, proxy: Proxy, ahead: float
) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + ahead

    async def work() -> None:
        memory = AsyncAgentMemory.open(opened(server, server.through(proxy)), timeout=2)
        await memory.write("a.md", "x")
        assert not _home.HOME.is_here()
        proxy.choose = lambda _: "hangs"
        with pytest.raises(ReadError, match="gave up after"):
            async with asyncio.timeout(60):
                await memory.read("a.md")

    with closing(Loop()) as loop:
        loop.run_until_complete(work())


def test_a_forked_child_has_a_home_of_its_own(home: Home) -> None:
    async def claim() -> bool:
        return home.claim()

    def work() -> None:
        os._exit(0 if asyncio.run(claim()) else 1)

    async def fork() -> int | None:
        assert home.claim()
        child = multiprocessing.get_context("fork").Process(target=lambda: threading_free(work))
        child.start()
        child.join(60)
        return child.exitcode

    def threading_free(function: Callable[[], None]) -> None:
        asyncio._set_running_loop(None)  # which the child has inherited
        function()

    assert asyncio.run(fork()) == 0


@pytest.mark.parametrize("change", ["append", "write", "create"])
def test_a_stack_that_is_full_after_the_request_leaves_the_outcome_unknown(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def full(*_: object) -> None:
        raise RecursionError

    async def work() -> None:
        memory = AsyncAgentMemory.open(opened(server))
        with monkeypatch.context() as patched:
            patched.setattr(Kept, "keep", full)
            with pytest.raises(OutcomeUnknownError, match="stack was full"):
                await getattr(memory, change)("a.md", "x")
        assert await memory.read("a.md") == "x"

    asyncio.run(work())


def test_a_stack_that_is_full_before_anything_is_sent_is_called_so(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RecursionError

    async def work() -> None:
        memory = AsyncAgentMemory.open(opened(server))
        await memory.write("other.md", "x")
        with monkeypatch.context() as patched:
            patched.setattr(Kept, "is_shared", full)
            with pytest.raises(RecursionError):
                await memory.append("a.md", "x")
        assert not await memory.exists("a.md")

    asyncio.run(work())


def test_the_turns_of_a_single_writer_are_those_of_one_loop(server: S3Server) -> None:
    backend = opened(server, {**server.options, "allow_single_writer": True})

    async def ask() -> bool:
        return backend.may_run_here()

    assert not asyncio.run(ask())


def test_a_deadline_holds_on_the_callers_own_loop(server: S3Server, proxy: Proxy) -> None:
    async def work() -> None:
        memory = AsyncAgentMemory.open(opened(server, server.through(proxy)))
        await memory.append("log.md", "first\n")
        proxy.choose = lambda _: "hangs"
        with pytest.raises(OutcomeUnknownError, match="gave up after"):
            await memory.with_timeout(0.5).append("log.md", "second\n")
        proxy.choose = lambda _: None
        await memory.append("log.md", "third\n")
        assert (await memory.read("log.md")).split() in (["first", "third"], ["first", "second", "third"])

    asyncio.run(work())
