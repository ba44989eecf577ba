"""`VersionedRun`: runs flows over an object whose methods are flows themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, TypeVar

from agent_memory.backend import Backend
from agent_memory.key import Key
from agent_memory.runtime.run import Run, RunAround

P = ParamSpec("P")
T = TypeVar("T")


class Flowing:
    """An object whose coroutine methods are flows themselves: they await only a `Run`."""


class VersionedRun(RunAround):
    """Another run that also runs the methods of a `Flowing` object."""

    def __init__(self, run: Run, inner: Backend) -> None:
        super().__init__(run)
        self._inner = inner

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if isinstance(getattr(primitive, "__self__", None), Flowing):
            return await primitive(*args, **kwargs)
        return await super().call(primitive, *args, **kwargs)

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - of the inner store
        return super().file_lock(self._inner, key)
