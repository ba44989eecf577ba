"""Let SIGTERM and SIGHUP end a command as an exception does, so that waiting audit records are written.

An exception raised just anywhere would do harm: a lock that was taken before its ``with`` began is never released, a
started thread is not waited for, and an event loop loses the result that a task waits for. Other threads, or the loop,
then wait for ever. So the exception waits until no code of the standard library for locks and threads runs; in an event
loop, the signal cancels a task instead.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from agent_memory.service import AsyncAgentMemoryService

T = TypeVar("T")
_SECONDS_TO_END = 5.0
_SECONDS_AT_A_LOCK = 0.01
_LOCKING = frozenset(("concurrent", "contextlib", "importlib", "_frozen_importlib", "logging", "queue", "threading"))
_WAITING = frozenset(("wait", "join", "_wait_for_tstate_lock"))
_STARTING = frozenset(("start", "submit"))
_ending = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_looking = [getattr(signal, name) for name in ("SIGALRM",) if hasattr(signal, name)]
_ended_by = 0
_ended_at = 0.0


class Ended(KeyboardInterrupt):
    """A signal that ends the process; as an interrupt, no loader of plugins takes it for an error."""


def ended_by() -> int:
    """The number of the signal that ends the process; 0 if none does."""
    return _ended_by


def end_in_order() -> None:
    """Make SIGTERM and SIGHUP raise `Ended`."""
    for number in _ending:
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _end)


def run(service: AsyncAgentMemoryService, flow: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a flow in an event loop, which SIGTERM and SIGHUP cancel after `end_in_order`; then close its service.

    Raises:
        Ended: a signal cancelled the flow, and the service is closed.
    """
    import asyncio  # here, because few commands need it

    tasks: list[asyncio.Task[T]] = []

    def cancel(number: int, _: FrameType | None) -> None:
        if _is_first(number):
            for task in [each for each in tasks if not each.done()]:
                task.get_loop().call_soon_threadsafe(task.cancel)

    async def until_cancelled() -> T:
        async with service:
            tasks.append(asyncio.ensure_future(flow()))
            if _ended_by:
                tasks[0].cancel()
            return await tasks[0]

    handlers = {number: signal.getsignal(number) for number in [*_ending, *_looking]}
    mine = {number: each for number, each in handlers.items() if each in (_end, _raise_outside_locks)}
    for number in mine:
        signal.signal(number, cancel)
    try:
        return asyncio.run(until_cancelled())
    except asyncio.CancelledError:
        raise Ended from None
    finally:
        for number, handler in mine.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    if _is_first(number):
        _raise_outside_locks(number, frame)


def _is_first(number: int) -> bool:
    """Note a signal; False in the seconds in which the one before lets the command end."""
    global _ended_by, _ended_at
    if _ended_by and time.monotonic() - _ended_at < _SECONDS_TO_END:
        return False
    _ended_by, _ended_at = number, time.monotonic()
    return True


def _raise_outside_locks(_: int, frame: FrameType | None) -> None:
    """Raise, or look again soon, but raise after the seconds in which a command should end."""
    if not (_looking and _is_at_a_lock(frame)) or time.monotonic() - _ended_at >= _SECONDS_TO_END:
        raise Ended
    signal.signal(_looking[0], _raise_outside_locks)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_AT_A_LOCK)


def _is_at_a_lock(frame: FrameType | None) -> bool:
    """Whether the interrupted code is the standard library's that takes locks or starts a thread, and does not wait."""
    name = frame.f_code.co_name if frame else ""
    if name == "__enter__" or (_is_locking(frame) and name not in _WAITING):
        return True
    while frame and not (_is_locking(frame) and frame.f_code.co_name in _STARTING):
        frame = frame.f_back
    return frame is not None


def _is_locking(frame: FrameType | None) -> bool:
    module = frame.f_globals.get("__name__") if frame else None
    return isinstance(module, str) and module.partition(".")[0] in _LOCKING
