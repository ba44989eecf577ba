"""Locks by name are first come, first served; a task that times out or is cancelled blocks no other task."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from agent_memory.runtime.queues import KeyedLocks


def test_a_lock_is_granted_in_the_order_of_the_requests() -> None:
    async def main() -> list[int]:
        locks, order = KeyedLocks(), list[int]()

        async def change(number: int) -> None:
            async with locks.lock("file"):
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(*(change(number) for number in range(20)))
        return order

    assert asyncio.run(main()) == list(range(20))


def test_locks_of_different_names_do_not_block_each_other() -> None:
    async def main() -> None:
        locks = KeyedLocks()
        async with locks.lock("one"), asyncio.timeout(5), locks.lock("other"):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["in time", "cancelled"])
def test_a_task_that_stops_waiting_blocks_no_other_task(ending: str) -> None:
    async def main() -> KeyedLocks:
        locks, loop = KeyedLocks(), asyncio.get_running_loop()

        async def wait(until: float | None) -> None:
            async with locks.lock("file", until):
                raise AssertionError("another task holds it")

        async with locks.lock("file"):
            waiting = asyncio.create_task(wait(loop.time() - 1 if ending == "in time" else None))
            await asyncio.sleep(0)
            if ending == "cancelled":
                waiting.cancel()
            with pytest.raises(TimeoutError if ending == "in time" else asyncio.CancelledError):
                await waiting
        async with asyncio.timeout(5), locks.lock("file"):
            pass
        return locks

    locks = asyncio.run(main())
    gc.collect()
    assert not len(locks._locks), "the lock of a name that no task uses is dropped"


def test_a_lock_is_released_when_its_holder_fails() -> None:
    async def main() -> None:
        locks = KeyedLocks()
        with pytest.raises(ZeroDivisionError):
            async with locks.lock("file"):
                raise ZeroDivisionError
        async with asyncio.timeout(5), locks.lock("file"):
            pass

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
@pytest.mark.parametrize("closed", [True, False])
def test_an_event_loop_that_ends_with_held_and_awaited_locks_can_be_collected(closed: bool) -> None:
    locks = KeyedLocks()

    async def change() -> None:
        async with locks.lock("file", asyncio.get_running_loop().time() + 3_600):
            await asyncio.get_running_loop().create_future()

    async def begin() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            task = loop.create_task(change())
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # silences asyncio's warning
        await asyncio.sleep(0)
        return weakref.ref(loop)

    loop = asyncio.new_event_loop()
    gone = loop.run_until_complete(begin())
    if closed:
        loop.close()
    del loop
    gc.collect()
    assert gone() is None
    assert not len(locks._locks)
