"""Let SIGTERM, SIGHUP and interrupts end a command by an exception, so that waiting audit records are written.

An exception raised just anywhere would do harm: a lock that was taken before its ``with`` began is never released, a
started thread is not waited for, and an event loop loses the result that a task waits for. Other threads, or the loop,
then wait for ever. So the exception waits until no code of the standard library for locks and threads runs; in an event
loop, the signal cancels a task instead.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from agent_memory.service import AsyncAgentMemoryService

T = TypeVar("T")
_SECONDS_TO_END = 5.0
_SECONDS_AT_A_LOCK = 0.01
_LOCKS = "_frozen_importlib _weakrefset asyncio concurrent contextlib importlib logging queue threading weakref"
_LOCKING = frozenset((*_LOCKS.split(), "fsspec.asyn"))
_STARTING = frozenset(("start", "submit"))
_ending = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_can_look_again = hasattr(signal, "setitimer")
_looks_again = False
_ended_by = 0
_ended_at = 0.0


class Ended(KeyboardInterrupt):
    """A signal that ends the process; as an interrupt, no loader of plugins takes it for an error."""


def ended_by() -> int:
    """The number of the signal that ends the process; 0 if none does."""
    return _ended_by


def end_in_order() -> None:
    """Make SIGTERM, SIGHUP and an interrupt raise `Ended`."""
    for number in _ending:
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def run(service: AsyncAgentMemoryService, flow: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a flow in an event loop, then close its service; after `end_in_order`, a signal cancels the flow.

    A signal that comes when the first one should have ended the command cancels the closing, too.

    Raises:
        Ended: a signal cancelled the flow.
    """
    import asyncio  # here, because few commands need it

    tasks: list[asyncio.Task[Any] | None] = []

    def cancel(number: int, _: FrameType | None) -> None:
        several = bool(_ended_by)
        if _is_first(number):
            for task in tasks[several : several + 1]:
                if task and not task.done():
                    task.get_loop().call_soon_threadsafe(task.cancel)

    async def until_cancelled() -> T:
        async with service:
            task = asyncio.ensure_future(flow())
            tasks.extend([task, asyncio.current_task()])
            if _ended_by:
                task.cancel()
            return await task

    if _looks_again:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Ended
    try:
        with _handling(cancel):
            return asyncio.run(until_cancelled())
    except asyncio.CancelledError:
        if _ended_by:
            raise Ended from None
        raise


@contextmanager
def _handling(cancel: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within this context ``cancel`` handles SIGTERM and SIGHUP, and asyncio handles an interrupt."""
    mine = {number: each for number in [*_ending, signal.SIGINT] if (each := signal.getsignal(number)) in _HANDLERS}
    try:
        for number, handler in mine.items():
            signal.signal(number, cancel if handler is _end else signal.default_int_handler)
        yield
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _ended_at
    _ended_at = time.monotonic()
    _raise_outside_locks(number, frame)


_HANDLERS: Final = (_end, _interrupt)


def _raise_outside_locks(_: int, frame: FrameType | None) -> None:
    """Raise, or look again soon, but raise after the seconds in which a command should end."""
    global _looks_again
    is_late = time.monotonic() - _ended_at >= _SECONDS_TO_END
    _looks_again = _can_look_again and not is_late and _is_at_a_lock(frame)
    if not _looks_again:
        raise Ended
    signal.signal(signal.SIGALRM, _raise_outside_locks)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_AT_A_LOCK)


def _is_at_a_lock(frame: FrameType | None) -> bool:
    """Whether the interrupted code is the standard library's that takes locks or starts a thread, and does not wait.

    Neither can `__del__` raise: its caller would go on.
    """
    if frame and (frame.f_code.co_name == "__enter__" or (_is_locking(frame) and not _is_waiting(frame))):
        return True
    while frame and not _must_end(frame):
        frame = frame.f_back
    return frame is not None


def _must_end(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    return name == "__del__" or (name in _STARTING and _is_locking(frame))


def _is_waiting(frame: FrameType) -> bool:
    """Whether a thread waits in `Condition.wait`, or from Python 3.13 on in `Thread.join`.

    Before, an interrupted `join` takes its thread for ended.
    """
    name = frame.f_code.co_name
    return name == "join" or (name == "wait" and "saved_state" in frame.f_locals)


def _is_locking(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__")
    return isinstance(module, str) and (module in _LOCKING or module.partition(".")[0] in _LOCKING)
