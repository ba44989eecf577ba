"""`Reader`: reads one file in ranges, with bounded memory, from one state of the file; appends are tolerated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from agent_memory.backend import Backend, ETag, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.errors import ConflictError, OperationDenied
from agent_memory.key import Key
from agent_memory.runtime.run import Run

CheckRead: TypeAlias = Callable[[bytes, int, int], Awaitable[None]]
"""Checks bytes that were read: gets the bytes, where they begin, and the size of the file; raises to refuse them."""
_MARK = 1024
_MOST_TURNS: Final = 5
_PAUSE_SECONDS: Final = 0.01
_MOST_BEGINNINGS = 100


class Reader:
    """One file, read in ranges. A function given to `agent_memory.AgentMemory.scan` may await only these reads.

    The first read fixes the file's state and size; if it does not reach the end, the last 1,024 bytes are read too. If
    the file changes afterwards, a read succeeds only if the change looks like an append: the file grew, and those bytes
    and the first 1,024 of the last read are still in their places. Otherwise it raises `ConflictError`. A file that
    grew, has the same bytes in both places and changed elsewhere is not detected.
    """

    def __init__(self, store: Backend, run: Run, key: Key, check: CheckRead | None = None) -> None:
        self._check = check
        self._refusal: OperationDenied | None = None
        self._store = store
        self._run = run
        self._key = key
        self._last: Snapshot | None = None
        self._size = 0
        self._marks: tuple[tuple[int, bytes], ...] = ()

    @property
    def size(self) -> int:
        """The file's size in bytes when it was first read; 0 before that."""
        return self._size

    @property
    def etag(self) -> ETag | None:
        """The etag of the state read last, which may include appends; None before the first read."""
        return self._last.etag if self._last else None

    @property
    def origin(self) -> str | None:
        """The origin of that state; None if it has none."""
        return self._last.origin if self._last else None

    async def read(self, start: int, end: int) -> bytes:
        """The bytes ``[start:end]`` of the file, fewer where it ends.

        Raises:
            AgentMemoryFileNotFoundError: the file does not exist.
            ConflictError: the file was rewritten since it was first read.
        """
        return await self._read(start, end if self._last is None else min(end, self._size))

    async def read_tail(self, size: int) -> bytes:
        """The last ``size`` bytes of the file; only as the first read."""
        return await self._read(-size, None)

    def require_permitted(self) -> None:
        """Raise the refusal of an earlier read, if there was one."""
        if self._refusal is not None:
            raise self._refusal

    async def _read(self, start: int, end: int | None) -> bytes:
        self.require_permitted()
        with renewed_deadline(self._run.now()):
            last = self._last
            snapshot = await (self._read_first(start, end) if last is None else self._read_on(last, start, end))
        self._last = snapshot
        at = max(0, start if start >= 0 else self._size + start)
        if snapshot.data:
            self._marks = (self._marks[0], (at, snapshot.data[:_MARK]))
        if self._check is not None:
            try:
                await self._check(snapshot.data, at, self._size)
            except OperationDenied as refusal:
                self._refusal = refusal
                raise
        return snapshot.data

    async def _read_first(self, start: int, end: int | None) -> Snapshot:
        for _ in range(_MOST_BEGINNINGS):
            snapshot = await self._run.call(self._store.read, self._key, start, end)
            size = snapshot.size
            at = max(0, size - _MARK)
            began = min(size, max(0, start if start >= 0 else size + start))
            try:
                if began <= at and began + len(snapshot.data) == size:
                    tail = snapshot.data[at - began :]
                else:
                    tail = (await self._run.call(self._store.read, self._key, at, size, when=snapshot.etag)).data
            except ConflictError:
                continue  # nothing was returned yet, so begin again with the new state
            self._size = size
            self._marks = ((at, tail),)
            return snapshot
        raise self._rewritten()

    async def _read_on(self, last: Snapshot, start: int, end: int | None) -> Snapshot:
        turns = _MOST_TURNS
        while True:
            try:
                return await self._run.call(self._store.read, self._key, start, end, when=last.etag)
            except ConflictError:
                snapshot = await self._run.call(self._store.read, self._key, start, end)
            turns -= 1
            if snapshot.size != last.size or not turns:
                break
            await self._run.sleep(_PAUSE_SECONDS)  # an append in progress has changed the times, not yet the size
        if snapshot.size <= last.size:
            raise self._rewritten()
        for at, mark in self._marks:
            again = await self._run.call(self._store.read, self._key, at, at + len(mark))
            if again.data != mark:
                raise self._rewritten()
        return snapshot

    def _rewritten(self) -> ConflictError:
        return ConflictError("the file was rewritten while it was read", path=self._key.path)
