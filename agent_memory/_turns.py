"""Queues: who is to change a file waits for a turn behind the others of this process, instead of racing them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

L = TypeVar("L")


class _Locks(Generic[L]):
    """A lock for every name that somebody uses just now."""

    def __init__(self, make: type[L]) -> None:
        self._make = make
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """After a fork: the threads are gone, and their turns."""
        self._guard = threading.Lock()
        self._used: dict[Hashable, tuple[L, int]] = {}

    @contextmanager
    def lock(self, name: Hashable) -> Iterator[L]:
        with self._guard:
            lock, users = self._used.get(name) or (self._make(), 0)
            self._used[name] = lock, users + 1
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._used.pop(name)
                if users > 1:
                    self._used[name] = lock, users - 1


_all: WeakSet[_Locks[Any]] = WeakSet()


def _forget_all() -> None:
    for locks in _all:
        locks.forget()


os.register_at_fork(after_in_child=_forget_all)


class Turns:
    """Turns of the tasks of one event loop; tasks of another loop have queues of their own."""

    def __init__(self) -> None:
        self._locks = _Locks(asyncio.Lock)

    @asynccontextmanager
    async def turn(self, name: Hashable) -> AsyncIterator[None]:
        """Wait for one's turn, first come, first served."""
        with self._locks.lock((asyncio.get_running_loop(), name)) as lock:
            async with lock:
                yield


class ThreadTurns:
    """Turns of threads."""

    def __init__(self) -> None:
        self._locks = _Locks[Any](threading.Lock)

    @contextmanager
    def turn(self, name: Hashable, seconds: float) -> Iterator[None]:
        """Wait for one's turn, at most so long; then go on without: it was to save work, not to keep order."""
        with self._locks.lock(name) as lock:
            taken = lock.acquire(timeout=max(0.0, seconds))
            try:
                yield
            finally:
                if taken:
                    lock.release()
