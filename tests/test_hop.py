"""A hop to another loop gives what the coroutine gives: its result, its error, its cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from agent_memory._hop import on_loop

who: ContextVar[str] = ContextVar("who", default="nobody")
pytestmark = pytest.mark.asyncio


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


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


async def test_what_is_cancelled_there_is_cancelled_here(other: asyncio.AbstractEventLoop) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await on_loop(other, give_up())


async def test_an_error_that_nobody_waits_for_is_not_complained_about(other: asyncio.AbstractEventLoop) -> None:
    complaints: list[object] = []
    other.set_exception_handler(lambda _, context: complaints.append(context))
    begun, go_on = threading.Event(), asyncio.Event()

    async def fail_late() -> None:
        begun.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            raise ZeroDivisionError from None

    waiting = asyncio.create_task(on_loop(other, fail_late()))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await on_loop(other, asyncio.sleep(0.01))
    gc.collect()
    assert complaints == []


@pytest.mark.filterwarnings("error")
async def test_a_closed_loop_is_an_error_at_once() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        await on_loop(loop, asyncio.sleep(0))
    gc.collect()
