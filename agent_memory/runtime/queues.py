"""Queues: who is to change a file waits for a turn behind the others of this process, instead of racing them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeAlias
from weakref import ref

from agent_memory.runtime.fork import renewed_in_child


class KeyedLocks:
    """Turns of the tasks of one event loop; tasks of another loop have queues of their own.

    Whoever waits holds the queue, and no queue is held here, nor a loop: one that ends meanwhile could not be let go.
    """

    def __init__(self) -> None:
        self._queues: _Queues = {}

    def turn(self, name: Hashable, until: float | None = None) -> AbstractAsyncContextManager[None]:
        """Wait for one's turn, first come, first served; raises `TimeoutError` at ``until``, by the loop's clock."""
        return _Turn(self._queues, (ref(asyncio.get_running_loop()), name), until)


class _Queue(asyncio.Lock):
    users = 0


_Queues: TypeAlias = dict[Hashable, ref[_Queue]]


class _Turn(AbstractAsyncContextManager[None]):
    """A class, because every write on S3 takes one, and two generators would triple its price."""

    __slots__ = ("_name", "_queue", "_queues", "_until")

    def __init__(self, queues: _Queues, name: Hashable, until: float | None) -> None:
        self._queues = queues
        self._name = name
        self._until = until

    async def __aenter__(self) -> None:
        queue = self._queue = self._entered()
        try:
            if queue.users == 1:
                await queue.acquire()
            else:
                async with asyncio.timeout_at(self._until):
                    await queue.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        try:  # noqa: SIM105 - every write pays for it
            self._queue.release()
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass
        self._leave()

    def _entered(self) -> _Queue:
        known = self._queues.get(self._name)
        if known is None or (queue := known()) is None:
            queue = _Queue()
            self._queues[self._name] = ref(queue)
        queue.users += 1
        return queue

    def _leave(self) -> None:
        self._queue.users -= 1
        if not self._queue.users:
            del self._queues[self._name]


class KeyedThreadLocks:
    """Turns of threads."""

    def __init__(self) -> None:
        self.forget()
        _of_threads.add(self)

    def forget(self) -> None:
        """After a fork: the threads are gone, and their turns."""
        self._guard = threading.Lock()
        self._used: dict[Hashable, tuple[threading.Lock, int]] = {}

    @contextmanager
    def turn(self, name: Hashable, seconds: float) -> Iterator[None]:
        """Wait for one's turn, at most so long; then go on without: it was to save work, not to keep order."""
        with self._lock(name) as lock:
            taken = lock.acquire(timeout=max(0.0, seconds))
            try:
                yield
            finally:
                if taken:
                    lock.release()

    @contextmanager
    def _lock(self, name: Hashable) -> Iterator[threading.Lock]:
        with self._guard:
            lock, users = self._used.get(name) or (threading.Lock(), 0)
            self._used[name] = lock, users + 1
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._used.pop(name)
                if users > 1:
                    self._used[name] = lock, users - 1


_of_threads = renewed_in_child(KeyedThreadLocks.forget)
