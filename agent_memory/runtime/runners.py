"""Chooses the `Run` for a caller and a backend, and runs flows; see `agent_memory.runtime`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from agent_memory.backend import AnyBackend, BlockingBackend
from agent_memory.runtime.io_loop import AsyncIORun, SyncIORun
from agent_memory.runtime.run import BlockingRun, Run, step
from agent_memory.runtime.threaded import ThreadedFlow
from agent_memory.runtime.threads import in_thread

T = TypeVar("T")
_BLOCKING: Final = BlockingRun()
_SYNC_IO: Final = SyncIORun()
_ASYNC_IO: Final = AsyncIORun()


def sync_run(backend: AnyBackend) -> Run:
    """Return the run for a sync caller's flows; `agent_memory.runtime.run.step` runs them."""
    return _BLOCKING if isinstance(backend, BlockingBackend) else _SYNC_IO


def run_sync(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
    """Run a flow for a sync caller."""
    return step(start(sync_run(backend)))


def run_async(backend: AnyBackend, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run a flow for an async caller; called in the caller's event loop."""
    if isinstance(backend, BlockingBackend):
        return ThreadedFlow(start).run()
    return start(_ASYNC_IO)


def close_backend(backend: AnyBackend) -> None:
    """Close a backend for a sync caller."""
    if isinstance(backend, BlockingBackend):
        backend.close()
    else:
        run_sync(backend, lambda run: run.call(backend.aclose))


async def aclose_backend(backend: AnyBackend) -> None:
    """Close a backend for an async caller."""
    if isinstance(backend, BlockingBackend):
        await in_thread(backend.close)
    else:
        await run_async(backend, lambda run: run.call(backend.aclose))
