"""Turns between event loops: in the order of asking, and nobody waits for a loop that stands still or is gone."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory.object_store import TurnsBetweenLoops
from agent_memory.object_store._between_loops import Hold

THREADS, ROUNDS = 6, 300
LONG = 60.0
NAME = "file"


async def taken(turns: TurnsBetweenLoops) -> Hold:
    return turns.take(NAME) or await turns.wait(NAME, LONG)


def test_one_has_the_turn_and_none_is_passed_over() -> None:
    turns, start = TurnsBetweenLoops(), threading.Barrier(THREADS)
    inside: list[int] = []
    order: list[int] = []

    async def work(number: int) -> None:
        start.wait(60)
        for _ in range(ROUNDS):
            turn = await taken(turns)
            inside.append(number)
            await asyncio.sleep(0)
            order.append(number)
            assert inside == [number]
            inside.remove(number)
            turns.leave(NAME, turn)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: asyncio.run(work(number)), range(THREADS)))
    assert Counter(order) == dict.fromkeys(range(THREADS), ROUNDS)
    assert not turns._places, "nothing is kept of a name nobody uses"


def test_who_asked_first_is_first_though_others_take_it_again_at_once() -> None:
    async def main() -> list[str]:
        turns, order = TurnsBetweenLoops(), list[str]()
        turn = turns.take(NAME)
        assert turn

        async def wait(who: str) -> None:
            mine = await turns.wait(NAME, LONG)
            order.append(who)
            turns.leave(NAME, mine)

        waiting = [asyncio.create_task(wait(who)) for who in ("first", "second")]
        await asyncio.sleep(0)
        turns.leave(NAME, turn)
        assert turns.take(NAME) is None
        await wait("who had it")
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(main()) == ["first", "second", "who had it"]


def test_a_loop_that_runs_is_waited_for_longer_than_one_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.object_store._between_loops._STILL_SECONDS", 0.5)
    turns, taken_by_other, left_by_other = TurnsBetweenLoops(), threading.Event(), threading.Event()

    async def hold() -> None:
        turn = await taken(turns)
        taken_by_other.set()
        await asyncio.sleep(1.5)
        assert turns.has(NAME, turn)
        left_by_other.set()
        turns.leave(NAME, turn)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(asyncio.run, hold())
        assert taken_by_other.wait(LONG)
        asyncio.run(taken(turns))
        assert left_by_other.is_set()
        other.result(LONG)


def test_a_loop_that_stops_while_it_is_waited_for_is_gone_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.object_store._between_loops._STILL_SECONDS", 0.1)
    turns, waiting, over = TurnsBetweenLoops(), threading.Event(), threading.Event()

    async def hold() -> None:
        turn = await taken(turns)
        waiting.set()
        await asyncio.sleep(0.25)
        over.wait(LONG)  # and no task of this loop runs
        assert not turns.has(NAME, turn)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(asyncio.run, hold())
        assert waiting.wait(LONG)
        try:
            asyncio.run(asyncio.wait_for(taken(turns), LONG / 2))
        finally:
            over.set()
        other.result(LONG)


def test_who_was_not_told_of_its_turn_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hold, "tell", lambda _: True)  # as an interrupt leaves it

    async def main() -> None:
        turns = TurnsBetweenLoops()
        turn = await taken(turns)
        waiting = asyncio.create_task(turns.wait(NAME, LONG))
        await asyncio.sleep(0)
        turns.leave(NAME, turn)
        turns.leave(NAME, await asyncio.wait_for(waiting, LONG / 2))
        assert not turns._places

    asyncio.run(main())


def test_a_loop_that_stands_still_is_gone_around_once() -> None:
    turns = TurnsBetweenLoops()
    still = asyncio.new_event_loop()
    its = still.run_until_complete(taken(turns))

    async def go_on() -> None:
        turn = await turns.wait(NAME, 0.01)
        other = asyncio.create_task(turns.wait(NAME, LONG))
        await asyncio.sleep(0)
        turns.leave(NAME, its)  # which it does not have any more
        for _ in range(5):
            await asyncio.sleep(0)
        assert not other.done()
        turns.leave(NAME, turn)
        turns.leave(NAME, await other)

    asyncio.run(go_on())
    assert not turns._places
    still.close()


def test_one_that_was_told_of_its_turn_and_stands_still_is_gone_around() -> None:
    turns, still = TurnsBetweenLoops(), asyncio.new_event_loop()
    turn = still.run_until_complete(taken(turns))
    waiting = still.create_task(turns.wait(NAME, LONG))
    still.run_until_complete(asyncio.sleep(0))
    turns.leave(NAME, turn)
    asyncio.run(turns.wait(NAME, 0.01))
    turns.leave(NAME, still.run_until_complete(waiting))
    still.close()


@pytest.mark.parametrize("told", [False, True])
def test_who_is_cancelled_stands_in_nobodys_way(told: bool) -> None:
    async def main() -> None:
        turns = TurnsBetweenLoops()
        turn = turns.take(NAME)
        assert turn
        cancelled, other = (asyncio.create_task(turns.wait(NAME, LONG)) for _ in range(2))
        await asyncio.sleep(0)
        if told:
            turns.leave(NAME, turn)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        if not told:
            turns.leave(NAME, turn)
        async with asyncio.timeout(LONG):
            turns.leave(NAME, await other)
        assert not turns._places

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
@pytest.mark.parametrize("closed", [True, False])
def test_a_loop_that_ends_while_turns_are_taken_and_waited_for_is_let_go(closed: bool) -> None:
    turns = TurnsBetweenLoops()

    async def begin() -> weakref.ref[asyncio.AbstractEventLoop]:
        for _ in range(3):
            await left(change_for_ever(turns))
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.new_event_loop()
    gone = loop.run_until_complete(begin())
    if closed:
        loop.close()
    del loop
    gc.collect()
    assert gone() is None
    asyncio.run(asyncio.wait_for(taken(turns), LONG / 2))  # at once: what had it is no more


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
@pytest.mark.parametrize("waited_for", [True, False])
def test_a_turn_that_is_cleared_away_with_its_loop_is_the_next_ones(waited_for: bool) -> None:
    turns = TurnsBetweenLoops()
    others = asyncio.new_event_loop()
    others.run_until_complete(left(change_for_ever(turns)))

    async def wait() -> None:
        nonlocal others
        waiting = asyncio.create_task(taken(turns))
        if waited_for:
            await asyncio.sleep(0)
        del others
        gc.collect()
        async with asyncio.timeout(LONG / 2):
            await waiting

    asyncio.run(wait())


async def left(work: Coroutine[Any, Any, None]) -> None:
    """Begin what will not end."""
    task = asyncio.create_task(work)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio says of who leaves them
    await asyncio.sleep(0)


async def change_for_ever(turns: TurnsBetweenLoops) -> None:
    turn = await taken(turns)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        turns.leave(NAME, turn)


def test_a_turn_that_an_interrupt_left_nobody_is_the_next_ones() -> None:
    async def main() -> None:
        turns = TurnsBetweenLoops()
        turns.take(NAME)
        async with asyncio.timeout(LONG / 2):
            await taken(turns)

    asyncio.run(main())


def test_who_was_gone_around_may_ask_for_another_turn() -> None:
    async def main() -> None:
        turns, loop = TurnsBetweenLoops(), asyncio.get_running_loop()
        async with turns.turn(NAME, loop.time() + LONG) as turn:
            await turn.again()  # which it has
            seized = await turns.wait(NAME, 0.01)
            asking = asyncio.create_task(turn.again())
            await asyncio.sleep(0)
            assert not asking.done()
            turns.leave(NAME, seized)
            await asking
            assert turns.take(NAME) is None
        assert not turns._places

    asyncio.run(main())


def test_nobody_waits_longer_than_half_of_the_time_there_is() -> None:
    async def main() -> None:
        turns, loop = TurnsBetweenLoops(), asyncio.get_running_loop()
        hold, until = turns.take(NAME), loop.time() + 0.1
        async with turns.turn(NAME, until), turns.turn(NAME, loop.time() - 1):
            assert hold
            assert loop.time() < until

    asyncio.run(main())


def test_a_child_of_a_fork_does_not_wait_for_its_parents_turns() -> None:
    async def main() -> None:
        turns = TurnsBetweenLoops()
        parents = turns.take(NAME)
        turns.forget()
        assert parents
        assert turns.take(NAME)

    asyncio.run(main())
