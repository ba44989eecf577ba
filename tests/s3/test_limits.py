"""What is given up at its deadline by one timer for all is what a timer of its own would give up, at that time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, cast
from unittest.mock import patch

import pytest

from agent_memory.object_store._limits import _Limit, until
from agent_memory.testing.simulation._loop import VirtualLoop

Way = Callable[[float, Callable[[], Awaitable[str]]], Awaitable[str]]
GRAIN = 0.01


async def by_asyncio(at: float, request: Callable[[], Awaitable[str]]) -> str:
    async with asyncio.timeout_at(at):
        return await request()


async def some_requests(way: Way, seed: int) -> list[tuple[tuple[str, int], float]]:
    """How each of some requests ended, how often its task is still being cancelled, and when."""
    chance, loop = Random(seed), asyncio.get_running_loop()

    async def answered(after: float, clearing_up: float, fails: bool) -> str:
        try:
            await asyncio.sleep(after)
        except asyncio.CancelledError:
            await asyncio.sleep(clearing_up)
            raise
        if fails:
            raise ZeroDivisionError
        return "answered"

    async def one() -> tuple[tuple[str, int], float]:
        await asyncio.sleep(chance.randrange(100))
        at = loop.time() + chance.choice((chance.randrange(-1, 20), 60)) + 0.5
        after, clearing_up, fails = chance.randrange(1, 90), chance.choice((0, 0, 7)), chance.random() < 0.2
        try:
            ended = await way(at, lambda: answered(after, clearing_up, fails))
        except (TimeoutError, ZeroDivisionError, asyncio.CancelledError) as error:
            ended = type(error).__name__
        return (ended, cast(asyncio.Task[Any], asyncio.current_task()).cancelling()), loop.time()

    async def cancelled_by_others(task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(chance.randrange(200) + 0.25)
        task.cancel()

    tasks = [asyncio.create_task(one()) for _ in range(chance.randrange(1, 60))]
    others = [asyncio.create_task(cancelled_by_others(task)) for task in tasks if chance.random() < 0.3]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*others)
    return [each if isinstance(each, tuple) else ((type(each).__name__, 0), 0.0) for each in ended]


def a_loop() -> VirtualLoop:
    return VirtualLoop()  # type: ignore[abstract]  # what is missing is never called


def test_they_end_as_by_timers_of_their_own() -> None:
    seen = set[str]()
    for seed in range(300):
        expected = a_loop().run(some_requests(by_asyncio, seed))
        ended = a_loop().run(some_requests(until, seed))
        assert [how for how, _ in ended] == [how for how, _ in expected], seed
        assert all(-1e-6 < when - due <= GRAIN for (_, when), (_, due) in zip(ended, expected, strict=True)), seed
        seen |= {how for (how, _), _ in ended}
    assert seen == {"answered", "TimeoutError", "ZeroDivisionError", "CancelledError"}


def timers_set(main: Coroutine[Any, Any, None]) -> int:
    """How many timers a coroutine sets."""
    loop = a_loop()
    with patch.object(loop, "call_at", wraps=loop.call_at) as call_at:
        loop.run(main)
    return call_at.call_count


def test_a_thousand_answered_in_time_set_one_timer() -> None:
    async def main() -> None:
        for number in range(1_000):
            assert await until(60 + number / 1_000, lambda: asyncio.sleep(0, "answered")) == "answered"

    assert timers_set(main()) == 1


def test_what_is_over_at_about_the_same_time_is_looked_for_once() -> None:
    async def main() -> None:
        never = asyncio.Event()
        waits = (until(60 + number / 100_000, never.wait) for number in range(1_000))
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(each) for each in ended} == {TimeoutError}

    assert timers_set(main()) == 2


def test_whoever_comes_with_an_earlier_deadline_adds_one_look() -> None:
    async def main() -> None:
        waits = (until(60 - number, asyncio.Event().wait) for number in range(60))
        await asyncio.gather(*waits, return_exceptions=True)

    assert timers_set(main()) < 60 * 2


def test_an_interrupt_while_one_is_given_up_keeps_no_others_waiting() -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    async def begin() -> list[asyncio.Task[bool]]:
        at = asyncio.get_running_loop().time() + 0.05
        waits = [asyncio.create_task(by_the_timer(at + number / 20)) for number in range(5)]
        await asyncio.sleep(0)
        return waits

    async def by_the_timer(at: float) -> bool:
        return await until(at, asyncio.Event().wait)

    loop = asyncio.new_event_loop()
    waits = loop.run_until_complete(begin())
    with patch.object(_Limit, "end", interrupted), pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(60))
    ended = loop.run_until_complete(asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 60))
    assert {type(each) for each in ended} == {TimeoutError}
    loop.close()


def is_kept_alive(main: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Whether anything keeps a loop that was closed after it ran this."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    kept = weakref.ref(loop)
    del loop
    gc.collect()
    return kept() is not None


@pytest.mark.filterwarnings("error")
def test_a_loop_is_not_kept_alive() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await until(asyncio.get_running_loop().time() + 0.05, asyncio.Event().wait)
        assert await until(asyncio.get_running_loop().time() + 60, lambda: asyncio.sleep(0, "answered")) == "answered"

    assert not is_kept_alive(main)


def test_nor_is_one_that_was_closed_while_something_was_waited_for() -> None:
    async def main() -> None:
        never = asyncio.Event()
        waiting = asyncio.create_task(by_the_one_timer(never))
        await asyncio.sleep(0)
        assert not waiting.done()

    async def by_the_one_timer(never: asyncio.Event) -> None:
        await until(asyncio.get_running_loop().time() + 60, never.wait)

    assert not is_kept_alive(main)
