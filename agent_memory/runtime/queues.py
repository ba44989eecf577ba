"""Locks by name: the tasks and threads of this process change a file one after another, instead of racing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from weakref import WeakValueDictionary, ref

from agent_memory.runtime.fork import renewed_in_child


class KeyedLocks:
    """Fair locks for the tasks of one event loop; other loops have separate locks under the same names.

    Weak keys and values: a lock lives as long as a task holds it or waits for it, and keeps no event loop alive.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, name: Hashable, until: float | None = None) -> AsyncIterator[None]:
        """Hold the lock of a name, first come, first served.

        Raises:
            TimeoutError: another task still holds it at ``until``, by the event loop's clock.
        """
        key = (ref(asyncio.get_running_loop()), name)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with asyncio.timeout_at(until):
            await lock.acquire()
        try:
            yield
        finally:
            with suppress(RuntimeError):  # the loop is closed, and no task waits any more
                lock.release()


class KeyedThreadLocks:
    """Locks by name for threads. Weak values: a lock lives as long as a thread holds it or waits for it."""

    def __init__(self) -> None:
        self.forget()
        _of_threads.add(self)

    def forget(self) -> None:
        """Drop all locks: in the child of a fork, the threads that held them do not exist."""
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()

    @contextmanager
    def lock(self, name: Hashable, seconds: float) -> Iterator[None]:
        """Hold the lock of a name, or continue without it after ``seconds``: it only avoids conflicts."""
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.Lock()
        taken = lock.acquire(timeout=max(0.0, seconds))
        try:
            yield
        finally:
            if taken:
                lock.release()


_of_threads = renewed_in_child(KeyedThreadLocks.forget)
