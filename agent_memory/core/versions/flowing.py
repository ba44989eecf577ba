"""`VersionedRun`: runs flows over an object whose methods are flows themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

from agent_memory.backend import Backend
from agent_memory.key import Key
from agent_memory.runtime.run import Run

P = ParamSpec("P")
T = TypeVar("T")


class Flowing:
    """An object whose coroutine methods are flows themselves: they await only a `Run`."""


class VersionedRun(Run):
    """Another run that also runs the methods of a `Flowing` object."""

    def __init__(self, run: Run, inner: Backend) -> None:
        self._run = run
        self._inner = inner

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if isinstance(getattr(primitive, "__self__", None), Flowing):
            return await primitive(*args, **kwargs)
        return await self._run.call(primitive, *args, **kwargs)

    async def offload(self, function: Callable[[], T]) -> T:
        return await self._run.offload(function)

    async def sleep(self, seconds: float) -> None:
        await self._run.sleep(seconds)

    async def map(self, function: Any, items: Any, limit: int) -> Any:
        return await self._run.map(function, items, limit)

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - of the inner store
        return self._run.file_lock(self._inner, key)

    def now(self) -> float:
        return self._run.now()

    def random(self) -> float:
        return self._run.random()
