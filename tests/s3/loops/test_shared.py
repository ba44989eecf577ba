"""Event loops of one process that change the same files by obstore: whatever loops do, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import pytest

from agent_memory import (
    AgentMemory,
    AsyncAgentMemory,
    FileAlreadyExistsError,
    FileTooLargeError,
    OutcomeUnknownError,
    UnsupportedOperationError,
)
from agent_memory.object_store import Object, ObjectStore, ObjectStoreBackend
from agent_memory_obstore import ObstoreBackend, _home
from agent_memory_obstore._client import ObstoreStore, _OwnWrite
from tests.s3.loops.opening import opened
from tests.s3.proxy import Fault, Proxy, at_random
from tests.s3.test_faulty_network import FAULTS, SHARE
from tests.servers import S3Server

THREADS = 8


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


@pytest.mark.parametrize(
    ("seconds", "times", "stands_still"),
    [
        pytest.param(0.03, 20, 0.0, id="each in turn"),
        pytest.param(1.2, 2, 0.0, id="slow answers"),
        pytest.param(0.03, 20, 2.5, id="after it was gone around"),
    ],
)
def test_a_sync_caller_has_its_turn_beside_async_ones_that_append_in_a_row(
    server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, seconds: float, times: int, stands_still: float
) -> None:
    monkeypatch.setattr("tests.s3.proxy._SLOW_SECONDS", seconds)
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

    async def stand_still() -> None:
        time.sleep(stands_still)  # noqa: ASYNC251 - no task of the loop runs, and others do not wait for it

    proxy.choose = lambda _: "slow"
    same.append("other.md", "x")  # and the server is tried
    if stands_still:
        delay(backend._on_io_loop, stand_still)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, some())
        assert begun.wait(60)
        try:
            before = appended
            for _ in range(times):
                same.append("log.md", "sync\n")
            few = appended - before <= times * 4  # one that had the turn, and some while this thread slept
            assert stands_still or few
        finally:
            over = True
        running.result(60)
    assert Counter(same.read("log.md").split()) == {"async": appended, "sync": times}


class Delayed:
    """A store that sends one of its writes, or hears its answer, later."""

    def __init__(self, store: Any, which: int, wait: Callable[[], Awaitable[object]], after: bool) -> None:
        self._store = store
        self._number = -which
        self._wait = wait
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *args: Any, **options: Any) -> str:
        this, self._number = self._number == 0, self._number + 1
        if this and not self._after:
            await self._wait()
        etag = cast(str, await self._store.put(*args, **options))
        if this and self._after:
            await self._wait()
        return etag


def delay(
    backend: ObjectStoreBackend, wait: Callable[[], Awaitable[object]], which: int = 0, *, after: bool = False
) -> None:
    backend._bucket.store = cast(ObjectStore, Delayed(backend._bucket.store, which, wait, after))


def test_an_edit_whose_answer_was_lost_is_found_though_the_content_comes_back_to_what_home_wrote(
    server: S3Server, proxy: Proxy
) -> None:
    backend = opened(server, server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend, timeout=4), AgentMemory.open(backend)
    edit = EditWithoutAnswer(backend, proxy)

    async def work() -> None:
        await memory.append("other.md", "x")
        await asyncio.to_thread(same.append, "other.md", "x")  # and the server is tried on both loops
        await memory.write("log.md", "a\n")
        await asyncio.to_thread(same.write, "log.md", "a\nb\n")
        editing = asyncio.create_task(asyncio.to_thread(edit.run))
        await asyncio.to_thread(edit.lost.wait, 60)
        await memory.append("log.md", "c\n")  # which waits for half of its time
        edit.go_on.set()
        await editing

    asyncio.run(work())
    assert same.read("log.md") == "a\nc\n"
    assert edit.seen == ["a\nb\n"]


def test_what_a_loop_that_stood_still_wrote_last_is_not_known_any_more(
    server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_memory.object_store._write._SKEW_SECONDS", -60.0)  # the file is old
    backend = opened(server, server.through(proxy))
    memory, same = AsyncAgentMemory.open(backend, timeout=4), AgentMemory.open(backend)
    edit, sent = EditWithoutAnswer(backend, proxy), threading.Event()

    def work_on_the_io_loop() -> None:
        assert sent.wait(60)
        same.write("log.md", "a\nb\n")
        edit.run()

    async def stand_still() -> None:
        sent.set()
        edit.lost.wait(60)  # and no task of this loop runs

    async def work() -> None:
        await memory.append("other.md", "x")
        await asyncio.to_thread(same.append, "other.md", "x")  # and the server is tried on both loops
        await memory.write("log.md", "")
        delay(backend._at_home, stand_still, after=True)
        on_the_io_loop = asyncio.create_task(asyncio.to_thread(work_on_the_io_loop))
        await memory.append("log.md", "a\n")  # known to have been done when others have written the same
        await memory.append("log.md", "c\n")
        edit.go_on.set()
        await on_the_io_loop

    asyncio.run(work())
    assert same.read("log.md") == "a\nc\n"
    assert edit.seen == ["a\nb\n"]


class EditWithoutAnswer:
    """An edit on the I/O loop that takes a file's last line away; its answer is lost, and it goes on when told."""

    def __init__(self, backend: ObstoreBackend, proxy: Proxy) -> None:
        self._backend = backend
        self._proxy = proxy
        self.seen: list[str] = []
        self.lost, self.go_on = threading.Event(), threading.Event()

    def run(self) -> None:
        self._proxy.choose = self._lose_the_answer
        delay(self._backend._on_io_loop, partial(asyncio.to_thread, self.go_on.wait, 60), which=1)
        AgentMemory.open(self._backend).edit("log.md", self._without_last)

    def _without_last(self, text: str) -> str:
        self.seen.append(text)
        return "".join(text.splitlines(keepends=True)[:-1])

    def _lose_the_answer(self, operation: str) -> Fault | None:
        if operation != "PUT" or self.lost.is_set():
            return None
        self.lost.set()
        return "reply lost"


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
