"""Async callers on several event loops beside sync callers: no change is lost, and no caller starves."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, FileAlreadyExistsError, OutcomeUnknownError, ReadError
from agent_memory.object_store.states import RecentWrites
from agent_memory.registry import open_backend
from tests.object_store.proxy import Proxy, at_random
from tests.object_store.test_faulty_network import FAULTS, SHARE
from tests.support.servers import S3Server, by_both_engines, by_s3fs_or_both
from tests.support.sizes import also

pytestmark = pytest.mark.usefixtures("trusted")
THREADS = 8


@pytest.fixture
def server(ministack: S3Server, engine: str) -> S3Server:
    return ministack.by(engine)


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy


def by_many_loops(work: Callable[[int, int], Coroutine[Any, Any, None]], rounds: int) -> None:
    """Run each round of each thread in a new event loop, which is closed afterwards."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        for round_ in range(rounds):
            start.wait(300)
            asyncio.run(work(number, round_))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))


@pytest.mark.long
@by_both_engines
@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("rounds", [3, 40])
def test_no_change_from_the_event_loops_of_many_threads_is_lost(
    server: S3Server, proxy: Proxy, faulty: bool, rounds: int
) -> None:
    backend = open_backend(server.new_url(), server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend), AgentMemory.open(backend)
    same.write("edited.md", "")
    won: list[tuple[int, int]] = []

    async def change(number: int, round_: int) -> None:
        lines = [f"{number}:{round_}:{line}\n" for line in range(2)]
        if number == 0:  # a sync caller, in the same process
            for line in lines:
                same.append("log.md", line)
        else:
            await asyncio.gather(*(memory.append("log.md", line) for line in lines))
        await memory.edit("edited.md", lambda text: f"{text}{number}:{round_}\n")
        try:
            await memory.create(f"claimed/{round_}.md", f"{number}")
            won.append((round_, number))
        except (FileAlreadyExistsError, OutcomeUnknownError):
            pass

    if faulty:
        proxy.choose = at_random(SHARE, 1, FAULTS)
    by_many_loops(change, rounds)
    proxy.choose = lambda _: None
    turns = [(number, round_) for number in range(THREADS) for round_ in range(rounds)]
    assert Counter(same.read("log.md").split()) == Counter(f"{n}:{r}:{line}" for n, r in turns for line in range(2))
    assert Counter(same.read("edited.md").split()) == Counter(f"{n}:{r}" for n, r in turns)
    for round_ in range(rounds):
        winners = [number for each, number in won if each == round_]
        assert same.read(f"claimed/{round_}.md") in map(str, winners if winners or not faulty else range(THREADS))
        assert len(winners) == 1 or (faulty and not winners)


@by_s3fs_or_both
@pytest.mark.parametrize(
    ("seconds", "times"),
    [pytest.param(0.03, 20, id="fast answers"), pytest.param(1.2, 2, id="slow answers", marks=pytest.mark.long)],
)
def test_a_sync_caller_does_not_starve_beside_constantly_appending_async_callers(
    server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, seconds: float, times: int
) -> None:
    monkeypatch.setattr("tests.object_store.proxy._SLOW_SECONDS", seconds)
    backend = open_backend(server.new_url(), server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend), AgentMemory.open(backend, timeout=30)
    appended, over, begun = 0, False, threading.Event()

    async def append_in_a_row() -> None:
        nonlocal appended
        while not over:
            await memory.append("log.md", "async\n")
            appended += 1
            begun.set()

    async def some() -> None:
        await asyncio.gather(*(append_in_a_row() for _ in range(4)))

    proxy.choose = lambda _: "slow"
    same.append("other.md", "x")  # tests the server's preconditions first
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, some())
        assert begun.wait(60)
        try:
            meanwhile = 0
            for _ in range(times):
                before = appended
                same.append("log.md", "sync\n")
                meanwhile += appended - before
            assert meanwhile <= times * 5  # the four that waited before it, and the one in progress
        finally:
            over = True
        running.result(60)
    assert Counter(same.read("log.md").split()) == {"async": appended, "sync": times}


@by_both_engines
def test_a_sync_caller_proceeds_while_the_loop_of_async_callers_is_blocked(server: S3Server) -> None:
    backend = open_backend(server.new_url(), server.options)
    memory, same = AsyncAgentMemory.open(backend), AgentMemory.open(backend)
    blocked, ended = threading.Event(), threading.Event()

    async def block() -> bool:
        appends = [asyncio.ensure_future(memory.append("log.md", "async\n")) for _ in range(4)]
        await asyncio.sleep(0)  # each has sent its request to the backend
        blocked.set()
        in_time = ended.wait(60)  # blocks the loop
        await asyncio.gather(*appends)
        return in_time

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, block())
        assert blocked.wait(60)
        for _ in range(10):
            same.append("log.md", "sync\n")
        ended.set()
        assert running.result(60), "the sync caller waited for the blocked loop"
    assert Counter(same.read("log.md").split()) == {"async": 4, "sync": 10}


@by_s3fs_or_both
@pytest.mark.parametrize("ahead", [-1_000.0, *also([1_000.0])])
def test_a_deadline_holds_on_a_loop_with_a_different_clock(server: S3Server, proxy: Proxy, ahead: float) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + ahead

    async def work() -> None:
        memory = AsyncAgentMemory.open(open_backend(server.new_url(), server.through(proxy)))
        await memory.write("a.md", "x")
        proxy.choose = lambda _: "hangs"
        with pytest.raises(ReadError, match="gave up after"):
            async with asyncio.timeout(60):
                await memory.with_timeout(2).read("a.md")

    with closing(Loop()) as loop:
        loop.run_until_complete(work())


@by_s3fs_or_both
@pytest.mark.parametrize("change", ["append", "write", "create"])
def test_a_stack_overflow_after_the_request_raises_an_unknown_outcome(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def full(*_: object) -> None:
        raise RecursionError

    async def work() -> None:
        memory = AsyncAgentMemory.open(open_backend(server.new_url(), server.options))
        with monkeypatch.context() as patched:
            patched.setattr(RecentWrites, "keep", full)
            with pytest.raises(OutcomeUnknownError, match="stack was full"):
                await getattr(memory, change)("a.md", "x")
        assert await memory.read("a.md") == "x"

    asyncio.run(work())


ENDS = """
import asyncio, gc, json, logging, sys, time, weakref
from agent_memory import AgentMemory, AsyncAgentMemory
logging.basicConfig(level=logging.ERROR)  # interrupted appends are warnings
memory = AsyncAgentMemory.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))
same = AgentMemory.open(memory._tree.backend)

def quiet(loop, context):  # of answers that came as the loop ended, as asyncio itself says it
    if context["message"] != "Future exception was never retrieved":
        loop.default_exception_handler(context)

def unraisable(error):  # of coroutines that Python clears away from the inside out: none of our code runs then
    if str(error.exc_value) != "coroutine already executing":
        sys.__unraisablehook__(error)

sys.unraisablehook = unraisable

async def begin():
    asyncio.get_running_loop().set_exception_handler(quiet)
    await memory.write("a.md", "x")
    tasks = [asyncio.ensure_future(memory.append(f"{number}.md", "y")) for number in range(20)]
    await asyncio.sleep(float(sys.argv[4]))
    for task in tasks:
        task._log_destroy_pending = False  # what asyncio itself says of who leaves them
    return weakref.ref(asyncio.get_running_loop())

def cancelled():
    return asyncio.run(begin())

def closed():
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(begin())
    finally:
        loop.close()

def dropped():
    return asyncio.new_event_loop().run_until_complete(begin())

for _ in range(3):
    gone = globals()[sys.argv[3]]()
    for _ in range(600):  # the answers come, or are given up after 15 seconds
        sys.last_value = sys.last_traceback = sys.last_exc = None  # Python keeps an error that was printed
        same.append("b.md", "z")
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None
    assert asyncio.run(memory.read("a.md")) == "x"
"""


@pytest.mark.long
@by_both_engines
@pytest.mark.parametrize("how", ["closed", "cancelled", "dropped"])
@pytest.mark.parametrize("after", [0.0, 0.002, 0.01, 0.03])
def test_an_event_loop_that_ends_during_requests_can_be_collected(server: S3Server, how: str, after: float) -> None:
    options = json.dumps(server.options)
    command = [sys.executable, "-W", "ignore", "-c", ENDS, server.new_url(), options, how, str(after)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    if how == "closed":  # asyncio itself reports each answer that comes too late
        assert "agent_memory" not in ended.stderr
    else:
        assert ended.stderr == ""
