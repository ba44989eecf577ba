"""Flows over an async backend: primitives run on fsspec's I/O loop, everything else in the caller's thread or loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, ParamSpec, TypeVar

from agent_memory.backend import Backend
from agent_memory.backend.helpers import deadline_or_default
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.runtime.queues import KeyedLocks, KeyedThreadLocks
from agent_memory.runtime.run import BlockingRun, SystemClock, step
from agent_memory.runtime.tasks import map_or_cancel
from agent_memory.runtime.threads import in_thread

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


class SyncIORun(BlockingRun):
    """Runs a flow for a sync caller, which blocks while a primitive runs."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = io_loop()
        if _running_loop() is loop:
            raise UnsupportedOperationError(
                "a sync call on fsspec's own I/O loop would wait for itself; use AsyncAgentMemory"
            )
        future = asyncio.run_coroutine_threadsafe(_as_coroutine(primitive(*args, **kwargs)), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        def one(item: T, context: contextvars.Context) -> U:
            return context.run(lambda: step(function(item)))

        with ThreadPoolExecutor(limit, "agent-memory-map") as pool:
            return list(pool.map(one, items, iter(contextvars.copy_context, None)))

    @asynccontextmanager
    async def file_lock(self, store: Backend, key: Key) -> AsyncIterator[None]:
        now = self.now()
        with _thread_locks.lock((id(store), key), deadline_or_default(now).at - now):
            yield


class AsyncIORun(SystemClock):
    """Runs a flow in the event loop of an async caller."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        request = _as_coroutine(primitive(*args, **kwargs))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, io_loop()))

    async def offload(self, function: Callable[[], T]) -> T:
        return await asyncio.shield(in_thread(function))  # a hook that has begun runs to its end

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        return await map_or_cancel(function, items, limit)

    @asynccontextmanager
    async def file_lock(self, store: Backend, key: Key) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with suppress(TimeoutError):
                await stack.enter_async_context(_locks.lock((id(store), key), deadline_or_default(self.now()).at))
            yield


_locks: Final = KeyedLocks()
_thread_locks: Final = KeyedThreadLocks()


def io_loop() -> asyncio.AbstractEventLoop:
    """Return fsspec's event loop, which runs in its own thread."""
    import fsspec.asyn  # here, because it takes long to import, and a store on disk does not need it

    loop: asyncio.AbstractEventLoop = fsspec.asyn.get_loop()
    return loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
