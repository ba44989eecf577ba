"""`Call`: one running operation, from its first hook to its report."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from agent_memory.backend import Backend, BlockingBackend
from agent_memory.core.contexts import OperationContexts
from agent_memory.core.flows import Effect
from agent_memory.core.hooks import Report
from agent_memory.errors import AgentMemoryError, FileOperationError, OperationDenied, OutcomeUnknownError
from agent_memory.hookspecs import Operation, OperationKind, Outcome
from agent_memory.key import Key
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run

if TYPE_CHECKING:
    from agent_memory.core.operation import Scope

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """The facts of one running operation; its flow gets them.

    Attributes:
        run: runs the hooks; a flow uses the run that it gets.
        size: the bytes of the caller's content; None if there is none.
        content: the caller's content, before the filters.
        data: the content to write, after the filters.
        time: the start, in POSIX seconds.
        started: when the caller called, by the clock of ``run``.
        at_work: whether the storage may have been called.
        seconds: what the caller has waited at the report.
        storage_seconds: how long the flow took, with its requests, retries and waits for locks.
        raised_by_caller: the exception of a function that the caller gave, if it raised one.
        contexts: the context managers of plugins around the flow; None if no plugin has one.
    """

    scope: Scope
    run: Run
    kind: OperationKind
    key: Key
    target: Key | None
    size: int | None
    content: bytes
    data: bytes
    time: float
    started: float
    at_work: bool = False
    seconds: float = 0.0
    storage_seconds: float = 0.0
    effect: Effect | None = None
    report: Report | None = None
    raised_by_caller: BaseException | None = None
    contexts: OperationContexts | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_counted: bool = False
    is_reported: bool = False
    _operation: Operation | None = None

    @property
    def operation(self) -> Operation:
        """The facts for the hooks, created before the first hook is called."""
        if self._operation is None:
            by = self.scope.by
            self._operation = Operation(
                id=secrets.token_hex(8),
                time=self.time,
                kind=self.kind,
                agent=self.scope.agent,
                path=self.key.path,
                target=self.target.path if self.target else None,
                size=self.size,
                actor=by.actor,
                tool_call_id=by.tool_call_id,
                remote=not isinstance(self.scope.backend, BlockingBackend),
            )
        return self._operation

    @property
    def agent(self) -> str | None:
        """The agent's id; None for a tree without agents."""
        return self.scope.agent

    @property
    def result(self) -> Effect:
        """The effect; only after the operation succeeded."""
        return cast(Effect, self.effect)

    def outcome(self, failed: BaseException | None) -> Outcome:
        """The outcome for the observers; ``failed`` is the error of the operation if it has no effect."""
        times = self.seconds, self.storage_seconds
        return _succeeded(self.effect, *times) if self.effect else _failed(failed, self.at_work, *times)

    async def offload(self, function: Callable[[], T]) -> T:
        """Call hooks by ``run``; a cancelled caller may leave them in progress in another thread."""
        if not isinstance(self.run, AsyncIORun):
            return await self.run.offload(function)
        threads, begun = self.scope.hooks.in_progress.threads, object()

        def hooks() -> T:
            try:
                return function()
            finally:
                threads.pop(begun, None)

        threads[begun] = get_ident()
        try:
            return await self.run.offload(hooks)
        except FileOperationError:
            threads.pop(begun, None)  # no thread could be started for them
            raise

    def call_hooks(self, hooks: Callable[[], T]) -> T:
        """Call hooks, unless the report has begun: a cancelled caller may have left them in the queue for a thread."""
        with self.lock:
            if self.is_reported:
                raise OperationDenied("the operation was cancelled")
            return hooks()

    def call_observers(self, report: Report) -> None:
        """Call the observers, after all other hooks of this operation have ended."""
        with self.lock:
            self.is_reported = True
            report()


Flow = Callable[[Backend, Run, Call], Awaitable[Effect]]
"""The work of an operation on the storage. It uses the given store and run, which may be wrapped ones.

Flows are nested: the check of the release, at most once, archiving, and inside one of `agent_memory.core.flows`.
"""
Content = Callable[[], bytes]


def _succeeded(effect: Effect, duration: float, storage: float) -> Outcome:
    if effect.replayed:
        return Outcome(status="ok", duration=duration, storage_duration=storage, replayed=True)
    return Outcome(
        status="ok",
        duration=duration,
        storage_duration=storage,
        size=effect.size,
        etag=effect.etag,
        sha256=effect.sha256,
        before_sha256=effect.before_sha256,
        attempts=effect.attempts,
        files=effect.files,
        skipped=effect.skipped,
        version_id=effect.version_id,
        versions_searched=effect.versions_searched,
    )


def _failed(error: BaseException | None, at_work: bool, duration: float, storage: float) -> Outcome:
    if isinstance(error, OperationDenied):
        return Outcome(status="denied", duration=duration, storage_duration=storage)
    if isinstance(error, AgentMemoryError):
        unknown = isinstance(error, OutcomeUnknownError)
        status: Literal["unknown", "error"] = "unknown" if unknown else "error"
        return Outcome(status=status, duration=duration, storage_duration=storage, error=error.kind)
    interrupted = not isinstance(error, Exception)
    return Outcome(
        status="unknown" if interrupted and at_work else "error",
        duration=duration,
        storage_duration=storage,
        error="interrupted" if interrupted else type(error).__name__,
    )
