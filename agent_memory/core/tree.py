"""`Tree`: the logic that `AgentMemory` and `AsyncAgentMemory` share.

Its methods are coroutines over a `Run`; `agent_memory.memory` runs them for sync and for async callers, and documents
them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from agent_memory.backend import ABSENT, ANY, PRESENT, AnyBackend, AppendWhen, Entry, ReadWhen, WriteWhen
from agent_memory.core import editing, flows, part_flows, tree_flows
from agent_memory.core.flows import Effect
from agent_memory.core.idempotency import apply_once, forget_receipts, receipt_of_edit
from agent_memory.core.listed_part import WHOLE, ListedPart, checked_count
from agent_memory.core.operation import Call, Content, Flow
from agent_memory.core.precondition import ANY_STATE, Precondition
from agent_memory.core.receipts import IdempotencyKey, Receipt
from agent_memory.core.results import EditResult, TreeResult, WriteResult
from agent_memory.core.versioned_tree import VersionedTree
from agent_memory.core.versions.undo import Range
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidContentError,
    InvalidPathError,
    ReadError,
    without_top,
)
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key, decode_segment, encode_segment, is_agent_id, segments
from agent_memory.reading.lines import last_lines
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import aclose_backend, close_backend
from agent_memory.runtime.threads import in_thread

_TEXTS = ".texts"
"""The directory of the texts whose path segment contains only their digest."""
_MOST_SEPARATOR = 64
"""The maximum bytes of a separator. The limit is low because the guards of content do not see separators."""
T = TypeVar("T")


def checked_timeout(seconds: float | None, backend: AnyBackend) -> float | None:
    """Return the timeout of an operation in seconds: the backend's default if ``seconds`` is None.

    Raises:
        ValueError: ``seconds`` is not a positive number.
    """
    return backend.timeout if seconds is None else checked_seconds("timeout", seconds)


def checked_seconds(name: str, seconds: float) -> float:
    """Return a number of seconds.

    Raises:
        ValueError: ``seconds`` is not a positive number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"{name} must be a positive number of seconds, not {seconds!r}")
    return float(seconds)


class Tree(VersionedTree):
    """One tree of files; each method is one operation, as a coroutine over a `Run`."""

    def subtree(self, path: str) -> Tree:
        """Return the same view of a directory below this tree."""
        try:
            return replace(self, top=self.top.join_prefix(path))
        except InvalidPathError as error:
            self.hooks.key_rejected(self.agent, error, self.by.actor)
            raise

    def close(self) -> None:
        """Wait for the operations in progress, flush and close the plugins, and release the backend's resources.

        If the wait is interrupted, nothing is closed, because operations still need it: call it again.
        """
        self.hooks.in_progress.wait()
        try:
            self.hooks.close()
        finally:
            close_backend(self.backend)

    async def aclose(self) -> None:
        """See `close`."""
        await self.hooks.in_progress.wait_async()
        try:
            await in_thread(self.hooks.close)
        finally:
            await aclose_backend(self.backend)

    async def read(self, run: Run, path: str) -> bytes:
        call = await self.operate(run, "read", path, lambda c: flows.read(c.store, c.run, c.key))
        return call.result.data

    async def read_text(self, run: Run, path: str) -> str:
        call = await self.operate(run, "read", path, lambda c: flows.read_text(c.store, c.run, c.key))
        return call.result.text

    async def read_many(
        self, run: Run, paths: Iterable[str], read: Callable[[Run, str], Awaitable[T]], missing_ok: bool
    ) -> dict[str, T]:
        if isinstance(paths, str):
            raise TypeError("paths must be an iterable of paths, not a str")

        async def one(path: str) -> dict[str, T]:
            try:
                return {path: await read(run, path)}
            except AgentMemoryFileNotFoundError:
                if missing_ok:
                    return {}
                raise

        found = await run.map(one, tuple(dict.fromkeys(paths)), tree_flows.AT_ONCE)
        return {path: content for each in found for path, content in each.items()}

    async def scan(self, run: Run, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        results: list[T] = []

        async def flow(c: Call) -> Effect:
            reader = Reader(c.store, c.run, c.key)
            results.append(await work(reader))
            return Effect(size=reader.size)

        await self.operate(run, "read", path, flow)
        return results[0]

    async def tail(self, run: Run, path: str, lines: int) -> str:
        checked_count("lines", lines)

        async def flow(c: Call) -> Effect:
            reader = Reader(c.store, c.run, c.key)
            data = await last_lines(reader, lines, c.store.max_bytes)
            return Effect(text=flows.decode(c.key, data), size=reader.size)

        return (await self.operate(run, "read", path, flow)).result.text

    async def stat(self, run: Run, path: str) -> Entry:
        call = await self.operate(run, "stat", path, lambda c: flows.stat(c.store, c.run, c.key))
        return self._seen(call.result.entries)[0]

    async def exists(self, run: Run, path: str) -> bool:
        call = await self.operate(run, "exists", path, lambda c: flows.exists(c.store, c.run, c.key))
        return bool(call.result.entries)

    async def is_directory(self, run: Run, path: str) -> bool:
        async def flow(c: Call) -> Effect:
            return Effect(files=int(c.key == self.top or await flows.is_directory(c.store, c.run, c.key)))

        return bool((await self.operate(run, "exists", path, flow, directory=True)).result.files)

    async def list(self, run: Run, path: str, recursive: bool, part: ListedPart = WHOLE) -> tuple[Entry, ...]:
        call = await self.operate(
            run, "list", path, lambda c: tree_flows.list_all(c.store, c.run, c.key, recursive), directory=True
        )
        return part.of(self._seen(call.result.entries), self._path(call.key))

    async def agent_ids(self, run: Run) -> tuple[str, ...]:
        call = await self.operate(
            run, "agent_ids", "", lambda c: tree_flows.list_all(c.store, c.run, c.key, recursive=False), directory=True
        )
        return tuple(entry.path for entry in call.result.entries if entry.is_directory and is_agent_id(entry.path))

    async def write(
        self,
        run: Run,
        path: str,
        content: Content,
        expected: Precondition = ANY_STATE,
        once: IdempotencyKey | None = None,
    ) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return flows.write(c.store, c.run, c.key, c.data, expected.checked())

        return await self._write(run, "write", path, self._once(flow, once), content)

    async def create(self, run: Run, path: str, content: Content, once: IdempotencyKey | None = None) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return flows.create(c.store, c.run, c.key, c.data)

        return await self._write(run, "create", path, self._once(flow, once), content)

    def _once(self, flow: Flow, once: IdempotencyKey | None) -> Flow:
        """The flow of a change that may have an idempotency key; it keeps the states that it ends."""
        kept = self.versions.keeping(flow)
        if once is None:
            return kept

        async def applied_once(c: Call) -> Effect:
            given = once.checked()
            await self.versions.use_receipts(c)
            return await apply_once(c, kept, given, self.window)

        return applied_once

    async def record_segment(self, run: Run, text: str, suffix: str) -> str:
        segment = encode_segment(text, suffix)
        if digest := segments.hashed_digest(segment.removesuffix(suffix)):
            await self._record_text(run, text, digest)
        return segment

    async def _record_text(self, run: Run, text: str, digest: str) -> None:
        try:
            result = await self.create(run, f"{_TEXTS}/{digest}", lambda: segments.to_bytes(text))
        except FileAlreadyExistsError as error:
            if error.taken_by != "file":  # else it was recorded before
                raise
        else:
            if result.sha256 != digest:
                raise InvalidContentError("a plugin changes this text, so its segment cannot be recorded")

    async def segment_text(self, run: Run, segment: str, suffix: str) -> str:
        try:
            return decode_segment(segment, suffix)
        except InvalidPathError as error:
            if error.rule != "hashed":
                raise
        digest = segments.hashed_digest(segment.removesuffix(suffix))
        data = await self.read(run, f"{_TEXTS}/{digest}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise ReadError("the record of a segment's text has been changed", path=f"{_TEXTS}/{digest}")
        return segments.to_text(data)

    async def write_blocks(self, run: Run, path: str, blocks: part_flows.Blocks, create: bool) -> WriteResult:
        if not self._goes_in_parts(blocks.size):
            content = await run.offload(lambda: _collected(blocks))
            return await (self.create(run, path, content) if create else self.write(run, path, content))

        def flow(c: Call) -> Awaitable[Effect]:
            return part_flows.write(c.store, c.run, c.key, blocks, ABSENT if create else ANY)

        kept = self.versions.keeping(flow)
        return await self._write(run, "create" if create else "write", path, kept, unseen=blocks.size)

    def _goes_in_parts(self, size: int) -> bool:
        """Whether content is written in parts: it is too large for one call, or no plugin needs it in memory."""
        if size > self.backend.max_bytes:
            return True
        return size > self.backend.part_bytes and not self.hooks.need_content and flows.writes_in_parts(self.backend)

    async def append(
        self,
        run: Run,
        path: str,
        content: Content,
        separator: Content,
        must_exist: bool,
        expected: Precondition = ANY_STATE,
        once: IdempotencyKey | None = None,
    ) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            when: AppendWhen = PRESENT if must_exist else ANY
            between = separator()
            if len(between) > _MOST_SEPARATOR:
                raise InvalidContentError(f"a separator can have at most {_MOST_SEPARATOR} bytes, not {len(between):,}")
            return flows.append(
                c.store, c.run, c.key, c.data, separator=between, when=when, expected=expected.checked()
            )

        return await self._write(run, "append", path, self._once(flow, once), content)

    async def edit(
        self,
        run: Run,
        path: str,
        change: Callable[[Key, bytes], bytes | None],
        missing: Content | None = None,
        expected: Precondition = ANY_STATE,
        once: IdempotencyKey | None = None,
    ) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            def changed(data: bytes) -> bytes | None:
                try:
                    return change(c.key, data)
                except BaseException as error:
                    c.raised_by_caller = error
                    raise

            hooks = editing.EditHooks(partial(self.apply_filters, c), partial(self.permit_delete, c))
            of_none = None if missing is None else missing()
            return editing.edit(c.store, c.run, c.key, changed, hooks, expected.checked(), of_none)

        return await self._write(run, "edit", path, self._once(flow, once))

    async def edit_result(self, run: Run, once: IdempotencyKey) -> EditResult | None:
        results: list[EditResult | None] = []

        async def flow(c: Call) -> Effect:
            given = once.checked()
            found = await receipt_of_edit(c, given)
            results.append(self._edit_result(found, given) if found else None)
            return Effect()

        await self.operate(run, "stat", "", flow, directory=True)
        return results[0]

    def _edit_result(self, found: Receipt, given: IdempotencyKey) -> EditResult:
        effect = found.effect(given)
        path = without_top(found.path, self.top.path)
        return EditResult(path, effect.size or 0, effect.sha256 or "", bool(found.existed))

    async def restore(
        self,
        run: Run,
        path: str,
        version: str,
        expected: WriteWhen = ANY,
        cut: Sequence[Range] = (),
        of: str | None = None,
    ) -> WriteResult:
        return await self._write(run, "restore", path, self.restoring(version, expected, cut, of))

    async def delete(
        self, run: Run, path: str, expected: Precondition = ANY_STATE, once: IdempotencyKey | None = None
    ) -> None:
        def flow(c: Call) -> Awaitable[Effect]:
            return flows.delete(c.store, c.run, c.key, expected.checked())

        await self.operate(run, "delete", path, self._once(flow, once))

    async def delete_tree(self, run: Run, path: str) -> TreeResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return tree_flows.delete_tree(c.store, c.run, c.key, missing_ok=c.key == self.top)

        return await self._remove(run, "delete_tree", path, self.versions.keeping(flow))

    async def forget(self, run: Run, path: str) -> TreeResult:
        async def flow(c: Call) -> Effect:
            forget_versions = await self.forgetting(c)
            await forget_receipts(c)  # first: if they cannot be read, the file stays
            effect = await tree_flows.forget(c.store, c.run, c.key)
            await forget_versions()
            return effect

        return await self._remove(run, "forget", path, flow)

    async def _remove(self, run: Run, kind: OperationKind, path: str, flow: Flow) -> TreeResult:
        call = await self.operate(run, kind, path, flow, directory=True)
        found = call.result
        return TreeResult(self._path(call.key), found.files or 0, found.skipped, found.versions_searched)

    async def rename(self, run: Run, path: str, new_path: str) -> TreeResult:
        return await self._transfer(run, "rename", path, new_path, tree_flows.rename)

    async def rename_file(self, run: Run, path: str, new_path: str, when: ReadWhen) -> TreeResult:
        return await self._transfer(run, "rename", path, new_path, partial(tree_flows.rename_file, when=when))

    async def copy(self, run: Run, path: str, new_path: str) -> TreeResult:
        return await self._transfer(run, "copy", path, new_path, tree_flows.copy)

    async def _transfer(
        self, run: Run, kind: OperationKind, path: str, new_path: str, transfer: tree_flows.Transfer
    ) -> TreeResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return transfer(c.store, c.run, c.key, cast(Key, c.target))

        call = await self.operate(run, kind, path, self.versions.keeping(flow), new_path=new_path)
        return TreeResult(self._path(cast(Key, call.target)), call.result.files or 0, call.result.skipped)

    async def _write(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        flow: Flow,
        content: Content | None = None,
        *,
        unseen: int | None = None,
    ) -> WriteResult:
        call = await self.operate(run, kind, path, flow, content, unseen=unseen)
        result = call.result
        return WriteResult(self._path(call.key), result.size or 0, result.sha256 or "", result.etag)

    def _path(self, key: Key) -> str:
        return key.relative_to(self.top).path if self.top.path else key.path

    def _seen(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        for names in self.protected:
            entries = tuple(entry for entry in entries if not names.hides(entry.key))
        if not self.top.path:
            return entries
        return tuple(entry._replace(key=entry.key.relative_to(self.top)) for entry in entries)


def _collected(blocks: part_flows.Blocks) -> Content:
    """Return content that one call can write; invalid content raises within the operation, so hooks see the error."""
    try:
        data = blocks.whole()
    except InvalidContentError as error:
        refused = error

        def refuse() -> bytes:
            raise refused

        return refuse
    return lambda: data
