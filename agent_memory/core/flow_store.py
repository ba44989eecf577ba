"""`FlowStore`: the base of stores that add steps to the primitives of another store, within one operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar, cast

from agent_memory.backend import ANY, Backend, Capabilities, Entry, ETag, Page, Parts, ReadWhen, Snapshot
from agent_memory.core.flows import checked_capabilities
from agent_memory.key import Key
from agent_memory.runtime.run import Run, RunAround

P = ParamSpec("P")
T = TypeVar("T")


class FlowStore(Backend):
    """A store over another one, for the flow of one operation; its methods are flows.

    Attributes:
        run: runs flows over this store.
    """

    def __init__(self, inner: Backend, run: Run) -> None:
        self.max_bytes = inner.max_bytes
        self.part_bytes = inner.part_bytes
        self.run = _RunOfFlows(run, inner)
        self._inner = inner
        self._run = run

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # not to be set
        return self._inner.capabilities

    async def check_capabilities(self, key: Key) -> Capabilities:
        return await checked_capabilities(self._inner, self._run, key)

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        return await self._call(self._inner.read, key, start, end, when)

    async def stat(self, key: Key) -> Entry:
        return await self._call(self._inner.stat, key)

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        return await self._call(self._inner.list, prefix, recursive=recursive, after=after, limit=limit)

    async def _call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run.call(primitive, *args, **kwargs)


class FlowParts:
    """`agent_memory.backend.Parts` of a `FlowStore`; its methods are flows."""

    def __init__(self, parts: Parts, run: Run) -> None:
        self.part_bytes = parts.part_bytes
        self._parts = cast(Any, parts)
        self._run = run

    async def add(self, data: bytes) -> None:
        await self._run.call(self._parts.add, data)

    async def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:
        added: bool = await self._run.call(self._parts.add_copy, source, start, end, etag)
        return added

    async def complete(self) -> ETag:
        etag: ETag = await self._run.call(self._parts.complete)
        return etag

    async def abort(self) -> None:
        await self._run.call(self._parts.abort)


class _RunOfFlows(RunAround):
    """Another run, which also runs the methods of a `FlowStore` and of its `FlowParts`."""

    def __init__(self, run: Run, inner: Backend) -> None:
        super().__init__(run)
        self._inner = inner

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if isinstance(getattr(primitive, "__self__", None), FlowStore | FlowParts):
            return await primitive(*args, **kwargs)
        return await super().call(primitive, *args, **kwargs)

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - of the inner store
        return super().file_lock(self._inner, key)
