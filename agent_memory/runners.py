"""How a flow runs for a sync and for an async caller.

============  ===================================  ==============================================
caller        blocking backend                     async backend
============  ===================================  ==============================================
sync          stepped in the caller's thread       the same; each primitive hops onto the I/O loop
async         whole, in one thread of our executor  in the caller's loop; each primitive hops, unless the
                                                   backend says that it may run there
============  ===================================  ==============================================

Only primitives ever run on fsspec's shared I/O loop. Flows, hooks, a caller's ``change`` function and waits
never do: a blocking call there would stall every user of the loop in the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

import fsspec.asyn

from agent_memory._deadline import deadline_or_default
from agent_memory._hop import on_loop
from agent_memory._together import together
from agent_memory._turns import ThreadTurns
from agent_memory.backend import AnyBackend, Backend, BlockingBackend, Turns
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


class Run(Protocol):
    """All that a flow may await, beside nothing."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one primitive of the backend."""
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run code that may block and is not ours: a hook."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        """Run a flow for every item, at most ``limit`` at once; results in order, the first error raised."""
        ...

    def turn(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:
        """One's turn to read a file and write it, behind the others of this process; where a lost race is dear."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def random(self) -> float:
        """A number in ``[0, 1)``."""
        ...


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return random.random()  # noqa: S311 - spreads retries


class BlockingRun(_Clock):
    """Runs a flow over a blocking backend to its end without ever suspending it."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return primitive(*args, **kwargs)  # type: ignore[return-value]  # a blocking backend answers at once

    async def offload(self, function: Callable[[], T]) -> T:
        return function()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop here

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:  # noqa: ARG002 - one at a time
        return [await function(item) for item in items]

    def turn(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - it is cheap
        return nullcontext()


class HoppingRun(BlockingRun):
    """Runs a flow over an async backend for a sync caller: each primitive runs on the I/O loop."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = _io_loop()
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
    async def turn(self, store: Backend, key: Key) -> AsyncIterator[None]:
        with _thread_turns.turn((id(store), key), _longest_turn(self)):
            yield


class AsyncRun(_Clock):
    """Runs a flow over an async backend in the caller's own event loop."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await on_loop(_io_loop(caller_waits=False), primitive(*args, **kwargs))

    async def offload(self, function: Callable[[], T]) -> T:
        return await asyncio.shield(in_thread(function))  # a cancelled caller does not unsay a hook

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        places = asyncio.Semaphore(limit)

        async def one(item: T) -> U:
            async with places:
                return await function(item)

        return await together(one(item) for item in items)

    @asynccontextmanager
    async def turn(self, store: Backend, key: Key) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with suppress(TimeoutError):  # then without: a turn saves work, and keeps no order
                turn = _turns.turn((id(store), key), deadline_or_default(self.now()).at)
                await stack.enter_async_context(turn)
            yield


class HereRun(AsyncRun):
    """Runs a flow over an async backend in the caller's own event loop, primitives included."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await primitive(*args, **kwargs)


def step(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow whose every primitive answers at once."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError("a flow awaited something that is neither a primitive nor its Run")


def sync_run(backend: AnyBackend) -> Run:
    """The run of a sync caller's flows; `step` runs them."""
    return _BLOCKING if isinstance(backend, BlockingBackend) else _HOPPING


def run_sync(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
    """Run a flow for a sync caller."""
    return step(start(sync_run(backend)))


def run_async(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run a flow for an async caller, on whose event loop this is called."""
    if backend.colour == "blocking":
        return in_thread(lambda: step(start(_BLOCKING)))
    return start(_HERE if backend.may_run_here() else _ASYNC)


def close_backend(backend: AnyBackend) -> None:
    """Close a backend of either colour for a sync caller."""
    if isinstance(backend, BlockingBackend):
        backend.close()
    else:
        run_sync(backend, lambda run: run.call(backend.aclose))


async def aclose_backend(backend: AnyBackend) -> None:
    """Close a backend of either colour for an async caller."""
    if isinstance(backend, BlockingBackend):
        await in_thread(backend.close)
    else:
        await run_async(backend, lambda run: run.call(backend.aclose))


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in our own executor, with the caller's context variables."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_executor(), partial(context.run, function))


_turns = Turns()
_thread_turns = ThreadTurns()
_BLOCKING = BlockingRun()
_HOPPING = HoppingRun()
_ASYNC = AsyncRun()
_HERE = HereRun()
_pool: ThreadPoolExecutor | None = None
_THREADS = 32


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, "agent-memory")
    return _pool


def _forget_executor() -> None:
    global _pool
    _pool = None  # its threads did not survive the fork


os.register_at_fork(after_in_child=_forget_executor)


def _longest_turn(run: Run) -> float:
    now = run.now()
    return deadline_or_default(now).at - now


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _io_loop(caller_waits: bool = True) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = fsspec.asyn.get_loop()
    if caller_waits and asyncio._get_running_loop() is loop:
        raise UnsupportedOperationError(
            "a sync call on fsspec's own I/O loop would wait for itself; use AsyncAgentMemory"
        )
    return loop
