"""`Tree`: the logic that `AgentMemory` and `AsyncAgentMemory` share.

Its methods are coroutines over a `Run`; `agent_memory.memory` runs them for sync and for async callers, and documents
them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from agent_memory.backend import ABSENT, ANY, PRESENT, AnyBackend, Backend, Entry, WriteWhen
from agent_memory.core import editing, flows, part_flows, tree_flows
from agent_memory.core.call import Call, Content, Flow
from agent_memory.core.flows import Effect
from agent_memory.core.idempotency import RECEIPT_SECONDS, Once, apply_once, finished_receipt
from agent_memory.core.one_file import attempt_each, raise_failed
from agent_memory.core.precondition import (
    BY_MISSING,
    DefaultCondition,
    DeleteCondition,
    EditCondition,
    SourceCondition,
    WriteCondition,
    checked_edit,
    require_condition,
    state_of_source,
)
from agent_memory.core.receipts import IdempotencyKey
from agent_memory.core.results import WHOLE, ListedPart, RecordedResult, TreeResult, WriteResult, checked_count
from agent_memory.core.versioned_tree import VersionedTree
from agent_memory.core.versions.undo import Range
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    InvalidContentError,
    InvalidPathError,
    without_top,
)
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key, is_agent_id
from agent_memory.reading.lines import last_lines
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import aclose_backend, close_backend, run_async, run_sync
from agent_memory.runtime.threads import in_thread

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
            if self.quotas.is_used:
                run_sync(self.backend, partial(self.quotas.release, self.store))
            self.hooks.close()
        finally:
            close_backend(self.backend)

    async def aclose(self) -> None:
        """See `close`."""
        await self.hooks.in_progress.wait_async()
        try:
            if self.quotas.is_used:
                await run_async(self.backend, partial(self.quotas.release, self.store))
            await in_thread(self.hooks.close)
        finally:
            await aclose_backend(self.backend)

    async def read(self, run: Run, path: str) -> bytes:
        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return flows.read(store, run, c.key, self.read_guard(c))

        return (await self.operate(run, "read", path, flow)).result.data

    async def read_text(self, run: Run, path: str) -> str:
        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return flows.read_text(store, run, c.key, self.read_guard(c))

        return (await self.operate(run, "read", path, flow)).result.text

    async def read_many(
        self, run: Run, paths: Iterable[str], read: Callable[[Run, str], Awaitable[T]], missing_ok: bool
    ) -> dict[str, T]:
        if isinstance(paths, str):
            raise TypeError("paths must be an iterable of paths, not a str")

        names = tuple(dict.fromkeys(paths))
        failed: dict[str, AgentMemoryError] = {}
        at_once = partial(run.map, limit=tree_flows.AT_ONCE)
        found = await attempt_each(at_once, partial(read, run), names, failed)
        if missing_ok:
            failed = {path: e for path, e in failed.items() if not isinstance(e, AgentMemoryFileNotFoundError)}
        raise_failed(failed, names)
        return found

    async def scan(self, run: Run, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        async def scanned(store: Backend, run: Run, c: Call) -> tuple[T, Effect]:
            reader = Reader(store, run, c.key, self.read_guard(c))
            found = await work(reader)
            reader.require_permitted()  # `work` may have caught the refusal
            return found, Effect(size=reader.size)

        return await self.find(run, "read", path, scanned)

    async def tail(self, run: Run, path: str, lines: int) -> str:
        checked_count("lines", lines)

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            reader = Reader(store, run, c.key)
            data = await last_lines(reader, lines, store.max_bytes)
            if check := self.read_guard(c):
                await check(data, reader.size - len(data), reader.size)
            return Effect(text=flows.decode(c.key, data), size=reader.size)

        return (await self.operate(run, "read", path, flow)).result.text

    async def stat(self, run: Run, path: str, *, with_etag: bool) -> Entry:
        call = await self.operate(
            run, "stat", path, lambda store, run, c: flows.stat(store, run, c.key, with_etag=with_etag)
        )
        return self._seen(call.result.entries)[0]

    async def exists(self, run: Run, path: str) -> bool:
        call = await self.operate(run, "exists", path, lambda store, run, c: flows.exists(store, run, c.key))
        return bool(call.result.entries)

    async def is_directory(self, run: Run, path: str) -> bool:
        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            return Effect(files=int(c.key == self.top or await flows.is_directory(store, run, c.key)))

        return bool((await self.operate(run, "exists", path, flow, directory=True)).result.files)

    async def list(self, run: Run, path: str, recursive: bool, part: ListedPart = WHOLE) -> tuple[Entry, ...]:
        call = await self.operate(
            run, "list", path, lambda store, run, c: tree_flows.list_all(store, run, c.key, recursive), directory=True
        )
        return part.of(self._seen(call.result.entries), self._path(call.key))

    async def agent_ids(self, run: Run) -> tuple[str, ...]:
        call = await self.operate(
            run,
            "agent_ids",
            "",
            lambda store, run, c: tree_flows.list_all(store, run, c.key, recursive=False),
            directory=True,
        )
        return tuple(entry.path for entry in call.result.entries if entry.is_directory and is_agent_id(entry.path))

    async def write(self, run: Run, path: str, content: Content, when: WriteCondition = ANY) -> WriteResult:
        require_condition(when, ANY, ABSENT, PRESENT)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return flows.write(store, run, c.key, c.data, when)

        return await self._write(run, _kind_of_write(when), path, self._changing(flow), content)

    def _changing(self, flow: Flow, *arguments: str) -> Flow:
        """Return the flow of a change, which keeps the states that it ends; otherwise as `_once`."""
        return self._once(self.archiving(flow), *arguments)

    def _once(self, flow: Flow, *arguments: str) -> Flow:
        """Return the flow of a change, which is made at most once in a view of `once`.

        ``arguments`` distinguish the change from others of the same kind, path and content.
        """
        if (once := self.once) is None:
            return flow

        async def applied_once(store: Backend, run: Run, c: Call) -> Effect:
            await self.settings.use(store, run, "receipts")
            return await apply_once(store, run, c, flow, once, arguments)

        return applied_once

    def with_once(self, key: str, of: str, seconds: float | None) -> Tree:
        """Return a view whose change has this idempotency key."""
        given = IdempotencyKey(key, of).checked()
        window = RECEIPT_SECONDS if seconds is None else checked_seconds("window", seconds)
        return replace(self, once=Once(given, window, self.sweep))

    async def recorded_result(self, run: Run) -> RecordedResult | None:
        once = cast(Once, self.once)

        async def recorded(store: Backend, run: Run, c: Call) -> tuple[RecordedResult | None, Effect]:
            if (found := await finished_receipt(store, run, c, once.key)) is None:
                return None, Effect()
            effect, path = found.effect(once.key), without_top(found.path, self.top.path)
            result = RecordedResult(path, found.existed, effect.size or 0, effect.sha256 or "", effect.etag)
            return result, Effect()

        return await self.find(run, "stat", "", recorded, directory=True)

    async def write_blocks(
        self, run: Run, path: str, blocks: part_flows.Blocks, when: WriteCondition = ANY
    ) -> WriteResult:
        require_condition(when, ANY, ABSENT, PRESENT)
        if not self._goes_in_parts(blocks.size):
            content = await run.offload(lambda: _collected(blocks))
            return await self.write(run, path, content, when)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return part_flows.write(store, run, c.key, blocks, when)

        changing = self._changing(flow, str(blocks.size))
        return await self._write(run, _kind_of_write(when), path, changing, unseen=blocks.size)

    def _goes_in_parts(self, size: int) -> bool:
        """Whether content is written in parts: it is too large for one call, or no plugin needs it in memory."""
        if size > self.backend.max_bytes:
            return True
        return size > self.backend.part_bytes and not self.hooks.need_content and flows.writes_in_parts(self.backend)

    async def append(
        self, run: Run, path: str, content: Content, separator: Content, when: EditCondition = ANY
    ) -> WriteResult:
        require_condition(when, ANY, PRESENT)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            between = separator()
            if len(between) > _MOST_SEPARATOR:
                raise InvalidContentError(f"a separator can have at most {_MOST_SEPARATOR} bytes, not {len(between):,}")
            return flows.append(store, run, c.key, c.data, separator=between, when=when)

        return await self._write(run, "append", path, self._changing(flow), content)

    async def edit(
        self,
        run: Run,
        path: str,
        change: Callable[[Key, bytes], bytes | None],
        missing: Content | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        condition = checked_edit(when, missing)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            def changed(data: bytes) -> bytes | None:
                try:
                    return change(c.key, data)
                except BaseException as error:
                    c.raised_by_caller = error
                    raise

            hooks = editing.EditHooks(
                partial(self.apply_filters, c), partial(self.permit_delete, c), self.read_guard(c)
            )
            of_none = b"" if missing is None else missing()
            return editing.edit(store, run, c.key, changed, hooks, condition, of_none)

        return await self._write(run, "edit", path, self._changing(flow))

    async def restore(
        self,
        run: Run,
        path: str,
        version: str,
        when: WriteWhen = ANY,
        cut: Sequence[Range] = (),
    ) -> WriteResult:
        flow = self.restoring(version, when, cut)  # archives by itself, after it has read the version
        return await self._write(run, "restore", path, self._once(flow, version))

    async def delete(self, run: Run, path: str, when: DeleteCondition = ANY) -> None:
        require_condition(when, ANY)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return flows.delete(store, run, c.key, when)

        await self.operate(run, "delete", path, self._changing(flow))

    async def delete_tree(self, run: Run, path: str) -> TreeResult:
        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return tree_flows.delete_tree(store, run, c.key, missing_ok=c.key == self.top)

        return await self._remove(run, "delete_tree", path, self._changing(flow))

    async def forget(self, run: Run, path: str, dry_run: bool = False) -> TreeResult:
        async def forgotten(store: Backend, run: Run, c: Call) -> tuple[TreeResult, Effect]:
            found, effect = await self.forgetting(store, run, c, dry_run)
            result = TreeResult(
                self._path(c.key), effect.files or 0, effect.skipped, effect.versions_searched, found.versions,
                tuple((without_top(name, self.top.path), count) for name, count in found.other_names),
            )  # fmt: skip
            return result, effect

        return await self.find(run, "versions" if dry_run else "forget", path, forgotten, directory=True)

    async def _remove(self, run: Run, kind: OperationKind, path: str, flow: Flow) -> TreeResult:
        call = await self.operate(run, kind, path, flow, directory=True)
        found = call.result
        return TreeResult(self._path(call.key), found.files or 0, found.skipped, found.versions_searched)

    async def rename(self, run: Run, path: str, new_path: str, when: SourceCondition = PRESENT) -> TreeResult:
        return await self._transfer(run, "rename", path, new_path, tree_flows.rename, when)

    async def copy(self, run: Run, path: str, new_path: str, when: SourceCondition = PRESENT) -> TreeResult:
        return await self._transfer(run, "copy", path, new_path, tree_flows.copy, when)

    async def _transfer(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        new_path: str,
        transfer: tree_flows.Transfer,
        when: SourceCondition,
    ) -> TreeResult:
        state = state_of_source(when)

        def flow(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
            return transfer(store, run, c.key, cast(Key, c.target), state)

        call = await self.operate(run, kind, path, self._changing(flow, new_path), new_path=new_path)
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
        return tuple(replace(entry, key=entry.key.relative_to(self.top)) for entry in entries)


def _kind_of_write(when: WriteCondition) -> OperationKind:
    return "create" if when is ABSENT else "write"


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
