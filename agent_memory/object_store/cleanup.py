"""`Cleanup`: removes the leftovers of a failed operation from the server, even if the operation was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from agent_memory.object_store.retry import Attempts

_SECONDS: Final = 5.0


class Cleanup:
    """Requests that remove something, each with its own time limit. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Callable[[], Awaitable[object]], attempts: Attempts) -> None:
        """Send a request until it is answered, for 5 seconds at most, because the operation's deadline may be over.

        The caller waits no longer than its own deadline. A request that fails raises nothing.
        """
        task = asyncio.ensure_future(_answered(request, attempts.briefly(_SECONDS)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=attempts.seconds_left)

    @asynccontextmanager
    async def on_failure(self, request: Callable[[], Awaitable[object]], attempts: Attempts) -> AsyncIterator[None]:
        """Call `run` if the body fails or is cancelled; not if its coroutine is closed, after its event loop."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            await self.run(request, attempts)
            raise

    async def aclose(self) -> None:
        """Wait for the unfinished requests, for 5 seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_SECONDS)


async def _answered(request: Callable[[], Awaitable[object]], attempts: Attempts) -> None:
    with suppress(Exception):  # the caller has an error of its own to raise
        await attempts.until_answered(request)
