"""An event loop with simulated time: it jumps to the next timer when no callback is ready."""

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
    """Runs coroutines that await only tasks, futures, locks and timers, and nothing outside the process.

    It is deterministic: only the timers decide the time of an event, and callbacks run in the order they were added.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self.errors: list[BaseException | str] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and the tasks it started, until it ends; `RuntimeError` if it waits and no timer is left."""
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
                raise RuntimeError("deadlock: all tasks wait, and no timer is left")
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
        """Do nothing: a cancelled timer is skipped at its time."""
