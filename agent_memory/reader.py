"""Reading one file in ranges: bounded memory, one state of the file throughout, appends tolerated."""

from __future__ import annotations

from agent_memory.backend import Backend, Snapshot
from agent_memory.errors import ConflictError
from agent_memory.key import Key
from agent_memory.runners import Run

_MARK = 1024


class Reader:
    """One file, read in ranges; what a function given to `agent_memory.AgentMemory.scan` awaits, and nothing else.

    The first read pins the file's state and its size. If the file changes afterwards, reading goes on as long as
    a mark of what was read last (1,024 bytes) is still in its place, as after an append; otherwise `ConflictError`.
    A file rewritten with the same mark in the same place is not told apart from one appended to.
    """

    def __init__(self, store: Backend, run: Run, key: Key) -> None:
        self._store = store
        self._run = run
        self._key = key
        self._first: Snapshot | None = None
        self._last: Snapshot | None = None
        self._mark = (0, b"")

    @property
    def size(self) -> int:
        """The file's size in bytes when it was first read; 0 before that."""
        return self._first.size if self._first else 0

    async def read(self, start: int, end: int) -> bytes:
        """The bytes ``[start:end]`` of the file, fewer where it ends.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: the file was rewritten since it was first read.
        """
        return await self._read(start, end if self._first is None else min(end, self.size))

    async def read_tail(self, size: int) -> bytes:
        """The last ``size`` bytes of the file; for a first read."""
        return await self._read(-size, None)

    async def _read(self, start: int, end: int | None) -> bytes:
        if self._last is None:
            snapshot = await self._run.call(self._store.read, self._key, start, end)
        else:
            snapshot = await self._read_on(self._last, start, end)
        self._first = self._first or snapshot
        self._last = snapshot
        if snapshot.data:
            at = max(0, start if start >= 0 else snapshot.size + start)
            self._mark = (at, snapshot.data[:_MARK])
        return snapshot.data

    async def _read_on(self, last: Snapshot, start: int, end: int | None) -> Snapshot:
        try:
            return await self._run.call(self._store.read, self._key, start, end, when=last.version)
        except ConflictError:
            snapshot = await self._run.call(self._store.read, self._key, start, end)
            at, mark = self._mark
            again = await self._run.call(self._store.read, self._key, at, at + len(mark))
            if again.data != mark or snapshot.size < last.size:
                raise ConflictError(f"{self._key.path!r}: the file was rewritten while it was read") from None
            return snapshot
