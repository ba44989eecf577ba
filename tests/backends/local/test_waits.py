"""Async callers that wait for a lock on local disk occupy no thread, and a cancellation ends their wait."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AppendError,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    Operation,
    Outcome,
    WriteError,
    hookimpl,
)
from agent_memory.backend import BlockingBackend
from agent_memory.mcp_server import mcp_server, serve_http
from agent_memory.registry import open_backend
from agent_memory.runtime.threads import THREADS, in_thread
from agent_memory_local import _locks
from tests.backends.local.test_locks import end, held_by_another_process
from tests.support import sizes
from tests.support.mcp_clients import called, over_http
from tests.support.sizes import long_except

WAITERS = 200
SECONDS = 60
LOG = "a/log.md"


class Watch:
    """A plugin that counts the operations on the log: started ones, and ended ones by outcome."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.outcomes: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.path == LOG:
            self.begun.release()

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        if operation.path == LOG:
            self.ids[operation.id] += 1
            self.outcomes[outcome.error or outcome.status] += 1
            self.ended.release()


class Place:
    """A service on local disk whose agent "busy" has a log that another process may hold."""

    def __init__(self, directory: Path) -> None:
        self.watch = Watch()
        self.directory = directory
        self.url = f"{(directory / 'root').as_uri()}?durability=process"
        self.service = AsyncAgentMemoryService(self.url, plugins=[self.watch])
        self.memory = self.service.agent("busy")
        self.tree = directory / "root" / "agent_memory" / "busy"
        asyncio.run(self.memory.write(LOG, "old;"))
        assert self.watch.begun.acquire(timeout=SECONDS)
        assert self.watch.ended.acquire(timeout=SECONDS)
        self.watch.outcomes.clear()
        self.watch.ids.clear()

    def hold(self, kind: str) -> Any:
        return held_by_another_process(kind, self.tree / LOG if kind == "file" else self.tree)

    async def waiters(self, count: int) -> list[asyncio.Task[Any]]:
        """Start waiting appends; return when all of them have begun."""
        tasks = [asyncio.create_task(self.memory.append(LOG, f"{number};")) for number in range(count)]
        for _ in tasks:
            assert await asyncio.to_thread(self.watch.begun.acquire, timeout=SECONDS)
        return tasks

    def lines(self) -> list[str]:
        return (self.tree / LOG).read_text().split(";")[:-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def use(memory: AsyncAgentMemory, name: str) -> None:
    await memory.write(name, "0")
    await memory.append(name, "1")
    await memory.edit(name, lambda text: text + "2")
    assert await memory.read(name) == "012"
    assert [str(entry) for entry in await memory.list("b")] == [name]


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_calls_that_wait_for_a_lock_block_no_other_call(place: Place, tmp_path: Path, kind: str) -> None:
    async def wait_and_use_others() -> None:
        holder = place.hold(kind)
        try:
            async with asyncio.timeout(SECONDS):
                waiting = await place.waiters(WAITERS)
                async with (
                    AsyncAgentMemory.open(tmp_path / "other") as other,
                    AsyncAgentMemory.open("memory://") as in_memory,
                ):
                    each = [place.service.agent(f"agent{number}") for number in range(50)]
                    await asyncio.gather(*(use(memory, "b/c.md") for memory in (other, in_memory, *each)))
                assert await place.memory.read(LOG) == "old;"
                if kind == "file":
                    await use(place.memory, "b/c.md")
                assert not any(task.done() for task in waiting)
        finally:
            end(holder)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*waiting)

    asyncio.run(wait_and_use_others())
    lines = place.lines()
    assert lines[0] == "old"
    assert Counter(lines[1:]) == Counter(str(number) for number in range(WAITERS))


def assert_no_thread_is_held() -> None:
    barrier = threading.Barrier(THREADS)

    async def meet() -> None:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(in_thread(barrier.wait) for _ in range(THREADS)))

    asyncio.run(meet())


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_cancelled_calls_stop_waiting_and_are_reported_once(place: Place, kind: str) -> None:
    async def wait_and_cancel() -> None:
        waiting = await place.waiters(WAITERS)
        for task in waiting:
            task.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}

    holder = place.hold(kind)
    try:
        asyncio.run(wait_and_cancel())
        for _ in range(WAITERS):
            assert place.watch.ended.acquire(timeout=SECONDS)
        assert place.watch.outcomes == {"interrupted": WAITERS}
        assert set(place.watch.ids.values()) == {1}
    finally:
        end(holder)
    assert_no_thread_is_held()
    asyncio.run(place.memory.append(LOG, "new;"))
    assert place.lines() == ["old", "new"]


def test_calls_of_an_abandoned_event_loop_stop_waiting(place: Place) -> None:
    async def wait() -> list[weakref.ref[Any]]:
        tasks = await place.waiters(8)
        for _ in range(5):
            await asyncio.sleep(0.001)
        return [weakref.ref(task) for task in tasks]

    holder = place.hold("file")
    try:
        for _ in range(10 if sizes.is_long else 2):
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # hides "task is still pending"
            tasks = loop.run_until_complete(wait())
            loop.close()
            del loop
            while any(task() for task in tasks):  # a task with a step in a thread lives until the step ends
                gc.collect()
    finally:
        end(holder)
    assert_no_thread_is_held()
    asyncio.run(place.memory.append(LOG, "new;"))
    assert place.lines() == ["old", "new"]


CHANGES: dict[str, Callable[[AsyncAgentMemory], Coroutine[Any, Any, object]]] = {
    "write": lambda m: m.write(LOG, "new"),
    "append": lambda m: m.append(LOG, "new"),
    "edit": lambda m: m.edit(LOG, str.upper),
    "delete": lambda m: m.delete(LOG),
}


@long_except(("append",), "change", CHANGES)
@pytest.mark.parametrize(("kind", "named"), [("file", "the file"), ("tree", "the directory tree")])
@pytest.mark.parametrize(
    "own", [pytest.param(True, id="deadline"), pytest.param(False, id="default", marks=pytest.mark.long)]
)
def test_a_deadline_ends_the_wait_of_an_async_caller(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[AsyncAgentMemory], Coroutine[Any, Any, object]],
    kind: str,
    named: str,
    own: bool,
) -> None:
    if not own:
        monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 0.2)

    async def wait() -> None:
        memory = place.memory.with_timeout(0.2) if own else place.memory
        results = await asyncio.gather(*(change(memory) for _ in range(8)), return_exceptions=True)
        for result in results:
            assert isinstance(result, WriteError | AppendError)
            assert f"waited 0.2 s for the lock of {named}, held by another writer" in str(result)

    holder = place.hold(kind)
    try:
        asyncio.run(wait())
        assert place.lines() == ["old"]
    finally:
        end(holder)


def test_waiting_renames_block_no_other_call_and_go_before_writers(place: Place) -> None:
    names = [f"d{number}" for number in range(WAITERS // 4)]

    async def move_among_writers() -> None:
        for name in names:
            await place.memory.write(f"{name}/x.md", "x")
        holder = place.hold("tree")
        try:
            moving = [asyncio.create_task(place.memory.rename(name, f"moved/{name}")) for name in names]
            writing = await place.waiters(len(names))
            async with asyncio.timeout(SECONDS):
                await use(place.service.agent("other"), "b/c.md")
            assert not any(task.done() for task in (*moving, *writing))
        finally:
            end(holder)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*moving, *writing)
        assert [entry.path for entry in await place.memory.list("moved")] == sorted(f"moved/{n}/x.md" for n in names)

    asyncio.run(move_among_writers())
    assert Counter(place.lines()) == Counter(["old", *(str(number) for number in range(len(names)))])


def test_constant_async_writers_do_not_starve_a_rename(place: Place) -> None:
    async def write_until(done: asyncio.Event, number: int) -> int:
        count = 0
        while not done.is_set():
            await place.memory.append(f"log-{number}.md", "x")
            count += 1
        assert len(await place.memory.read(f"log-{number}.md")) == count
        return count

    async def move_among_writers() -> None:
        done = asyncio.Event()
        await place.memory.write("d0/file.md", "x")
        writing = [asyncio.create_task(write_until(done, number)) for number in range(40)]
        try:
            async with asyncio.timeout(SECONDS):
                for turn in range(50):
                    await place.memory.rename(f"d{turn}", f"d{turn + 1}")
        finally:
            done.set()
        assert sum(await asyncio.gather(*writing)) > len(writing)
        assert await place.memory.exists("d50/file.md")

    asyncio.run(move_among_writers())


def test_forget_counts_its_file_although_it_waits_for_the_trees_lock(place: Place) -> None:
    """The verb cannot start again after it has deleted the file."""
    asyncio.run(place.memory.write("kept.md", "x"))
    backend = open_backend(place.url, {})
    assert isinstance(backend, BlockingBackend)
    held: list[Any] = []
    listing = backend.list

    def hold_then_list(*args: Any, **kwargs: Any) -> Any:
        if not held:  # the second listing is of receipts
            held.append(place.hold("tree"))
            threading.Timer(0.1, end, held).start()
        return listing(*args, **kwargs)

    backend.list = hold_then_list  # type: ignore[method-assign]
    memory = AsyncAgentMemoryService(backend).agent("busy")
    assert asyncio.run(memory.forget(LOG)).files == 1
    assert held


def test_no_concurrent_async_edit_of_one_file_is_lost(place: Place) -> None:
    async def count() -> str:
        await place.memory.write("count.md", "0")
        await asyncio.gather(*(place.memory.edit("count.md", lambda text: str(int(text) + 1)) for _ in range(60)))
        return await place.memory.read("count.md")

    assert asyncio.run(count()) == "60"


@pytest.mark.long
@pytest.mark.parametrize("leaves", ["hangs up", "cancels"])
def test_mcp_clients_that_abandon_their_calls_block_no_other_client(place: Place, leaves: str) -> None:
    count, token = THREADS + 8, "t" * 16
    text = {"path": f"/memories/{LOG}", "text": "gone;"}

    async def call(url: str, left: asyncio.Event) -> None:
        async with over_http(url, token) as client:
            calling = asyncio.create_task(client.call_tool("append", text))
            await left.wait()
            if leaves == "cancels":
                calling.cancel()
                await asyncio.wait([calling])
        await asyncio.gather(calling, return_exceptions=True)

    async def serve() -> None:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(mcp_server(place.memory), token=token, listening=url.set_result))
        left = asyncio.Event()
        async with asyncio.timeout(SECONDS):
            clients = [asyncio.create_task(call(await url, left)) for _ in range(count)]
            for _ in range(2 * count):  # each call reads the end of the file, and then appends
                assert await asyncio.to_thread(place.watch.begun.acquire, timeout=SECONDS)
            left.set()
            await asyncio.gather(*clients)
            async with over_http(await url, token) as client:
                assert (await called(client, "view", path=f"/memories/{LOG}")).text.endswith("old;")
                for _ in range(2 * count + 1):
                    assert await asyncio.to_thread(place.watch.ended.acquire, timeout=SECONDS)
        serving.cancel()
        await asyncio.wait([serving])

    holder = place.hold("file")
    try:
        asyncio.run(serve())
    finally:
        end(holder)
    assert place.watch.outcomes == {"interrupted": count, "ok": count + 1}  # the abandoned appends; the reads
    assert_no_thread_is_held()
    asyncio.run(place.memory.append(LOG, "new;"))
    assert place.lines() == ["old", "new"]
