"""`Run`: everything a flow is allowed to await; and the run of a sync caller on a blocking backend."""

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
    """Everything a flow is allowed to await."""

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

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:
        """Keep other tasks and threads of this process from a file that is read and then written.

        It only saves lost races, which are dear on an object store, so a caller that cannot get it in time goes on.
        """
        ...

    def now(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def random(self) -> float:
        """A number in ``[0, 1)``, to spread retries."""
        ...


class SystemClock:
    """The time and the random numbers of every run but a simulated one."""

    def now(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return random.random()  # noqa: S311 - spreads retries


class BlockingRun(SystemClock):
    """Runs a flow over a blocking backend to its end without ever suspending it."""

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return primitive(*args, **kwargs)  # type: ignore[return-value]  # a blocking backend answers at once

    async def offload(self, function: Callable[[], T]) -> T:
        return function()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop here

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:  # noqa: ARG002 - one at a time
        return [await function(item) for item in items]

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - a race is cheap
        return nullcontext()


def step(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow that never suspends, because every primitive answers at once."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError(FOREIGN_AWAIT)
