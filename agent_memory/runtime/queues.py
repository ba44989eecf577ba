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
    """Locks by name for threads."""

    def __init__(self) -> None:
        self.forget()
        _of_threads.add(self)

    def forget(self) -> None:
        """Drop all locks: in the child of a fork, the threads that held them do not exist."""
        self._guard = threading.Lock()
        self._users: dict[Hashable, tuple[threading.Lock, int]] = {}

    @contextmanager
    def lock(self, name: Hashable, seconds: float) -> Iterator[None]:
        """Hold the lock of a name, or continue without it after ``seconds``: it only avoids conflicts."""
        with self._lock_of(name) as lock:
            taken = lock.acquire(timeout=max(0.0, seconds))
            try:
                yield
            finally:
                if taken:
                    lock.release()

    @contextmanager
    def _lock_of(self, name: Hashable) -> Iterator[threading.Lock]:
        with self._guard:
            lock, users = self._users.get(name) or (threading.Lock(), 0)
            self._users[name] = lock, users + 1
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._users.pop(name)
                if users > 1:
                    self._users[name] = lock, users - 1


_of_threads = renewed_in_child(KeyedThreadLocks.forget)
