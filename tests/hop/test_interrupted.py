"""Whatever goes wrong with one call to another loop, those after it are answered."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from contextlib import closing, suppress
from types import FrameType
from typing import Any

import pytest

from agent_memory._hop import on_loop

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
async def test_who_wants_to_end_the_process_ends_not_the_other_loop(
    other: asyncio.AbstractEventLoop, leaving: type[BaseException]
) -> None:
    async def leave() -> None:
        raise leaving

    async def left() -> type[BaseException]:  # a task that raises these would end this loop
        with pytest.raises(leaving) as raised:
            await on_loop(other, leave())
        return raised.type

    assert await left() is leaving
    assert await on_loop(other, asyncio.sleep(0, "alive")) == "alive"


async def test_who_closes_itself_closes_not_the_caller(other: asyncio.AbstractEventLoop) -> None:
    async def close() -> None:
        raise GeneratorExit

    with pytest.raises(RuntimeError, match="GeneratorExit"):
        await on_loop(other, close())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # who has no stack left cannot say
async def test_a_full_stack_is_the_error_of_one_call(other: asyncio.AbstractEventLoop) -> None:
    async def deep(levels: int) -> str:
        return await (deep(levels - 1) if levels else on_loop(other, asyncio.sleep(0, "deep")))

    outcomes = set()
    limit = sys.getrecursionlimit()
    for levels in range(limit - 100, limit):
        try:
            outcomes.add(await asyncio.wait_for(deep(levels), 30))
        except RecursionError:
            outcomes.add("too deep")
        assert await asyncio.wait_for(on_loop(other, asyncio.sleep(0, "shallow")), 30) == "shallow"
    assert outcomes == {"deep", "too deep"}
    gc.collect()


def give_up(loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)


def interrupt_on_entering(function: str, caller: str) -> None:
    """Raise `KeyboardInterrupt` where a signal's handler may: as this thread enters a function."""

    def trace(frame: FrameType, _event: str, _arg: object) -> None:
        if frame.f_code.co_name == function and frame.f_back and frame.f_back.f_code.co_name == caller:
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(trace)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    "where",
    [("put", "on_loop"), ("call_soon_threadsafe", "put"), ("_settle", "_run"), ("settle", "_settle")],
    ids="-".join,
)
async def test_an_interrupted_loop_goes_on(other: asyncio.AbstractEventLoop, where: tuple[str, str]) -> None:
    def interrupted() -> str:
        with closing(asyncio.new_event_loop()) as loop:
            interrupt_on_entering(*where)
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(on_loop(other, asyncio.sleep(0, "before")))
            sys.settrace(None)
            answer = loop.run_until_complete(asyncio.wait_for(on_loop(other, asyncio.sleep(0, "after")), 30))
            give_up(loop, asyncio.all_tasks(loop))
            return answer

    assert await asyncio.to_thread(interrupted) == "after"
    assert await asyncio.wait_for(on_loop(other, asyncio.sleep(0, "elsewhere")), 30) == "elsewhere"
    gc.collect()


async def test_of_answers_that_come_together_no_other_is_lost(other: asyncio.AbstractEventLoop) -> None:
    def interrupted() -> list[str]:
        with closing(asyncio.new_event_loop()) as loop:
            other.call_soon_threadsafe(time.sleep, 0.2)
            tasks = {loop.create_task(on_loop(other, asyncio.sleep(0, "answer"))) for _ in range(3)}
            interrupt_on_entering("settle", "_settle")
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(asyncio.wait(tasks))
            sys.settrace(None)
            loop.run_until_complete(on_loop(other, asyncio.sleep(0.01)))
            done = {task for task in tasks if task.done()}
            give_up(loop, tasks - done)
            return [task.result() for task in done]

    assert await asyncio.to_thread(interrupted) == ["answer"] * 2


@pytest.mark.filterwarnings("error")
async def test_a_task_that_cannot_be_made_is_the_error_of_one_call(other: asyncio.AbstractEventLoop) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        other.set_task_factory(None)
        raise ZeroDivisionError("no task")

    other.call_soon_threadsafe(time.sleep, 0.2)  # so that all are told at once
    other.set_task_factory(refuse)
    outcomes = await asyncio.gather(
        *(on_loop(other, asyncio.sleep(0, number)) for number in range(5)), return_exceptions=True
    )
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert outcomes[1:] == [1, 2, 3, 4]
    gc.collect()
