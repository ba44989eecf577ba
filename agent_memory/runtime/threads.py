"""The thread pools for async callers: they run hooks, and flows over a blocking backend.

Code in a thread of an executor (a hook, a ``change`` function) may call the async API and wait for it. Its calls run
in the next executor, so that no thread waits for its own executor; see ``docs/decisions/026-threads.md``.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Final, TypeVar

from agent_memory.errors import FileOperationError, OutcomeUnknownError
from agent_memory.runtime.fork import call_in_child

T = TypeVar("T")
THREADS: Final = 32
"""The maximum threads of each executor."""
_depth: ContextVar[int] = ContextVar("agent_memory_executor", default=0)
_executors: dict[int, ThreadPoolExecutor] = {}
call_in_child(_executors.clear)


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in an executor, with the caller's context variables; errors as `submit`."""
    return await asyncio.wrap_future(submit(contextvars.copy_context(), function))


def submit(context: contextvars.Context, function: Callable[[], T]) -> Future[T]:
    """Start a function in the executor of a context.

    Raises:
        FileOperationError: no thread can be started; nothing was done.
        OutcomeUnknownError: no thread can be started, but a running thread has already taken the call.
    """
    depth = context.get(_depth, 0)
    claim = [None]  # `pop` is one step: either the thread takes the call, or the caller withdraws it
    try:
        return _executor(depth).submit(context.run, _one_deeper, depth, function, claim)
    except RuntimeError as error:  # the executor may have queued the call anyway
        try:
            claim.pop()
        except IndexError:
            raise OutcomeUnknownError("no thread can be started, but a running thread took this call") from error
        raise FileOperationError("no thread can be started for this call; nothing was done") from error


def _one_deeper(depth: int, function: Callable[[], T], claim: list[None]) -> T:
    claim.pop()
    token = _depth.set(depth + 1)
    try:
        return function()
    finally:
        _depth.reset(token)


def _executor(depth: int) -> ThreadPoolExecutor:
    executor = _executors.get(depth)
    if executor is None:
        executor = _executors.setdefault(depth, ThreadPoolExecutor(THREADS, "agent-memory"))
    return executor
