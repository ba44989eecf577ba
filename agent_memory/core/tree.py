"""One confined tree, what `AgentMemory` and `AsyncAgentMemory` share.

Every operation passes `Tree._operate`: names are parsed, guards asked, the flow run, observers told, once.
The methods are coroutines over a `Run`; `agent_memory.memory` runs them for sync and for async callers.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    AnyBackend,
    AppendWhen,
    Backend,
    Deadline,
    Entry,
    Uncopied,
    deadline_scope,
)
from agent_memory.core import flows, part_flows, tree_flows
from agent_memory.core.actor import NO_ACTOR, Actor, current_actor
from agent_memory.core.flows import Effect
from agent_memory.core.hooks import Hooks, Report
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.errors import (
    AgentMemoryError,
    InvalidContentError,
    InvalidPathError,
    OperationDenied,
    OutcomeUnknownError,
)
from agent_memory.hookspecs import Operation, OperationKind, Outcome
from agent_memory.key import Key, is_agent_id
from agent_memory.reading.reader import Reader
from agent_memory.runtime.fork import call_in_child
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import aclose_backend, close_backend
from agent_memory.runtime.threaded import ThreadedRun
from agent_memory.runtime.threads import in_thread

_READING = frozenset({"read", "stat", "exists", "list", "agent_ids"})
_OF_DIRECTORIES = frozenset({"delete_tree", "forget", "rename", "copy"})
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_MOST_SEPARATOR = 64
"""Bytes: what goes between two records, and not past the guards of content."""
_sequence = itertools.count(1)
_process = os.urandom(6).hex()


def _new_process() -> None:
    global _process
    _process = os.urandom(6).hex()


call_in_child(_new_process)


class WriteResult(NamedTuple):
    """What a writing call did.

    Attributes:
        path: the file, relative to its tree.
        size: the file's size now, in bytes.
        sha256: of what this call wrote: the whole file, or for an append the appended bytes; hexadecimal.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What an operation on one file, or on all files of a directory, did.

    Attributes:
        path: the file or directory, relative to its tree; for rename and copy the new name.
        files: how many files.
        skipped: how many names in storage were left alone because no key can name them.
    """

    path: str
    files: int
    skipped: int


@dataclass(slots=True)
class Call:
    """One operation under way: what a flow is given."""

    tree: Tree
    store: Backend
    run: Run
    kind: OperationKind
    key: Key
    target: Key | None
    size: int | None
    data: bytes
    time: float
    at_work: bool = False
    effect: Effect | None = None
    report: Report | None = None
    told: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_reported: bool = False
    _operation: Operation | None = None

    @property
    def operation(self) -> Operation:
        """The facts for the hooks, put together when the first of them is to be called."""
        if self._operation is None:
            by = self.tree.by
            self._operation = Operation(
                id=f"{_process}-{next(_sequence)}",
                time=self.time,
                kind=self.kind,
                agent=self.tree.agent,
                path=self.key.path,
                target=self.target.path if self.target else None,
                size=self.size,
                actor=by.actor,
                tool_call_id=by.tool_call_id,
            )
        return self._operation

    def ask(self, hooks: Callable[[], T]) -> T:
        """Call hooks before the report; not after it, if a cancelled caller left them in the queue for a thread."""
        with self.lock:
            if self.is_reported:
                raise OperationDenied("the operation was cancelled")
            return hooks()

    def tell(self, report: Callable[[], None]) -> None:
        """Call the observers when no other hook of this operation runs any more."""
        with self.lock:
            self.is_reported = True
            report()


T = TypeVar("T")
Flow = Callable[[Call], Awaitable[Effect]]
Content = Callable[[], bytes]


def checked_timeout(seconds: float | None, backend: AnyBackend) -> float | None:
    """The seconds an operation has: the backend's own number where the caller says nothing.

    Raises:
        ValueError: not a positive number.
    """
    if seconds is None:
        return backend.timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"timeout is a positive number of seconds, not {seconds!r}")
    return float(seconds)


@dataclass(frozen=True)
class Tree(Uncopied):
    """A tree below ``top`` as somebody sees it: who acts, whether they may write, how many seconds a call has."""

    backend: AnyBackend
    hooks: Hooks
    top: Key
    agent: str | None = None
    actor: Actor = NO_ACTOR
    bound: bool = False
    """Whether ``actor`` holds in any context."""
    writable: bool = True
    protected: tuple[ProtectedNames, ...] = ()
    timeout: float | None = None

    @property
    def by(self) -> Actor:
        """Who acts, here and now."""
        return self.actor if self.bound else current_actor(self.actor)

    def subtree(self, path: str) -> Tree:
        """The same view below a directory."""
        try:
            return replace(self, top=self.top.join_prefix(path))
        except InvalidPathError as error:
            self.hooks.key_rejected(self.agent, error, self.by.actor)
            raise

    def close(self) -> None:
        """Flush and close the plugins, and release what the backend holds."""
        try:
            self.hooks.close()
        finally:
            close_backend(self.backend)

    async def aclose(self) -> None:
        """See `close`."""
        try:
            await in_thread(self.hooks.close)
        finally:
            await aclose_backend(self.backend)

    async def read(self, run: Run, path: str) -> bytes:
        effect = await self._operate(run, "read", path, lambda c: flows.read(c.store, c.run, c.key))
        return effect.data

    async def read_text(self, run: Run, path: str) -> str:
        effect = await self._operate(run, "read", path, lambda c: flows.read_text(c.store, c.run, c.key))
        return effect.text

    async def read_many(self, run: Run, paths: Iterable[str]) -> dict[str, str]:
        if isinstance(paths, str):
            raise TypeError("paths are several, not one")
        each = tuple(dict.fromkeys(paths))
        texts = await run.map(lambda path: self.read_text(run, path), each, tree_flows.AT_ONCE)
        return dict(zip(each, texts, strict=True))

    async def scan(self, run: Run, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        results: list[T] = []

        async def flow(c: Call) -> Effect:
            reader = Reader(c.store, c.run, c.key)
            results.append(await work(reader))
            return Effect(size=reader.size)

        await self._operate(run, "read", path, flow)
        return results[0]

    async def stat(self, run: Run, path: str) -> Entry:
        effect = await self._operate(run, "stat", path, lambda c: flows.stat(c.store, c.run, c.key))
        return self._seen(effect.entries)[0]

    async def exists(self, run: Run, path: str) -> bool:
        effect = await self._operate(run, "exists", path, lambda c: flows.exists(c.store, c.run, c.key))
        return bool(effect.entries)

    async def list(self, run: Run, path: str, recursive: bool) -> tuple[Entry, ...]:
        effect = await self._operate(
            run, "list", path, lambda c: tree_flows.list_all(c.store, c.run, c.key, recursive), directory=True
        )
        return self._seen(effect.entries)

    async def agent_ids(self, run: Run) -> tuple[str, ...]:
        effect = await self._operate(
            run, "agent_ids", "", lambda c: tree_flows.list_all(c.store, c.run, c.key, recursive=False), directory=True
        )
        return tuple(entry.path for entry in effect.entries if entry.is_directory and is_agent_id(entry.path))

    async def write(self, run: Run, path: str, content: Content, expected: str | None) -> WriteResult:
        return await self._write(
            run, "write", path, lambda c: flows.write(c.store, c.run, c.key, c.data, _digest(expected)), content
        )

    async def create(self, run: Run, path: str, content: Content) -> WriteResult:
        return await self._write(run, "create", path, lambda c: flows.create(c.store, c.run, c.key, c.data), content)

    async def write_blocks(self, run: Run, path: str, blocks: part_flows.Blocks, create: bool) -> WriteResult:
        if not self._goes_in_parts(blocks.size):
            content = await run.offload(lambda: _collected(blocks))
            return await (self.create(run, path, content) if create else self.write(run, path, content, None))

        def flow(c: Call) -> Awaitable[Effect]:
            return part_flows.write(c.store, c.run, c.key, blocks, ABSENT if create else ANY)

        return await self._write(run, "create" if create else "write", path, flow, unseen=blocks.size)

    def _goes_in_parts(self, size: int) -> bool:
        """Whether a content is written in parts: one call does not carry it, or nothing needs it in memory."""
        if size > self.backend.max_bytes:
            return True
        return size > self.backend.part_bytes and not self.hooks.need_content and flows.writes_in_parts(self.backend)

    async def append(
        self, run: Run, path: str, content: Content, separator: Content, must_exist: bool, expected: str | None
    ) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            when: AppendWhen = PRESENT if must_exist else ANY
            between = separator()
            if len(between) > _MOST_SEPARATOR:
                raise InvalidContentError(f"a separator has at most {_MOST_SEPARATOR} bytes, not {len(between):,}")
            return flows.append(c.store, c.run, c.key, c.data, separator=between, when=when, expected=_digest(expected))

        return await self._write(run, "append", path, flow, content)

    async def edit(self, run: Run, path: str, change: Callable[[str], str], expected: str | None) -> WriteResult:
        def flow(c: Call) -> Awaitable[Effect]:
            async def apply_filters(data: bytes) -> bytes:
                return await self._apply_filters(c, data)

            return flows.edit(c.store, c.run, c.key, change, apply_filters, _digest(expected))

        return await self._write(run, "edit", path, flow)

    async def delete(self, run: Run, path: str, expected: str | None) -> None:
        await self._operate(run, "delete", path, lambda c: flows.delete(c.store, c.run, c.key, _digest(expected)))

    async def delete_tree(self, run: Run, path: str) -> TreeResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return tree_flows.delete_tree(c.store, c.run, c.key, missing_ok=c.key == self.top)

        return await self._remove(run, "delete_tree", path, flow)

    async def forget(self, run: Run, path: str) -> TreeResult:
        return await self._remove(run, "forget", path, lambda c: tree_flows.forget(c.store, c.run, c.key))

    async def _remove(self, run: Run, kind: OperationKind, path: str, flow: Flow) -> TreeResult:
        effect = await self._operate(run, kind, path, flow, directory=True)
        return TreeResult(self._path(self.top.join_prefix(path)), effect.files or 0, effect.skipped)

    async def rename(self, run: Run, path: str, new_path: str) -> TreeResult:
        return await self._transfer(run, "rename", path, new_path, tree_flows.rename)

    async def copy(self, run: Run, path: str, new_path: str) -> TreeResult:
        return await self._transfer(run, "copy", path, new_path, tree_flows.copy)

    async def _transfer(
        self, run: Run, kind: OperationKind, path: str, new_path: str, transfer: tree_flows.Transfer
    ) -> TreeResult:
        def flow(c: Call) -> Awaitable[Effect]:
            return transfer(c.store, c.run, c.key, cast(Key, c.target))

        effect = await self._operate(run, kind, path, flow, new_path=new_path)
        return TreeResult(self._path(self.top.join(new_path)), effect.files or 0, effect.skipped)

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
        effect = await self._operate(run, kind, path, flow, content, unseen=unseen)
        key = self.top.join(path)
        return WriteResult(self._path(key) if self.top.path else key.path, effect.size or 0, effect.sha256 or "")

    async def _operate(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        flow: Flow,
        content: Content | None = None,
        *,
        directory: bool = False,
        new_path: str | None = None,
        unseen: int | None = None,
    ) -> Effect:
        """The choke point: every operation of every surface passes here, exactly once.

        ``unseen`` is the bytes of a content that is written in parts, which no plugin can be given.
        """
        try:
            key = self.top.join_prefix(path) if directory else self.top.join(path)
            target = None if new_path is None else self.top.join(new_path)
        except InvalidPathError as error:
            refused = error
            error.set_place(kind, self.agent, path if isinstance(path, str) else None, "")
            await run.offload(lambda: self.hooks.key_rejected(self.agent, refused, self.by.actor))
            raise
        data, fault = _encoded(content) if content else (b"", None)
        size = unseen if fault or content is None else len(data)
        call = Call(self, cast(Backend, self.backend), run, kind, key, target, size, data, time.time())
        started = run.now()
        failed: BaseException | None = None
        raised: BaseException | None = None
        # A signal's handler may raise wherever a function begins or has been called. So what was done is told from
        # within this function, which had begun before, and a report that an interrupt broke off is taken up again.
        try:
            await self._perform(call, flow, fault, has_content=content is not None, unseen=unseen)
        except GeneratorExit as error:
            if isinstance(run, AsyncIORun | ThreadedRun):
                raise  # the caller's event loop was given up: nothing is awaited there, and this may be any thread
            failed = raised = error
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed = raised = error
        while not call.told:
            try:
                await self._tell(call, failed, raised, started)
            except BaseException as error:  # noqa: BLE001 - it is raised below
                raised = _first(raised, error)
                if isinstance(error, Exception) or isinstance(run, AsyncIORun):
                    break  # an async run ends a report in its own thread, which no signal interrupts
        if raised is not None:
            try:
                if isinstance(raised, AgentMemoryError):
                    raised.set_place(kind, self.agent, key.path, self.top.path)
                raise raised
            finally:
                failed = raised = None  # they hold this frame
        return cast(Effect, call.effect)

    async def _perform(
        self, call: Call, flow: Flow, fault: InvalidContentError | None, *, has_content: bool, unseen: int | None
    ) -> None:
        self._permit(call)
        if fault:
            raise fault
        if self.hooks.guards:
            await call.run.offload(lambda: call.ask(lambda: self.hooks.before(call.operation)))
        if self.protected and call.kind in _OF_DIRECTORIES:
            await self._permit_below(call)
        if has_content:
            call.data = await self._apply_filters(call, call.data)
        if unseen is not None:
            await call.run.offload(lambda: call.ask(lambda: self.hooks.call_size_guards(call.operation, unseen)))
        call.at_work = True
        call.effect = await (flow(call) if self.timeout is None else self._in_time(self.timeout, flow, call))

    async def _in_time(self, seconds: float, flow: Flow, call: Call) -> Effect:
        with deadline_scope(Deadline(seconds, call.run.now() + seconds)):
            return await flow(call)

    async def _permit_below(self, call: Call) -> None:
        """Refuse to move, copy or delete a directory with a protected name below it, which a listing tells."""
        below = await tree_flows.list_all(call.store, call.run, call.key, recursive=True)
        if any(names.holds(entry.key) for entry in below.entries for names in self.protected):
            raise OperationDenied(
                "it holds what a conversation keeps: tools do not move or delete it", path=call.key.path
            )

    def _permit(self, call: Call) -> None:
        changes = call.kind not in _READING
        if changes and not self.writable:
            raise OperationDenied(f"{call.kind}: this view is read-only")
        for names in self.protected:
            for key in filter(None, (call.key, call.target)):
                names.permit(key, changes=changes)

    async def _apply_filters(self, call: Call, data: bytes) -> bytes:
        """What the plugins make of a content that is to be written."""
        if self.hooks.see_content:
            return await call.run.offload(lambda: call.ask(lambda: self.hooks.apply_filters(call.operation, data)))
        return data

    async def _tell(
        self, call: Call, failed: BaseException | None, raised: BaseException | None, started: float
    ) -> None:
        """Tell the observers how an operation ended, or those that are left; ``raised`` will be raised."""
        if not self.hooks.observers or (
            raised is None and call.effect and not call.effect.skipped and not self.hooks.wants_successes()
        ):
            call.told = True
            return
        if call.report is None:
            duration = call.run.now() - started
            outcome = _succeeded(call.effect, duration) if call.effect else _failed(failed, call.at_work, duration)
            call.report = self.hooks.report(call.operation, outcome)
        try:
            await call.run.offload(partial(call.tell, call.report))
        finally:
            call.told = not call.report.untold

    def _path(self, key: Key) -> str:
        return key.relative_to(self.top).path if self.top.path else key.path

    def _seen(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        for names in self.protected:
            entries = tuple(entry for entry in entries if not names.hides(entry.key))
        if not self.top.path:
            return entries
        return tuple(entry._replace(key=entry.key.relative_to(self.top)) for entry in entries)


def _encoded(content: Content) -> tuple[bytes, InvalidContentError | None]:
    try:
        return content(), None
    except InvalidContentError as error:
        return b"", error


def _collected(blocks: part_flows.Blocks) -> Content:
    """A content that one call carries; what is wrong with it is told within the operation."""
    try:
        data = blocks.whole()
    except InvalidContentError as error:
        refused = error

        def refuse() -> bytes:
            raise refused

        return refuse
    return lambda: data


def _digest(expected: str | None) -> str | None:
    if expected is not None and not (isinstance(expected, str) and _SHA256.match(expected.lower())):
        raise InvalidContentError("expected_sha256 is the 64 hexadecimal digits of a SHA-256")
    return expected and expected.lower()


def _succeeded(effect: Effect, duration: float) -> Outcome:
    return Outcome(
        status="ok",
        duration=duration,
        size=effect.size,
        version=effect.version,
        sha256=effect.sha256,
        before_sha256=effect.before_sha256,
        attempts=effect.attempts,
        files=effect.files,
        skipped=effect.skipped,
    )


def _first(raised: BaseException | None, error: BaseException) -> BaseException:
    """Which of the errors of an operation and of its report is raised: the operation's own, but an interrupt first."""
    if raised is None:
        return error
    if isinstance(raised, Exception) and not isinstance(error, Exception):
        error.__context__ = raised
        return error
    if isinstance(error, Exception):
        raised.add_note(f"and it could not be reported: {error}")
    return raised


def _failed(error: BaseException | None, at_work: bool, duration: float) -> Outcome:
    if isinstance(error, OperationDenied):
        return Outcome(status="denied", duration=duration)
    if isinstance(error, AgentMemoryError):
        unknown = isinstance(error, OutcomeUnknownError)
        return Outcome(status="unknown" if unknown else "error", duration=duration, error=error.kind)
    interrupted = not isinstance(error, Exception)
    return Outcome(
        status="unknown" if interrupted and at_work else "error",
        duration=duration,
        error="interrupted" if interrupted else type(error).__name__,
    )
