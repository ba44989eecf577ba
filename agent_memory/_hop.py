"""An awaitable that runs on another thread's event loop, awaited on one's own.

What `asyncio.run_coroutine_threadsafe` and `asyncio.wrap_future` do, for less: there is no `concurrent.futures.Future`
and its lock between them, calls made meanwhile go to the other loop together, and so do their answers back; see
``docs/decisions/017-own-hop.md``.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def on_loop(loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T]) -> T:
    """Await something on another loop, with the caller's context variables.

    To cancel the caller cancels it there, and does not wait for it.
    """
    hop = _Hop(loop, awaitable)
    try:
        hop.mailbox.put(loop, hop.start)
    except BaseException:  # the loop is closed, or the stack was full, or a signal's handler raised
        hop.future.cancel()  # it is not begun any more
        if loop.is_closed():
            _close(awaitable)
        raise
    try:
        return await hop.future
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            hop.mailbox.put(loop, hop.cancel)
        raise
    finally:
        del hop  # an error's traceback holds this


class _Hop(Generic[T]):
    __slots__ = ("_awaitable", "_context", "_error", "_result", "_task", "caller", "future", "mailbox")

    def __init__(self, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self._context = contextvars.copy_context()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self.mailbox = _mailboxes.get(loop) or _mailboxes.setdefault(loop, _Mailbox())
        self.caller = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.caller.create_future()

    def start(self) -> None:
        """There."""
        if self.future.cancelled():
            _close(self._awaitable)
            return
        self.mailbox.under_way += 1
        work = self._work()
        work.send(None)  # into its `try`: of a task that is cancelled before its first step nothing would run
        try:
            self._task = asyncio.get_running_loop().create_task(work, context=self._context)
        except Exception as error:  # noqa: BLE001 - of the loop's task factory
            with suppress(StopIteration):
                work.throw(error)

    def cancel(self) -> None:
        """There, after `start`."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        """There; replies itself, for the callbacks of a task wait for another round of the loop."""
        try:
            await _first_step()
            self._result = await self._awaitable
        except GeneratorExit:
            if not self._is_running():
                raise  # the loop was given up, and this with it
            self._error = RuntimeError("what was awaited raised GeneratorExit")  # by which a caller would be closed
        except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
            _close(self._awaitable)
            self._error = error
        self.mailbox.reply(self)
        del self  # an error's traceback holds this

    def _is_running(self) -> bool:
        return self._task is not None and asyncio.current_task(self._task.get_loop()) is self._task

    def settle(self) -> None:
        """On the caller's loop."""
        error, self._error = self._error, None  # whose traceback holds this
        if self.future.done():
            return  # cancelled meanwhile
        if error is None:
            self.future.set_result(cast(T, self._result))
        elif isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)


class _Visit:
    """Of a loop to its mailbox: whoever puts a call there before it begins need not ask for another."""

    __slots__ = ("begun",)

    def __init__(self, *, begun: bool = False) -> None:
        self.begun = begun


class _Mailbox:
    """Of a loop that works for others: the calls it is to make, put there by any thread, and its replies.

    All callers share it, so it is changed by its own loop alone, or so that an exception at any point does no harm to
    others: the stack of a caller may be full, and where its loop is in the main thread, a signal's handler may raise.
    """

    __slots__ = ("_calls", "_replies", "_visit", "under_way")

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._visit = _Visit(begun=True)
        self._replies: dict[asyncio.AbstractEventLoop, deque[_Hop[Any]]] = {}
        self.under_way = 0

    def put(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Have its loop make a call, which must not raise; raises `RuntimeError` if the loop is closed."""
        if loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._calls.append(call)
        if self._visit.begun:
            visit = _Visit()
            loop.call_soon_threadsafe(self._make_calls, visit)
            self._visit = visit  # only now, for until it begins nobody asks for another

    def _make_calls(self, visit: _Visit) -> None:
        visit.begun = True
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def reply(self, hop: _Hop[Any]) -> None:
        """There: have a caller told, together with all whose calls end in this round; at once if none is under way."""
        self.under_way -= 1
        if self.under_way and not self._replies:
            asyncio.get_running_loop().call_soon(self._send)
        self._replies.setdefault(hop.caller, deque()).append(hop)
        if not self.under_way:
            self._send()

    def _send(self) -> None:
        replies, self._replies = self._replies, {}
        for caller, hops in replies.items():
            with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
                caller.call_soon_threadsafe(_settle, hops)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = WeakKeyDictionary()


def _settle(hops: deque[_Hop[Any]]) -> None:
    """On the callers' loop."""
    try:
        while hops:
            hops.popleft().settle()
    finally:
        if hops:  # a signal's handler raised
            asyncio.get_running_loop().call_soon(_settle, hops)


@types.coroutine
def _first_step() -> Generator[None, None, None]:
    yield


def _close(awaitable: Awaitable[object]) -> None:
    """Say of a coroutine that nobody will await it."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()
