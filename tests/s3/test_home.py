"""Obstore's requests on a caller's own event loop: one at a time runs them, and whatever loops do, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import fsspec.asyn
import pytest

from agent_memory import (
    AgentMemory,
    AsyncAgentMemory,
    FileAlreadyExistsError,
    FileTooLargeError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
)
from agent_memory.object_store import Object, ObjectStore, ObjectStoreBackend
from agent_memory.object_store._kept import Kept
from agent_memory.registry import open_backend
from agent_memory_obstore import ObstoreBackend, _home
from agent_memory_obstore._client import ObstoreStore, _OwnWrite
from agent_memory_obstore._home import Home
from tests.s3.proxy import Fault, Proxy, at_random
from tests.s3.test_faulty_network import FAULTS, SHARE
from tests.servers import S3Server

THREADS = 8


@pytest.fixture(autouse=True)
def home() -> Home:
    """As if no loop of the process had come before."""
    _home.HOME.forget()
    return _home.HOME


@pytest.fixture
def server(ministack: S3Server) -> S3Server:
    return ministack.by("obstore")


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy


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


def opened(server: S3Server, options: dict[str, object] | None = None) -> ObstoreBackend:
    backend = open_backend(server.new_url(), options or server.options)
    assert isinstance(backend, ObstoreBackend)
    return backend


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


def by_many_loops(work: Callable[[int, int], Coroutine[Any, Any, None]], rounds: int) -> None:
    """Every thread runs each round by a loop of its own, which it closes: what is home changes all the time."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        for round_ in range(rounds):
            start.wait(300)
            asyncio.run(work(number, round_))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("rounds", [6, pytest.param(40, marks=pytest.mark.long)])
def test_loops_of_many_threads_lose_nothing(server: S3Server, proxy: Proxy, faulty: bool, rounds: int) -> None:
    backend = opened(server, server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend), AgentMemory.open(backend)
    same.write("edited.md", "")
    won: list[tuple[int, int]] = []
    used: set[bool] = set()

    async def change(number: int, round_: int) -> None:
        used.add(_home.HOME.claim())
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
    assert used == {True, False}
    turns = [(number, round_) for number in range(THREADS) for round_ in range(rounds)]
    assert Counter(same.read("log.md").split()) == Counter(f"{n}:{r}:{line}" for n, r in turns for line in range(2))
    assert Counter(same.read("edited.md").split()) == Counter(f"{n}:{r}" for n, r in turns)
    for round_ in range(rounds):
        winners = [number for each, number in won if each == round_]
        assert same.read(f"claimed/{round_}.md") in map(str, winners if winners or not faulty else range(THREADS))
        assert len(winners) == 1 or (faulty and not winners)


@pytest.mark.parametrize("slow", [False, True])
def test_a_sync_caller_has_its_turn_beside_async_ones_that_append_in_a_row(
    server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr("tests.s3.proxy._SLOW_SECONDS", 0.03)
    backend = opened(server, server.through(proxy))
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
    same.append("other.md", "x")  # and the server is tried
    if slow:  # others do not wait for the first one
        delay(backend._on_io_loop, partial(asyncio.sleep, 1.5))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, some())
        assert begun.wait(60)
        try:
            before = appended
            for _ in range(20):
                same.append("log.md", "sync\n")
            assert slow or appended - before <= 20 * 4, "one that had the turn, and some while this thread slept"
        finally:
            over = True
        running.result(60)
    assert Counter(same.read("log.md").split()) == {"async": appended, "sync": 20}


class Delayed:
    """A store that sends one of its writes later."""

    def __init__(self, store: Any, which: int, wait: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._number = -which
        self._wait = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *args: Any, **options: Any) -> str:
        if self._number == 0:
            await self._wait()
        self._number += 1
        return cast(str, await self._store.put(*args, **options))


def delay(backend: ObjectStoreBackend, wait: Callable[[], Awaitable[object]], which: int = 0) -> None:
    backend._bucket.store = cast(ObjectStore, Delayed(backend._bucket.store, which, wait))


def test_an_edit_whose_answer_was_lost_is_found_though_the_content_comes_back_to_what_home_wrote(
    server: S3Server, proxy: Proxy
) -> None:
    backend = opened(server, server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend), AgentMemory.open(backend)
    seen: list[str] = []
    lost, appended = threading.Event(), threading.Event()

    def without_last(text: str) -> str:
        seen.append(text)
        return "".join(text.splitlines(keepends=True)[:-1])

    def lose_the_answer(operation: str) -> Fault | None:
        if operation != "PUT" or lost.is_set():
            return None
        lost.set()
        return "reply lost"

    async def work() -> None:
        await memory.append("other.md", "x")
        await asyncio.to_thread(same.append, "other.md", "x")  # and the server is tried on both loops
        await memory.write("log.md", "a\n")
        await asyncio.to_thread(same.write, "log.md", "a\nb\n")
        proxy.choose = lose_the_answer
        delay(backend._on_io_loop, partial(asyncio.to_thread, appended.wait, 60), which=1)
        edit = asyncio.create_task(asyncio.to_thread(same.edit, "log.md", without_last))
        await asyncio.to_thread(lost.wait, 60)
        await memory.append("log.md", "c\n")
        appended.set()
        await edit

    asyncio.run(work())
    assert same.read("log.md") == "a\nc\n"
    assert seen == ["a\nb\n"]


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


def test_the_clock_of_the_store_is_known_to_every_loop(server: S3Server) -> None:
    backend = opened(server)
    same = AgentMemory.open(backend)
    same.write("a.md", "x")
    with patch("agent_memory_obstore._client.time", Behind(120)):
        same.write("a.md", "y")
        same.read("a.md")
        assert abs(backend._on_io_loop._store.now() - time.time()) < 5
        assert abs(backend._at_home._store.now() - time.time()) < 5


def test_what_a_write_of_another_loop_tells_is_not_taken_for_what_the_last_one_told(server: S3Server) -> None:
    backend = opened(server)
    store = backend._on_io_loop._store
    assert isinstance(store, ObstoreStore)
    long_ago = time.time() - 3_600
    found = Object('"etag"', 1, long_ago, {}, b"")

    class MetadataOfTheLast(dict[str, str]):
        """Looked at just as the answer to a write comes to another thread."""

        def items(self) -> Any:
            assert isinstance(store, ObstoreStore)
            store._own = _OwnWrite("b.md", '"other"', {}, time.time(), time.time())
            return super().items()

    store._own = _OwnWrite("a.md", '"etag"', MetadataOfTheLast(), long_ago, long_ago)
    store._hear("a.md", found)
    assert abs(store.now() - time.time()) < 5


class Behind:
    """`time`, where the host's clock is so many seconds behind."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time(self) -> float:
        return time.time() - self._seconds


def test_however_many_loops_come_one_after_another_they_are_one_writer(server: S3Server) -> None:
    memory = AsyncAgentMemory.open(opened(server))
    for number in range(120):
        asyncio.run(memory.append("log.md", f"{number}\n"))
    assert asyncio.run(memory.read("log.md")).split() == [str(number) for number in range(120)]


def test_loops_that_come_one_after_another_know_what_the_last_one_did(server: S3Server, proxy: Proxy) -> None:
    memory = AsyncAgentMemory.open(opened(server, server.through(proxy)))
    asyncio.run(memory.append("log.md", "first\n"))
    with proxy.counting() as sent:
        for _ in range(5):
            asyncio.run(memory.append("log.md", "more\n"))
    assert sent == {"PUT": 5}


def test_the_turns_of_a_single_writer_are_those_of_one_loop(server: S3Server) -> None:
    backend = opened(server, {**server.options, "allow_single_writer": True})

    async def ask() -> bool:
        return backend.may_run_here()

    assert not asyncio.run(ask())


def test_what_a_trial_of_the_server_tells_is_told_whoever_made_it(rclone: S3Server) -> None:
    server = rclone.by("obstore")
    backend = opened(server)
    assert backend.capabilities.compare_and_swap

    async def use() -> None:
        assert backend.may_run_here()
        with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
            await AsyncAgentMemory.open(backend).append("a.md", "x")

    asyncio.run(use())
    assert not backend.capabilities.compare_and_swap
    with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
        AgentMemory.open(backend).append("a.md", "x")
    assert not backend.capabilities.compare_and_swap


def test_the_most_bytes_are_the_same_on_every_loop(server: S3Server) -> None:
    backend = opened(server)
    AgentMemory.open(backend).write("a.md", "12345")
    backend.max_bytes = 4
    memory = AsyncAgentMemory.open(backend)
    for call in (memory.read("a.md"), memory.append("a.md", "6"), memory.write("a.md", "12345")):
        with pytest.raises(FileTooLargeError):
            asyncio.run(call)
    with pytest.raises(FileTooLargeError):
        AgentMemory.open(backend).read("a.md")


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


ENDS = """
import asyncio, gc, json, sys, time, weakref
from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory_obstore import _home
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
    assert _home.HOME.is_here()
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
        same.append("b.md", "z")  # obstore lets go of what was cancelled when it is called again
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None
    assert asyncio.run(memory.read("a.md")) == "x"
"""


@pytest.mark.parametrize("how", ["cancelled", "closed", "dropped"])
@pytest.mark.parametrize("after", [0.0, 0.002, 0.01, 0.03])
def test_a_loop_that_ends_amid_requests_is_let_go(server: S3Server, how: str, after: float) -> None:
    options = json.dumps(server.options)
    command = [sys.executable, "-W", "ignore", "-c", ENDS, server.new_url(), options, how, str(after)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=240)
    assert ended.returncode == 0, ended.stderr
    if how == "closed":  # without cancelling its tasks: obstore prints of each answer that it comes too late
        assert "agent_memory" not in ended.stderr
    else:
        assert ended.stderr == ""
