"""`AsyncAgentMemory`: `AgentMemory` for async callers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agent_memory.audit import LogLocation
from agent_memory.audit.appends import recorded_appends
from agent_memory.backend import ANY, Entry, ReadWhen
from agent_memory.core.listed_part import ListedPart
from agent_memory.core.part_flows import Blocks
from agent_memory.core.precondition import Precondition
from agent_memory.core.receipts import IdempotencyKey
from agent_memory.core.results import EditResult, TreeResult, WriteResult
from agent_memory.core.undoing import undo
from agent_memory.core.versions.redacting import RedactResult
from agent_memory.core.versions.settings import Versions
from agent_memory.core.versions.states import FileVersion
from agent_memory.core.versions.undo import UndoResult, checked_selection
from agent_memory.memory.blocking import AgentMemory
from agent_memory.memory.versions import unified_diff
from agent_memory.memory.view import View, as_bytes, as_text, of_bytes, of_text, once_per
from agent_memory.reading.reader import Reader
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import run_async
from agent_memory.runtime.threads import in_thread

if TYPE_CHECKING:
    from agent_memory.filesystem import AgentMemoryFileSystem

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

    async def read_many(self, paths: Iterable[str], *, missing_ok: bool = False) -> dict[str, str]:
        """See `AgentMemory.read_many`."""
        return await self._do(lambda run: self._tree.read_many(run, paths, self._tree.read_text, missing_ok))

    async def read_many_bytes(self, paths: Iterable[str], *, missing_ok: bool = False) -> dict[str, bytes]:
        """See `AgentMemory.read_many_bytes`."""
        return await self._do(lambda run: self._tree.read_many(run, paths, self._tree.read, missing_ok))

    async def tail(self, path: str, lines: int) -> str:
        """See `AgentMemory.tail`."""
        return await self._do(lambda run: self._tree.tail(run, path, lines))

    async def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        """See `AgentMemory.scan`."""
        return await self._do(lambda run: self._tree.scan(run, path, work))

    async def versions(
        self, path: str = "", *, limit: int | None = None, after: str | None = None
    ) -> tuple[FileVersion, ...]:
        """See `AgentMemory.versions`."""
        return await self._do(lambda run: self._tree.file_versions(run, path, limit, after))

    async def read_version(self, path: str, version: str) -> str:
        """See `AgentMemory.read_version`."""
        return await self._do(lambda run: self._tree.read_version_text(run, path, version))

    async def read_version_bytes(self, path: str, version: str) -> bytes:
        """See `AgentMemory.read_version_bytes`."""
        return await self._do(lambda run: self._tree.read_version(run, path, version))

    async def diff(self, path: str, old: str, new: str | None = None) -> str:
        """See `AgentMemory.diff`."""
        before = await self.read_version(path, old)
        after = await (self.read(path) if new is None else self.read_version(path, new))
        return unified_diff(path, old, before, new or "now", after)

    async def restore(self, path: str, version: str) -> WriteResult:
        """See `AgentMemory.restore`."""
        return await self._do(lambda run: self._tree.restore(run, path, version))

    async def undo(
        self,
        *,
        actor: str | None = None,
        tool_call_id: str | None = None,
        since: float | None = None,
        audit: str | os.PathLike[str] | LogLocation | None = None,
        dry_run: bool = False,
    ) -> UndoResult:
        """See `AgentMemory.undo`."""
        selection = checked_selection(actor, tool_call_id, since)
        agent = self._tree.agent
        appends = None if audit is None else await in_thread(lambda: recorded_appends(audit, agent))
        return await self._do(lambda run: undo(self._tree, run, selection, appends, dry_run))

    async def redact(self, path: str, version: str, *, reason: str) -> RedactResult:
        """See `AgentMemory.redact`."""
        return await self._do(lambda run: self._tree.redact(run, path, version, reason))

    async def version_limits(self) -> Versions | None:
        """See `AgentMemory.version_limits`."""
        return await self._do(lambda run: self._tree.version_limits(run))

    async def prune_versions(self) -> int:
        """See `AgentMemory.prune_versions`."""
        return await self._do(lambda run: self._tree.prune_versions(run))

    async def keep_versions(self, limits: Versions | None) -> None:
        """See `AgentMemory.keep_versions`."""
        await self._do(lambda run: self._tree.turn_versions(run, limits))

    async def write(
        self,
        path: str,
        content: str,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """See `AgentMemory.write`."""
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.write(run, path, as_text(content), expected, once_per(idempotency_key))
        )

    async def write_bytes(
        self,
        path: str,
        content: bytes,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """See `AgentMemory.write_bytes`."""
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.write(run, path, as_bytes(content), expected, once_per(idempotency_key))
        )

    async def write_blocks(self, path: str, blocks: Iterable[bytes], size: int, *, create: bool = False) -> WriteResult:
        """See `AgentMemory.write_blocks`."""
        return await self._do(lambda run: self._tree.write_blocks(run, path, Blocks(blocks, size), create))

    async def append(
        self,
        path: str,
        content: str,
        *,
        separator: str = "",
        must_exist: bool = False,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """See `AgentMemory.append`."""
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.append(
                run, path, as_text(content), as_text(separator), must_exist, expected, once_per(idempotency_key)
            )
        )

    async def append_bytes(
        self,
        path: str,
        content: bytes,
        *,
        separator: bytes = b"",
        must_exist: bool = False,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """See `AgentMemory.append_bytes`."""
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.append(
                run, path, as_bytes(content), as_bytes(separator), must_exist, expected, once_per(idempotency_key)
            )
        )

    async def create(self, path: str, content: str, *, idempotency_key: str | None = None) -> WriteResult:
        """See `AgentMemory.create`."""
        return await self._do(lambda run: self._tree.create(run, path, as_text(content), once_per(idempotency_key)))

    async def create_bytes(self, path: str, content: bytes, *, idempotency_key: str | None = None) -> WriteResult:
        """See `AgentMemory.create_bytes`."""
        return await self._do(lambda run: self._tree.create(run, path, as_bytes(content), once_per(idempotency_key)))

    async def edit(
        self,
        path: str,
        change: Callable[[str], str | None],
        *,
        missing: str | None = None,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> WriteResult:
        """See `AgentMemory.edit`."""
        old = None if missing is None else as_text(missing)
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.edit(
                run, path, of_text(change), old, expected, once_per(idempotency_key, fingerprint)
            )
        )

    async def edit_bytes(
        self,
        path: str,
        change: Callable[[bytes], bytes | None],
        *,
        missing: bytes | None = None,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> WriteResult:
        """See `AgentMemory.edit_bytes`."""
        old = None if missing is None else as_bytes(missing)
        expected = Precondition(expected_sha256, expected_version)
        return await self._do(
            lambda run: self._tree.edit(
                run, path, of_bytes(change), old, expected, once_per(idempotency_key, fingerprint)
            )
        )

    async def delete(
        self,
        path: str,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> None:
        """See `AgentMemory.delete`."""
        expected = Precondition(expected_sha256, expected_version)
        await self._do(lambda run: self._tree.delete(run, path, expected, once_per(idempotency_key, fingerprint)))

    async def delete_tree(self, path: str) -> TreeResult:
        """See `AgentMemory.delete_tree`."""
        return await self._do(lambda run: self._tree.delete_tree(run, path))

    async def forget(self, path: str) -> TreeResult:
        """See `AgentMemory.forget`."""
        return await self._do(lambda run: self._tree.forget(run, path))

    async def rename(self, path: str, new_path: str) -> TreeResult:
        """See `AgentMemory.rename`."""
        return await self._do(lambda run: self._tree.rename(run, path, new_path))

    async def copy(self, path: str, new_path: str) -> TreeResult:
        """See `AgentMemory.copy`."""
        return await self._do(lambda run: self._tree.copy(run, path, new_path))

    async def record_segment(self, text: str, suffix: str = "") -> str:
        """See `AgentMemory.record_segment`."""
        return await self._do(lambda run: self._tree.record_segment(run, text, suffix))

    async def segment_text(self, segment: str, suffix: str = "") -> str:
        """See `AgentMemory.segment_text`."""
        return await self._do(lambda run: self._tree.segment_text(run, segment, suffix))

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
        return await self._do(lambda run: self._tree.stat(run, path))

    async def edit_result(self, idempotency_key: str, *, fingerprint: str = "") -> EditResult | None:
        """See `AgentMemory.edit_result`."""
        once = IdempotencyKey(idempotency_key, fingerprint)
        return await self._do(lambda run: self._tree.edit_result(run, once))

    async def exists(self, path: str) -> bool:
        """See `AgentMemory.exists`."""
        return await self._do(lambda run: self._tree.exists(run, path))

    async def is_directory(self, path: str) -> bool:
        """See `AgentMemory.is_directory`."""
        return await self._do(lambda run: self._tree.is_directory(run, path))

    def filesystem(self) -> AgentMemoryFileSystem:
        """As `AgentMemory.filesystem`. Its calls block, so run them in a thread (`asyncio.to_thread`)."""
        return AgentMemory(self._tree).filesystem()

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
