"""`Scope.operate` performs every operation of every memory.

It parses names, calls guards, applies filters, runs the flow, and calls observers. Logs, `doctor` and tests use
`agent_memory.core.blocking.BlockingStore`, without an operation.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from typing import Final, TypeVar, cast

from agent_memory.backend import AnyBackend, Backend
from agent_memory.backend._deadline import deadline_scope, restore_deadline
from agent_memory.backend.helpers import Deadline, current_deadline
from agent_memory.core import tree_flows
from agent_memory.core.actor import NO_ACTOR, Actor, current_actor
from agent_memory.core.call import Call, Content, Flow
from agent_memory.core.contexts import OperationContexts
from agent_memory.core.flows import Effect
from agent_memory.core.hooks import Hooks
from agent_memory.core.idempotency import Once
from agent_memory.core.internal_trees import Sweep, about_file
from agent_memory.core.limits.quotas import Quotas
from agent_memory.core.limits.store import LimitedStore
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.core.statistics import MOST_PENDING, Ended, bytes_written, conflicts_of
from agent_memory.core.versions.settings import SettingsCache
from agent_memory.core.versions.states import require_state
from agent_memory.errors import (
    AgentMemoryError,
    AppendError,
    InvalidContentError,
    InvalidPathError,
    OperationDenied,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.hookspecs import READING, OperationKind
from agent_memory.key import Key
from agent_memory.reading.reader import CheckRead
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run
from agent_memory.runtime.threaded import ThreadedRun

_NOT_ONCE: Final[frozenset[OperationKind]] = frozenset({"forget", "redact", "prune", "set_versions", "set_limits"})
"""Operations that an idempotency key could only make worse: they end in the same state each time."""
_WITH_TARGET = frozenset({"rename", "copy"})
_TWICE: Final = (1, 2)
_OF_DIRECTORIES = frozenset({"delete_tree", "forget", "rename", "copy"})
T = TypeVar("T")


@dataclass(frozen=True)
class Scope:
    """The part of a storage that a memory shows, with its permissions, actor and timeout.

    Attributes:
        top: the directory that is the whole tree.
        agent: the agent's id; None for a tree without agents.
        bound: whether ``actor`` applies in any context.
        writable: whether operations may change files.
        protected: names that the memory hides or does not change.
        timeout: seconds for each operation; None for no limit.
        once: the idempotency key of the change; None if it has none.
        sweep: the sweep of expired receipts of the store.
        settings: the settings of the store, as this process knows them.
        quotas: what this process may still add to the files of each agent.
        required_state: the id of the state that a file must have, for the steps of an undo; None for any state.
    """

    backend: AnyBackend
    hooks: Hooks
    top: Key
    agent: str | None = None
    actor: Actor = NO_ACTOR
    bound: bool = False
    writable: bool = True
    protected: tuple[ProtectedNames, ...] = ()
    timeout: float | None = None
    once: Once | None = None
    sweep: Sweep = field(default_factory=Sweep)
    settings: SettingsCache = field(default_factory=SettingsCache)
    quotas: Quotas = field(default_factory=Quotas)
    required_state: str | None = None

    @property
    def store(self) -> Backend:
        """The backend as a flow sees it: a `Run` calls the verbs of a blocking one in the same way."""
        return cast(Backend, self.backend)

    @property
    def by(self) -> Actor:
        """The actor of an operation that starts now."""
        return self.actor if self.bound else current_actor(self.actor)

    async def operate(
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
    ) -> Call:
        """Perform one operation; return it with its keys and its result.

        Args:
            run: runs the flow and the hooks.
            kind: the kind of operation, for the hooks.
            path: the file, or a directory if ``directory`` is true.
            flow: the work on the storage.
            content: returns the content to write; called after the names are parsed.
            directory: whether ``path`` is the path of a directory.
            new_path: the new name of a rename or copy.
            unseen: the bytes of content that is written in parts; plugins cannot see it.

        A signal handler may raise at the start of any function and after any call. So this function, which has already
        started, reports again after an interrupt, which may have come before the first observer.
        """
        threads, begun = self.hooks.in_progress.threads, object()
        try:
            threads[begun] = get_ident()
            self.hooks.in_progress.require_open()
            keys = await self._keys(run, kind, path, directory, new_path)
            size, data, fault = _given(content, unseen)
            call = Call(self, run, kind, *keys, size, data, data, time.time(), _called(run))
            failed = raised = cast("BaseException | None", None)
            try:
                await self._perform(call, flow, fault, has_content=content is not None, unseen=unseen)
            except BaseException as error:
                if isinstance(error, GeneratorExit) and isinstance(run, AsyncIORun | ThreadedRun):
                    raise  # the caller's event loop was dropped: nothing can be awaited, and this may be any thread
                failed = raised = self._about_callers_file(error, call)
            for _ in _TWICE:  # no call of `range`: an interrupt after it would skip the report
                try:
                    if call.contexts is not None:
                        call.contexts.leave(failed)
                    await self._report(call, failed, raised)
                    break
                except BaseException as error:  # noqa: BLE001 - it is raised below
                    raised = _first(raised, error)
                    if isinstance(error, Exception) or (call.report and isinstance(run, AsyncIORun)):
                        break  # an async run finishes the report in another thread, which no signal interrupts
            if raised is not None:
                raise self._placed(raised, call)
            return call
        finally:
            threads.pop(begun, None)
            failed = raised = None  # they refer to this frame: break the cycle

    async def find(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        work: Callable[[Backend, Run, Call], Awaitable[tuple[T, Effect]]],
        *,
        directory: bool = False,
    ) -> T:
        """Perform an operation whose work has a value beside its effect; return the value."""
        values: list[T] = []

        async def flow(store: Backend, run: Run, call: Call) -> Effect:
            value, effect = await work(store, run, call)
            values.append(value)
            return effect

        await self.operate(run, kind, path, flow, directory=directory)
        return values[0]

    def _placed(self, error: BaseException, call: Call) -> BaseException:
        changed = self._about_callers_file(error, call)
        if isinstance(changed, AgentMemoryError):
            return changed.with_location(call.kind, self.agent, call.key.path, self.top.path)
        return changed

    def _about_callers_file(self, error: BaseException, call: Call) -> BaseException:
        """Make an error about a file of the package's own one about the file of the call."""
        if not isinstance(error, AgentMemoryError):
            return error
        kind = ReadError if call.kind in READING else AppendError if call.kind == "append" else WriteError
        return about_file(error, call.key.path, kind=kind)

    async def _keys(
        self, run: Run, kind: OperationKind, path: str, directory: bool, new_path: str | None
    ) -> tuple[Key, Key | None]:
        try:
            key = self.top.join_prefix(path) if directory else self.top.join(path)
            return key, self.top.join(cast(str, new_path)) if kind in _WITH_TARGET else None
        except InvalidPathError as error:
            refused = error
            error.with_location(kind, self.agent, path if isinstance(path, str) else None, "")
            await run.offload(lambda: self.hooks.key_rejected(self.agent, refused, self.by.actor))
            raise

    async def _perform(
        self, call: Call, flow: Flow, fault: InvalidContentError | None, *, has_content: bool, unseen: int | None
    ) -> None:
        self._permit(call)
        if fault:
            raise fault
        if self.hooks.guards:
            await call.offload(lambda: call.call_hooks(lambda: self.hooks.before(call.operation)))
        if self.protected and call.kind in _OF_DIRECTORIES:
            await self._permit_below(call)
        if has_content:
            call.data = await self.apply_filters(call, call.data)
        if unseen is not None:
            await call.offload(lambda: call.call_hooks(lambda: self.hooks.call_size_guards(call.operation, unseen)))
        if call.kind not in READING:
            flow = partial(self._permitted, flow)
        if self.hooks.contexts:
            call.contexts = OperationContexts(self.hooks.contexts, call.operation)
            call.contexts.enter()
        call.at_work = True
        before, began = current_deadline(), call.run.now()
        try:
            flow = flow if self.required_state is None else _in_state(self.required_state, flow)
            call.effect = await self._in_time(flow, call)
        except GeneratorExit:
            raise  # the coroutine was abandoned, and this may be another context
        except BaseException:
            restore_deadline(before)  # a signal may interrupt a scope before its block begins, or when it has ended
            raise
        finally:
            call.storage_seconds = call.run.now() - began

    async def _in_time(self, flow: Flow, call: Call) -> Effect:
        if self.timeout is None:
            return await flow(self.store, call.run, call)
        with deadline_scope(Deadline(self.timeout, call.run.now() + self.timeout)):
            return await flow(self.store, call.run, call)

    async def _permitted(self, flow: Flow, store: Backend, run: Run, call: Call) -> Effect:
        """Run a flow that may change files, if this release may change the store, within the limits of the store."""
        setting = await self.settings.permit(store, run, call)
        if setting is None or not setting.limits.refuse:
            return await flow(store, run, call)
        limited = LimitedStore(store, run, call.agent, setting, self.quotas.of(call.agent))
        return await flow(limited, limited.run, call)

    async def _permit_below(self, call: Call) -> None:
        """Refuse to move, copy or delete a directory if a listing shows a protected name below it."""
        below = await tree_flows.list_all(self.store, call.run, call.key, recursive=True)
        if any(names.holds(entry.key) for entry in below.entries for names in self.protected):
            raise OperationDenied(
                "it contains files of a conversation: tools cannot move, copy or delete it", path=call.key.path
            )

    def _permit(self, call: Call) -> None:
        changes = call.kind not in READING
        if changes and not self.writable:
            raise OperationDenied(f"{call.kind}: this view is read-only")
        if self.once is not None and call.kind in _NOT_ONCE:
            raise UnsupportedOperationError(
                f"{call.kind} takes no idempotency key: a repeated call does the same; call it on the memory itself"
            )
        for names in self.protected:
            for key in filter(None, (call.key, call.target)):
                names.permit(key, changes=changes)

    async def apply_filters(self, call: Call, data: bytes) -> bytes:
        """Return the content to write, after the plugins' filters."""
        if self.hooks.see_content:
            return await call.offload(lambda: call.call_hooks(lambda: self.hooks.apply_filters(call.operation, data)))
        return data

    def read_guard(self, call: Call) -> CheckRead | None:
        """Return the check of content that the caller is about to get; None if no plugin checks it."""
        return partial(self._check_read, call) if self.hooks.guards_of_reads else None

    async def _check_read(self, call: Call, content: bytes, start: int, size: int) -> None:
        if not content and size:
            return  # a range without bytes
        hooks = partial(self.hooks.check_read, call.operation, content, start, size)
        await call.offload(lambda: call.call_hooks(hooks))

    async def permit_delete(self, call: Call) -> None:
        """Ask the guards whether an edit may delete its file: with the same id, and the kind "delete"."""
        if self.hooks.guards:
            operation = replace(call.operation, kind="delete")
            await call.offload(lambda: call.call_hooks(lambda: self.hooks.before(operation)))

    async def _report(self, call: Call, failed: BaseException | None, raised: BaseException | None) -> None:
        """Call the observers with the outcome; ``raised`` is the error that the caller will get."""
        if not call.is_counted:
            self._count(call, failed)
        if not self.hooks.observers or (
            raised is None and call.effect and not call.effect.skipped and not self.hooks.wants_successes()
        ):
            return
        if call.report is None:
            call.report = self.hooks.report(call.operation, call.outcome(failed))
        await call.offload(partial(call.call_observers, call.report))

    def _count(self, call: Call, failed: BaseException | None) -> None:
        """Count the operation for `agent_memory.core.statistics.Statistics`."""
        call.seconds = call.run.now() - call.started
        tally, times = self.hooks.tally, (call.seconds, call.storage_seconds)
        if (effect := call.effect) is not None:
            written = bytes_written(call.kind, len(call.data), effect) or 0
            ended: Ended = (call.kind, "ok", written, effect.attempts - 1, *times)
        else:
            outcome = call.outcome(failed)
            ended = (call.kind, outcome.status, 0, conflicts_of(outcome.attempts, outcome.error), *times)
        call.is_counted = True  # no signal handler can raise between this statement and the end of the next call
        tally.pending.append(ended)
        if len(tally.pending) >= MOST_PENDING:
            tally.fold()


def _called(run: Run) -> float:
    """When an operation was called: the first one of a flow in a thread waited for the thread."""
    called = run.called if isinstance(run, ThreadedRun) else None
    if called is None:
        return run.now()
    cast(ThreadedRun, run).called = None
    return called


def _in_state(state: str, flow: Flow) -> Flow:
    """A flow that raises `ConflictError` if its file has another state; equal content may be another writer's."""

    async def checked(store: Backend, run: Run, call: Call) -> Effect:
        await require_state(store, run, call.key, state)
        return await flow(store, run, call)

    return checked


def _given(content: Content | None, unseen: int | None) -> tuple[int | None, bytes, InvalidContentError | None]:
    """The bytes that were given, as far as they are known; the content; and the error that it raised, if any."""
    if content is None:
        return unseen, b"", None
    try:
        data = content()
    except InvalidContentError as error:
        return unseen, b"", error
    return len(data), data, None


def _first(raised: BaseException | None, error: BaseException) -> BaseException:
    """Return the error to raise: the operation's own before that of its report, but an interrupt before any other."""
    if raised is None:
        return error
    if isinstance(raised, Exception) and not isinstance(error, Exception):
        error.__context__ = raised
        return error
    if isinstance(error, Exception):
        raised.add_note(f"the operation could not be reported: {error}")
    return raised
