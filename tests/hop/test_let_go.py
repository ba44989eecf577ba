"""A hop that is over leaves nothing behind: no complaint, no error's frames, no loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import suppress

import pytest

from agent_memory._hop import on_loop

pytestmark = pytest.mark.asyncio


class Payload:
    """Something of the caller's."""


async def test_an_error_that_was_caught_holds_nothing(other: asyncio.AbstractEventLoop) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def call() -> weakref.ref[Payload]:
        payload = Payload()
        held = weakref.ref(payload)
        with suppress(ZeroDivisionError):
            await on_loop(other, fail())
        return held

    gc.disable()
    try:
        held = [await call() for _ in range(20)]
        await on_loop(other, asyncio.sleep(0))  # the last one's task has ended
        assert [reference for reference in held if reference()] == []
    finally:
        gc.enable()


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


async def test_what_a_closed_loop_was_refused_is_let_go() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        await on_loop(loop, asyncio.sleep(0))
    reference = weakref.ref(loop)
    del loop
    gc.collect()
    assert reference() is None


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
@pytest.mark.parametrize("closed", [True, False])
async def test_a_loop_that_ends_before_its_answer_came_is_let_go(
    other: asyncio.AbstractEventLoop, closed: bool
) -> None:
    began, go_on, ended = threading.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await go_on.wait()
        ended.set()

    async def end() -> None:
        go_on.set()
        await ended.wait()

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        tasks.append(loop.create_task(on_loop(other, slow())))
        assert await asyncio.to_thread(began.wait, 60)

    def caller() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        if closed:
            loop.close()
        return weakref.ref(loop)

    tasks: list[asyncio.Task[None]] = []
    gone = await asyncio.to_thread(caller)
    await on_loop(other, end())
    tasks.clear()
    await on_loop(other, asyncio.sleep(0))  # the answer was sent
    for _ in range(1_000):
        gc.collect()
        if gone() is None:
            break
        await asyncio.sleep(0.01)  # the thread that it waited in may not have got to let go of it
    assert gone() is None
