"""A hop to another loop gives what the coroutine gives: its result, its error, its cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from random import Random

import pytest

from agent_memory._hop import on_loop

who: ContextVar[str] = ContextVar("who", default="nobody")
pytestmark = pytest.mark.asyncio


async def test_it_runs_on_the_other_loop_in_the_callers_context(other: asyncio.AbstractEventLoop) -> None:
    async def work() -> tuple[asyncio.AbstractEventLoop, str]:
        await asyncio.sleep(0)
        return asyncio.get_running_loop(), who.get()

    who.set("the caller")
    assert await on_loop(other, work()) == (other, "the caller")


async def test_many_at_once_each_get_their_own(other: asyncio.AbstractEventLoop) -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(number % 3 / 1000)
        return number

    assert await asyncio.gather(*(on_loop(other, work(number)) for number in range(300))) == list(range(300))


@pytest.mark.usefixtures("hasty")
async def test_nothing_is_lost_between_the_loops_of_many_threads(other: asyncio.AbstractEventLoop) -> None:
    threads, rounds = 4, 3_000
    barrier = threading.Barrier(threads, timeout=60)  # in every round, else the next call would wake for the last

    async def echo(number: int) -> int:
        return number

    async def work() -> list[int]:
        chance, results = Random(threading.get_ident()), []
        for number in range(rounds):
            barrier.wait()
            time.sleep(chance.random() / 10_000)  # noqa: ASYNC251 - nobody else is on this loop
            results.append(await asyncio.wait_for(on_loop(other, echo(number)), 30))
        return results

    def run() -> list[int]:
        return asyncio.run(work())

    with ThreadPoolExecutor(threads) as pool:
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(*(loop.run_in_executor(pool, run) for _ in range(threads)))
    assert results == [list(range(rounds))] * threads


@pytest.mark.usefixtures("hasty")
async def test_loops_of_many_threads_come_at_once() -> None:
    threads, rounds = 8, 40
    barrier = threading.Barrier(threads, timeout=60)

    def run() -> int:
        done = 0
        for _ in range(rounds):
            with closing(asyncio.new_event_loop()) as loop:
                barrier.wait()
                done += loop.run_until_complete(on_loop(loop, asyncio.sleep(0, 1)))
        return done

    with ThreadPoolExecutor(threads) as pool:
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(*(loop.run_in_executor(pool, run) for _ in range(threads)))
    assert results == [rounds] * threads


async def test_its_error_is_raised(other: asyncio.AbstractEventLoop) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("as it was")

    with pytest.raises(ZeroDivisionError, match="as it was"):
        await on_loop(other, fail())


async def test_who_is_cancelled_cancels_it(other: asyncio.AbstractEventLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(on_loop(other, wait()))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 60)


async def test_who_is_cancelled_before_it_began_begins_nothing(other: asyncio.AbstractEventLoop) -> None:
    begun = False

    async def begin() -> None:
        nonlocal begun
        begun = True

    busy = threading.Event()
    other.call_soon_threadsafe(busy.wait, 60)
    waiting = asyncio.create_task(on_loop(other, begin()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    busy.set()
    await on_loop(other, asyncio.sleep(0))
    assert not begun


async def test_what_is_cancelled_there_is_cancelled_here(other: asyncio.AbstractEventLoop) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await on_loop(other, give_up())


@pytest.mark.filterwarnings("error")
async def test_what_is_cancelled_there_before_it_began_is_cancelled_here(other: asyncio.AbstractEventLoop) -> None:
    def cancel_all() -> None:
        for task in asyncio.all_tasks(other):
            task.cancel()

    other.call_soon_threadsafe(time.sleep, 0.2)
    waiting = asyncio.create_task(on_loop(other, asyncio.sleep(60)))
    await asyncio.sleep(0)
    other.call_soon_threadsafe(cancel_all)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 60)
    gc.collect()
