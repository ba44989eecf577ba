"""An awaitable that runs on another thread's event loop, awaited on one's own.

What `asyncio.run_coroutine_threadsafe` and `asyncio.wrap_future` do, for less: there is no `concurrent.futures.Future`
and its lock between them, and a loop is woken once for all that it is told meanwhile; see
``docs/decisions/017-own-hop.md``.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Generic, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def on_loop(loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T]) -> T:
    """Await something on another loop, with the caller's context variables.

    To cancel the caller cancels it there, and does not wait for it.
    """
    hop = _Hop(loop, awaitable)
    try:
        _tell(loop, hop.start)
    except RuntimeError:  # the loop is closed
        _close(awaitable)
        raise
    try:
        return await hop.future
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            _tell(loop, hop.cancel)
        raise


class _Hop(Generic[T]):
    __slots__ = ("_awaitable", "_caller", "_context", "_error", "_loop", "_result", "_task", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T]) -> None:
        self._loop = loop
        self._awaitable = awaitable
        self._context = contextvars.copy_context()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._caller = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._caller.create_future()

    def start(self) -> None:
        """There."""
        work = self._work()
        work.send(None)  # into its `try`: of a task that is cancelled before its first step nothing would run
        self._task = self._loop.create_task(work, context=self._context)

    def cancel(self) -> None:
        """There, after `start`."""
        self._task.cancel()

    async def _work(self) -> None:
        """There; tells the caller itself, for the callbacks of a task wait for another round of the loop."""
        try:
            await _first_step()
            self._result = await self._awaitable
        except GeneratorExit:  # the loop was given up, and this with it
            raise
        except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
            _close(self._awaitable)
            self._error = error
        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            _tell(self._caller, self._settle)

    def _settle(self) -> None:
        error, self._error = self._error, None  # whose traceback holds this
        if self.future.done():
            return  # cancelled meanwhile
        if error is None:
            self.future.set_result(cast(T, self._result))
        elif isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)


class _Inbox:
    """The calls that a loop is to make, from any thread: who finds it empty wakes the loop."""

    __slots__ = ("_calls", "_woken")

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if not self._woken:
            self._woken = True  # before the loop can be there to unset it
            loop.call_soon_threadsafe(self._make_calls)
        elif loop.is_closed():
            raise RuntimeError("the event loop is closed")

    def _make_calls(self) -> None:
        self._woken = False  # who comes after this wakes the loop again
        for _ in range(len(self._calls)):
            self._calls.popleft()()


_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have a call made by a loop, which must not raise; raises `RuntimeError` if the loop is closed."""
    inbox = _inboxes.get(loop)
    if inbox is None:
        for reference in _inboxes.keyrefs():  # all at once: other threads add theirs meanwhile
            if (other := reference()) is not None and other.is_closed():  # what it was told last may hold it
                _inboxes.pop(other, None)
        inbox = _inboxes.setdefault(loop, _Inbox())
    inbox.put(loop, call)


@types.coroutine
def _first_step() -> Generator[None, None, None]:
    yield


def _close(awaitable: Awaitable[object]) -> None:
    """Say of a coroutine that nobody will await it."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()
