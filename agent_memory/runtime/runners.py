"""How a flow runs for a sync and for an async caller.

============  ===================================  ==============================================
caller        blocking backend                     async backend
============  ===================================  ==============================================
sync          stepped in the caller's thread       the same; each primitive hops onto the I/O loop
async         in threads of our executor, but for  in the caller's loop; each primitive hops
              waits, which are in the caller's
              loop and hold no thread
============  ===================================  ==============================================

Only primitives ever run on fsspec's shared I/O loop. Flows, hooks, a caller's ``change`` function and waits
never do: a blocking call there would stall every user of the loop in the process.

Code in a thread of an executor (a hook, a ``change`` function) may itself call the async API and wait for it. Its calls
run in the next executor, so that no thread waits for the executor it belongs to; see ``docs/decisions/026-threads.md``.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import threading
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

import fsspec.asyn

from agent_memory.backend import (
    AnyBackend,
    Backend,
    BlockingBackend,
    Deadline,
    TryLater,
    current_deadline,
    deadline_or_default,
    trying_later,
)
from agent_memory.errors import FileOperationError, OutcomeUnknownError, UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.runtime.fork import renewed_in_child
from agent_memory.runtime.queues import KeyedLocks, KeyedThreadLocks
from agent_memory.runtime.tasks import gather_or_cancel

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


class ThreadedRun(BlockingRun):
    """Runs a flow over a blocking backend in our executor for an async caller; its waits hold no thread."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with trying_later():
                return primitive(*args, **kwargs)  # type: ignore[return-value]  # a blocking backend answers at once
        except TryLater as error:
            later = error.with_traceback(None)
        return await self._try_again(later, partial(primitive, *args, **kwargs))

    async def sleep(self, seconds: float) -> None:
        await _suspended(seconds)

    async def _try_again(self, later: TryLater, primitive: Callable[[], Awaitable[T]]) -> T:
        now = self.now()
        limit = current_deadline() or Deadline(later.seconds, now + later.seconds)
        delay = _FIRST_RETRY
        try:
            with _waiting:
                while self.now() <= limit.at:
                    await self.sleep(self.random() * delay)
                    delay = min(2 * delay, _waiting.longest_delay)
                    try:
                        with trying_later():
                            return primitive()  # type: ignore[return-value]
                    except TryLater as error:
                        later.kept, later = None, error.with_traceback(None)
            raise later.give_up(limit)
        finally:
            later.kept = None  # not when it is collected: an announced lock keeps others out


@types.coroutine
def _suspended(seconds: float) -> Generator[float, None, None]:
    """Leave the thread; the flow's driver sends it on later."""
    yield seconds


class _Waiting(AbstractContextManager[None]):
    """How many flows wait for a lock: the more there are, the less often each tries, so that many cost as few do."""

    def __init__(self) -> None:
        self.count = 0
        self._guard = threading.Lock()
        _all_waiting.add(self)

    @property
    def longest_delay(self) -> float:
        """Seconds."""
        return max(_LONGEST_RETRY, self.count * _RETRY_PER_FLOW)

    def __enter__(self) -> None:
        with self._guard:
            self.count += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._guard:
            self.count -= 1

    def forget(self) -> None:
        """After a fork: the flows are the parent's."""
        self.count = 0
        self._guard = threading.Lock()


_all_waiting = renewed_in_child(_Waiting.forget)


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
        loop = _io_loop(caller_waits=False)
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_as_coroutine(primitive(*args, **kwargs)), loop)
        )

    async def offload(self, function: Callable[[], T]) -> T:
        return await asyncio.shield(in_thread(function))  # a cancelled caller does not unsay a hook

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        places = asyncio.Semaphore(limit)

        async def one(item: T) -> U:
            async with places:
                return await function(item)

        return await gather_or_cancel(one(item) for item in items)

    @asynccontextmanager
    async def turn(self, store: Backend, key: Key) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with suppress(TimeoutError):  # then without: a turn saves work, and keeps no order
                turn = _turns.turn((id(store), key), deadline_or_default(self.now()).at)
                await stack.enter_async_context(turn)
            yield


def step(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow whose every primitive answers at once."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError(_FOREIGN)


def sync_run(backend: AnyBackend) -> Run:
    """The run of a sync caller's flows; `step` runs them."""
    return _BLOCKING if isinstance(backend, BlockingBackend) else _HOPPING


def run_sync(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
    """Run a flow for a sync caller."""
    return step(start(sync_run(backend)))


def run_async(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run a flow for an async caller, on whose event loop this is called."""
    if isinstance(backend, BlockingBackend):
        return _Threaded(start).run()
    return start(_ASYNC)


def close_backend(backend: AnyBackend) -> None:
    """Close a backend, async or not, for a sync caller."""
    if isinstance(backend, BlockingBackend):
        backend.close()
    else:
        run_sync(backend, lambda run: run.call(backend.aclose))


async def aclose_backend(backend: AnyBackend) -> None:
    """Close a backend, async or not, for an async caller."""
    if isinstance(backend, BlockingBackend):
        await in_thread(backend.close)
    else:
        await run_async(backend, lambda run: run.call(backend.aclose))


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in our own executor, with the caller's context variables."""
    return await asyncio.wrap_future(_submit(contextvars.copy_context(), function))


def _submit(context: contextvars.Context, function: Callable[[], T]) -> Future[T]:
    depth = context.get(_depth, 0)
    claim = [None]  # `pop` is one step: either the thread takes it, or the caller that could start none
    try:
        return _executor(depth).submit(context.run, _one_deeper, depth, function, claim)
    except RuntimeError as error:  # the executor may have queued it all the same
        try:
            claim.pop()
        except IndexError:
            raise OutcomeUnknownError("no thread can be started, and another one works on this call") from error
        raise FileOperationError("no thread can be started for this call; nothing was done") from error


def _one_deeper(depth: int, function: Callable[[], T], claim: list[None]) -> T:
    claim.pop()
    token = _depth.set(depth + 1)
    try:
        return function()
    finally:
        _depth.reset(token)


class _Threaded(Generic[T]):
    """A flow that runs in threads of our executor, and waits in its caller's loop."""

    def __init__(self, start: Callable[[Run], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._context = contextvars.copy_context()
        self._flow: Coroutine[Any, Any, T] | None = None
        self._seconds = 0.0

    async def run(self) -> T:
        """Run it to its end. To cancel this ends its wait; a primitive or hook that was begun goes on to its end."""
        while True:
            step = _submit(self._context, self._step)
            try:
                ended, result = await asyncio.wrap_future(step)
            except asyncio.CancelledError:
                step.add_done_callback(self._left)
                raise
            if ended:
                return cast(T, result)
            try:
                await asyncio.sleep(self._seconds)
            except GeneratorExit:
                raise  # the caller's event loop was given up, and its flow is closed with it
            except BaseException:
                self._give_up()
                raise

    def _step(self) -> tuple[bool, T | None]:
        """In a thread: go on until the flow waits or ends."""
        if self._flow is None:
            self._flow = self._start(_THREADED)
        return self._advanced(self._flow, lambda flow: flow.send(None))

    def _advanced(
        self, flow: Coroutine[Any, Any, T], advance: Callable[[Coroutine[Any, Any, T]], object]
    ) -> tuple[bool, T | None]:
        try:
            seconds = advance(flow)
        except StopIteration as stop:
            return True, stop.value
        if not isinstance(seconds, float):
            flow.close()
            raise RuntimeError(_FOREIGN)
        self._seconds = seconds
        return False, None

    def _left(self, step: Future[tuple[bool, T | None]]) -> None:
        """The caller was cancelled during a step that has ended, or will not begin."""
        if step.cancelled() or (step.exception() is None and not step.result()[0]):
            self._give_up()

    def _give_up(self) -> None:
        """Cancel a flow that waits; it tells its hooks in a thread."""
        if self._flow is None:
            return  # it has not begun, and no hook was called
        with suppress(FileOperationError):  # the interpreter ends
            _submit(self._context, self._cancelled)

    def _cancelled(self) -> None:
        flow = self._flow
        with suppress(asyncio.CancelledError):
            while flow is not None and not self._advanced(flow, lambda flow: flow.throw(asyncio.CancelledError()))[0]:
                pass


_turns = KeyedLocks()
_thread_turns = KeyedThreadLocks()
_BLOCKING = BlockingRun()
_HOPPING = HoppingRun()
_ASYNC = AsyncRun()
_THREADED = ThreadedRun()
_waiting = _Waiting()
_depth: ContextVar[int] = ContextVar("agent_memory_executor", default=0)
_pools: dict[int, ThreadPoolExecutor] = {}
_THREADS = 32
_FIRST_RETRY, _LONGEST_RETRY, _RETRY_PER_FLOW = 0.0005, 0.01, 0.002
_FOREIGN = "a flow awaited something that is neither a primitive nor its Run"


def _executor(depth: int) -> ThreadPoolExecutor:
    """The executor of async callers, and of those that run in a thread of the executor before it."""
    pool = _pools.get(depth)
    if pool is None:
        pool = _pools.setdefault(depth, ThreadPoolExecutor(_THREADS, "agent-memory"))
    return pool


os.register_at_fork(after_in_child=_pools.clear)  # their threads did not survive the fork


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
