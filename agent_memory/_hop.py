"""A coroutine that runs on another thread's event loop, awaited on one's own.

What `asyncio.run_coroutine_threadsafe` and `asyncio.wrap_future` do, without a `concurrent.futures.Future` and its lock
between them, for half the price; see ``docs/decisions/017-own-hop.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def on_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another loop, with the caller's context variables.

    To cancel the caller cancels the coroutine, and does not wait for it.
    """
    hop = _Hop(loop, coroutine)
    try:
        loop.call_soon_threadsafe(hop.start)
    except RuntimeError:  # the loop is closed
        coroutine.close()
        raise
    try:
        return await hop.future
    except asyncio.CancelledError:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hop.cancel)
        raise


class _Hop(Generic[T]):
    __slots__ = ("_caller", "_coroutine", "_loop", "_task", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._caller = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._caller.create_future()

    def start(self) -> None:
        """There."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._return)

    def cancel(self) -> None:
        """There, after `start`."""
        self._task.cancel()

    def _return(self, task: asyncio.Task[T]) -> None:
        if not self._caller.is_closed():  # else nobody waits any more
            self._caller.call_soon_threadsafe(self._settle, task)

    def _settle(self, task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if self.future.done():
            return  # cancelled meanwhile; the error, if there was one, counts as looked at
        if task.cancelled():
            self.future.cancel()
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())
