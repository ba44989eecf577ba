"""An event loop whose time passes only when there is nothing else to do, so that a minute costs microseconds."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs coroutines that await tasks, futures, locks and timers, and nothing outside the process.

    What happens at which time is decided by whoever sets timers alone: callbacks run in the order they were set.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self.errors: list[BaseException | str] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and whatever it started, until it ends; raises `RuntimeError` if nothing can end it."""
        asyncio._set_running_loop(self)
        try:
            task = asyncio.Task(main, loop=self)
            while not task.done():
                self._step()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        if not self._ready:
            if not self._timers:
                raise RuntimeError("everybody waits, and nobody will ever come")
            at, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, at)
            self._ready.append(timer)
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def call_exception_handler(self, context: Any) -> None:
        self.errors.append(context.get("exception") or context["message"])

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""
