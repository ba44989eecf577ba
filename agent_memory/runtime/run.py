"""`Run`: everything that a flow may await; and the run of a sync caller on a blocking backend."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from agent_memory.backend import Backend
from agent_memory.key import Key

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
FOREIGN_AWAIT: Final = "a flow awaited something that is neither a primitive nor its Run"


class Run(Protocol):
    """Everything that a flow may await."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one primitive of the backend."""
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run foreign code that may block, such as a hook."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        """Run a flow for every item, at most ``limit`` at once; return results in order, or raise the first error."""
        ...

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:
        """Lock a file against other tasks and threads of this process, while it is read and then written.

        The lock only avoids conflicts, which are expensive on an object store; after the timeout a caller goes on
        without it.
        """
        ...

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def random(self) -> float:
        """Return a random number in ``[0, 1)``, to spread retries."""
        ...


class RunAround(Run):
    """A run that passes everything to another one; a subclass changes some of it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run.call(primitive, *args, **kwargs)

    async def offload(self, function: Callable[[], T]) -> T:
        return await self._run.offload(function)

    async def sleep(self, seconds: float) -> None:
        await self._run.sleep(seconds)

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:
        return await self._run.map(function, items, limit)

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:
        return self._run.file_lock(store, key)

    def now(self) -> float:
        return self._run.now()

    def random(self) -> float:
        return self._run.random()


class SystemClock:
    """The real clock and random numbers; only a simulated run has others."""

    def now(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return random.random()  # noqa: S311 - spreads retries


class BlockingRun(SystemClock):
    """Runs a flow over a blocking backend without suspending it."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return primitive(*args, **kwargs)  # type: ignore[return-value]  # a blocking backend returns the result

    async def offload(self, function: Callable[[], T]) -> T:
        return function()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop here

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:  # noqa: ARG002 - one at a time
        return [await function(item) for item in items]

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - a race is cheap
        return nullcontext()


def step(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow that never suspends, because its run blocks until each primitive has its result."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError(FOREIGN_AWAIT)
