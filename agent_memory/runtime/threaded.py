"""Flows over a blocking backend for an async caller: they run in threads, but wait for locks without a thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from agent_memory.backend.helpers import Deadline, TryLater, current_deadline, trying_later
from agent_memory.errors import FileOperationError
from agent_memory.runtime.fork import renewed_in_child
from agent_memory.runtime.run import FOREIGN_AWAIT, BlockingRun, Run
from agent_memory.runtime.threads import submit

P = ParamSpec("P")
T = TypeVar("T")
_FIRST_RETRY: Final = 0.0005
_LONGEST_RETRY: Final = 0.01
_RETRY_PER_FLOW: Final = 0.002


class ThreadedRun(BlockingRun):
    """Runs one flow in threads of the executor; a waiting flow occupies no thread.

    Attributes:
        caller_cancelled: whether the caller was cancelled during the present step of the flow.
        called: when the caller called, by the clock of the run, before it waited for a thread; None after the first
            operation of the flow has taken it.
    """

    def __init__(self) -> None:
        self.caller_cancelled = False
        self.called: float | None = None

    async def offload(self, function: Callable[[], T]) -> T:
        result = function()
        if self.caller_cancelled:
            raise asyncio.CancelledError  # as in `AsyncIORun`, the flow stops after the hook
        return result

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with trying_later():
                return primitive(*args, **kwargs)  # type: ignore[return-value]  # a blocking backend returns the result
        except TryLater as error:
            later = error.with_traceback(None)
        return await self._try_again(later, partial(primitive, *args, **kwargs))

    async def sleep(self, seconds: float) -> None:
        await _suspended(seconds)

    async def _try_again(self, later: TryLater, primitive: Callable[[], Awaitable[T]]) -> T:
        now = self.now()
        limit = current_deadline() or Deadline(later.seconds, now + later.seconds)
        delay = _FIRST_RETRY
        try:
            with _waiting_flows:
                while self.now() <= limit.at:
                    await self.sleep(self.random() * delay)
                    delay = min(2 * delay, _waiting_flows.longest_delay)
                    try:
                        with trying_later():
                            return primitive()  # type: ignore[return-value]
                    except TryLater as error:
                        later.kept, later = None, error.with_traceback(None)
            raise later.give_up(limit)
        finally:
            later.kept = None  # now, not at garbage collection: an announced lock blocks others


@types.coroutine
def _suspended(seconds: float) -> Generator[float, None, None]:
    """Leave the thread; `ThreadedFlow` resumes the flow after ``seconds``."""
    yield seconds


class _WaitingFlows(AbstractContextManager[None]):
    """The number of flows that wait for a lock; the back-off of each grows with this number."""

    def __init__(self) -> None:
        self.forget()
        _all_waiting.add(self)

    def forget(self) -> None:
        """Reset to zero: in the child of a fork the waiting flows belong to the parent."""
        self.count = 0
        self._guard = threading.Lock()

    @property
    def longest_delay(self) -> float:
        """The longest back-off, in seconds."""
        return max(_LONGEST_RETRY, self.count * _RETRY_PER_FLOW)

    def __enter__(self) -> None:
        with self._guard:
            self.count += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._guard:
            self.count -= 1


_all_waiting = renewed_in_child(_WaitingFlows.forget)
_waiting_flows = _WaitingFlows()


class ThreadedFlow(Generic[T]):
    """One flow that runs in threads of the executor, and waits in its caller's event loop."""

    def __init__(self, start: Callable[[Run], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._context = contextvars.copy_context()
        self._run = ThreadedRun()
        self._flow: Coroutine[Any, Any, T] | None = None
        self._seconds = 0.0

    async def run(self) -> T:
        """Run the flow to its end.

        Cancellation ends a wait at once. A running primitive or hook is not interrupted; the flow ends after the hook.
        """
        self._run.called = self._run.now()
        while True:
            step = submit(self._context, self._step)
            try:
                ended, result = await asyncio.wrap_future(step)
            except asyncio.CancelledError:
                self._run.caller_cancelled = True
                step.add_done_callback(self._left)
                raise
            if ended:
                return cast(T, result)
            try:
                await asyncio.sleep(self._seconds)
            except GeneratorExit:
                raise  # the caller's event loop was dropped, and the flow is closed with it
            except BaseException:
                self._cancel()
                raise

    def _step(self) -> tuple[bool, T | None]:
        """Run the flow until it waits or ends; called in a thread."""
        if self._flow is None:
            self._flow = self._start(self._run)
        return self._advanced(self._flow, lambda flow: flow.send(None))

    def _advanced(
        self, flow: Coroutine[Any, Any, T], advance: Callable[[Coroutine[Any, Any, T]], object]
    ) -> tuple[bool, T | None]:
        try:
            seconds = advance(flow)
        except StopIteration as stop:
            return True, stop.value
        if not isinstance(seconds, float):
            flow.close()
            raise RuntimeError(FOREIGN_AWAIT)
        self._seconds = seconds
        return False, None

    def _left(self, step: Future[tuple[bool, T | None]]) -> None:
        """Cancel a flow whose caller was cancelled during this step, unless the step was the last."""
        if step.cancelled() or (step.exception() is None and not step.result()[0]):
            self._cancel()

    def _cancel(self) -> None:
        """Cancel the waiting flow; its hooks are called in a thread."""
        if self._flow is None:
            return  # it has not started, and no hook was called
        with suppress(FileOperationError):  # the interpreter is shutting down
            submit(self._context, self._throw)

    def _throw(self) -> None:
        flow = self._flow
        with suppress(asyncio.CancelledError):
            while flow is not None and not self._advanced(flow, lambda flow: flow.throw(asyncio.CancelledError()))[0]:
                pass
