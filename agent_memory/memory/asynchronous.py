"""`AsyncAgentMemory`: `AgentMemory` for async callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, Self, TypeVar, overload

from agent_memory.backend import ABSENT, ANY, PRESENT, Entry
from agent_memory.core.budgets import NearlyFull, nearly_full
from agent_memory.core.limits.count import Usage
from agent_memory.core.part_flows import Blocks
from agent_memory.core.precondition import (
    BY_MISSING,
    DefaultCondition,
    DeleteCondition,
    EditCondition,
    SourceCondition,
    WriteCondition,
)
from agent_memory.core.results import ListedPart, RecordedResult, TreeResult, WriteResult
from agent_memory.memory.versions import AsyncFileVersions
from agent_memory.memory.view import View, content_of, of_bytes, of_text, text_of
from agent_memory.reading.reader import Reader
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import run_async

T = TypeVar("T")
U = TypeVar("U")


class AsyncAgentMemory(View):
    """`AgentMemory` for async callers: the same methods, awaited; no awaited call blocks the caller's event loop.

    The methods that are not awaited (`open`, `subtree`) do no I/O, but they report a bad name to the hooks at once.
    """

    async def read(self, path: str) -> str:
        """See `AgentMemory.read`."""
        return await self._do(lambda run: self._tree.read_text(run, path))

    async def read_bytes(self, path: str) -> bytes:
        """See `AgentMemory.read_bytes`."""
        return await self._do(lambda run: self._tree.read(run, path))

    @overload
    async def read_many(
        self, paths: Iterable[str], *, missing_ok: bool = False, bytes: Literal[False] = False
    ) -> dict[str, str]: ...

    @overload
    async def read_many(
        self, paths: Iterable[str], *, missing_ok: bool = False, bytes: Literal[True]
    ) -> dict[str, bytes]: ...

    async def read_many(
        self,
        paths: Iterable[str],
        *,
        missing_ok: bool = False,
        bytes: bool = False,  # noqa: A002 - what it returns
    ) -> dict[str, str] | dict[str, bytes]:
        """See `AgentMemory.read_many`."""
        if bytes:
            return await self._do(lambda run: self._tree.read_many(run, paths, self._tree.read, missing_ok))
        return await self._do(lambda run: self._tree.read_many(run, paths, self._tree.read_text, missing_ok))

    async def tail(self, path: str, lines: int) -> str:
        """See `AgentMemory.tail`."""
        return await self._do(lambda run: self._tree.tail(run, path, lines))

    async def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        """See `AgentMemory.scan`."""
        return await self._do(lambda run: self._tree.scan(run, path, work))

    @property
    def versions(self) -> AsyncFileVersions:
        """See `AgentMemory.versions`."""
        return AsyncFileVersions(self._tree)

    async def write(self, path: str, content: str | bytes, *, when: WriteCondition = ANY) -> WriteResult:
        """See `AgentMemory.write`."""
        return await self._do(lambda run: self._tree.write(run, path, content_of(content), when))

    async def write_blocks(
        self, path: str, blocks: Iterable[bytes], size: int, *, when: WriteCondition = ANY
    ) -> WriteResult:
        """See `AgentMemory.write_blocks`."""
        return await self._do(lambda run: self._tree.write_blocks(run, path, Blocks(blocks, size), when))

    async def append(
        self, path: str, content: str | bytes, *, separator: str | bytes = "", when: EditCondition = ANY
    ) -> WriteResult:
        """See `AgentMemory.append`."""
        return await self._do(
            lambda run: self._tree.append(run, path, content_of(content), content_of(separator), when)
        )

    async def create(self, path: str, content: str | bytes) -> WriteResult:
        """See `AgentMemory.create`."""
        return await self.write(path, content, when=ABSENT)

    async def edit(
        self,
        path: str,
        change: Callable[[str], str | None],
        *,
        missing: str | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        """See `AgentMemory.edit`."""
        old = None if missing is None else text_of(missing)
        return await self._do(lambda run: self._tree.edit(run, path, of_text(change), old, when))

    async def edit_bytes(
        self,
        path: str,
        change: Callable[[bytes], bytes | None],
        *,
        missing: bytes | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        """See `AgentMemory.edit_bytes`."""
        old = None if missing is None else content_of(missing)
        return await self._do(lambda run: self._tree.edit(run, path, of_bytes(change), old, when))

    async def delete(self, path: str, *, when: DeleteCondition = ANY) -> None:
        """See `AgentMemory.delete`."""
        await self._do(lambda run: self._tree.delete(run, path, when))

    async def delete_tree(self, path: str) -> TreeResult:
        """See `AgentMemory.delete_tree`."""
        return await self._do(lambda run: self._tree.delete_tree(run, path))

    async def forget(self, path: str, *, dry_run: bool = False) -> TreeResult:
        """See `AgentMemory.forget`."""
        return await self._do(lambda run: self._tree.forget(run, path, dry_run))

    async def rename(self, path: str, new_path: str, *, when: SourceCondition = PRESENT) -> TreeResult:
        """See `AgentMemory.rename`."""
        return await self._do(lambda run: self._tree.rename(run, path, new_path, when))

    async def copy(self, path: str, new_path: str, *, when: SourceCondition = PRESENT) -> TreeResult:
        """See `AgentMemory.copy`."""
        return await self._do(lambda run: self._tree.copy(run, path, new_path, when))

    def once(self, key: str, *, of: str = "", window: float | None = None) -> AsyncOnceMemory:
        """See `AgentMemory.once`."""
        return AsyncOnceMemory(self._tree.with_once(key, of, window))

    async def list(
        self,
        path: str = "",
        *,
        recursive: bool = True,
        name_prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[Entry, ...]:
        """See `AgentMemory.list`."""
        part = ListedPart(name_prefix, after, limit).checked()
        return await self._do(lambda run: self._tree.list(run, path, recursive, part))

    async def stat(self, path: str) -> Entry:
        """See `AgentMemory.stat`."""
        return await self._do(lambda run: self._tree.stat(run, path, with_etag=True))

    async def _entry(self, path: str) -> Entry:
        return await self._do(lambda run: self._tree.stat(run, path, with_etag=False))

    async def _nearly_full(self, path: str | None, size: int | None, text: str | None) -> NearlyFull | None:
        return await self._do(lambda run: nearly_full(run, self._tree, path, size, text))

    async def usage(self) -> Usage:
        """See `AgentMemory.usage`."""
        return await self._do(self._tree.usage)

    async def exists(self, path: str) -> bool:
        """See `AgentMemory.exists`."""
        return await self._do(lambda run: self._tree.exists(run, path))

    async def is_directory(self, path: str) -> bool:
        """See `AgentMemory.is_directory`."""
        return await self._do(lambda run: self._tree.is_directory(run, path))

    async def aclose(self) -> None:
        """See `AgentMemory.close`."""
        await self._tree.aclose()

    async def _map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T]) -> Sequence[U]:
        return await AsyncIORun().map(function, items, self._at_once)

    def _do(self, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return run_async(self._tree.backend, start)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class AsyncOnceMemory(AsyncAgentMemory):
    """`OnceMemory` for async callers; see `AgentMemory.once`."""

    async def result(self) -> RecordedResult | None:
        """See `OnceMemory.result`."""
        return await self._do(self._tree.recorded_result)
