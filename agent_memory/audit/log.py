"""The storage of the audit log: a sequence of files on disk, or one object per batch over a network.

All reads and writes go through a backend, never through hooks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from agent_memory.audit.location import LogLocation, LogPosition
from agent_memory.audit.record import head
from agent_memory.backend import ABSENT, BlockingBackend
from agent_memory.core import flows
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory.key import Key

MAX_BYTES: Final = 64_000_000
"""The size in bytes at which a writer goes on to the next segment."""
_TAIL: Final = 64 * 1024


@dataclass
class LogBatch:
    """Lines of one writer, to be written together; the first record has the number ``seq``.

    ``doubtful``: an earlier attempt may have written them. ``key``: the segment that the log chose for them, or None.
    ``nonce``: tells the batch from one of a process that was restored from an image of this one.
    """

    seconds: float
    writer: str
    seq: int
    data: bytes
    doubtful: bool = False
    key: Key | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))


class Log(Protocol):
    """The interface through which a journal writes."""

    def turned(self) -> bool:
        """Whether the next write begins a segment; returns True once per segment."""
        ...

    def last(self) -> bytes | None:
        """The last whole record before the next write, or None if finding it would be expensive."""
        ...

    def append(self, batch: LogBatch) -> None:
        """Write a batch with the durability of the backend; skip a doubtful batch that is already in the log."""
        ...

    def identity(self) -> str:
        """The unique random identity of this log; the first writer creates it."""
        ...


class SegmentedLog:
    """A log to which any number of writers append lines in place; past ``max_bytes`` a writer starts the next segment.

    A writer never returns to an earlier segment, even if the clock is set back. The record that it names as seen is
    never in a later segment than its own.
    """

    def __init__(self, location: LogLocation, max_bytes: int = MAX_BYTES) -> None:
        self._location = location
        self._max_bytes = max_bytes
        self._base: str | None = None
        self._least = 0
        self._key: Key | None = None  # of the current segment; None until it is looked up
        self._number = 0
        self._full = False

    def identity(self) -> str:
        return self._location.make_identity()

    def turned(self) -> bool:
        base = "" if self._location.name is not None else max(_day(), self._base or "")
        if base == self._base and not self._full:
            return False
        self._least = 0 if base != self._base or self._key is None else self._number + 1
        self._base, self._key, self._full = base, None, False
        return True

    def last(self) -> bytes | None:
        parts = self._location.parts()
        self._chosen(parts)
        own = LogPosition(self._base or "", self._number)
        for key in reversed(parts):
            if (self._location.place(key) or own) <= own:
                for line in reversed(self._tail(key).split(b"\n")):
                    if (found := head(line)) and (found.whole or found.keyed):
                        return line
        return None

    def append(self, batch: LogBatch) -> None:
        self._location.permit_write()
        key = batch.key = batch.key or self._key or self._chosen(self._location.parts())
        if batch.doubtful and batch.data in self._tail(key, len(batch.data) + _TAIL):
            return
        done = self._location.store.run(flows.append, key, batch.data, separator=b"\n")
        self._full = (done.size or 0) >= self._max_bytes

    def _chosen(self, parts: Iterable[Key]) -> Key:
        """Choose the segment to write: the newest of its day, but never one that this writer found full."""
        places = map(self._location.place, parts)
        newest = max((place.number for place in places if place and place.base == self._base), default=0)
        self._number = max(self._least, newest)
        if self._number == newest and self._is_full(newest):
            self._number += 1  # processes that write little would otherwise never go on to the next segment
        self._key = self._location.segment(self._base or "", self._number)
        return self._key

    def _is_full(self, number: int) -> bool:
        try:
            return self._location.store.stat(self._location.segment(self._base or "", number)).size >= self._max_bytes
        except AgentMemoryFileNotFoundError:
            return False

    def _tail(self, key: Key, size: int = _TAIL) -> bytes:
        try:
            return self._location.store.read(key, -size).data
        except AgentMemoryFileNotFoundError:
            return b""


class BatchedLog:
    """A log in which each batch is an object of its own, never changed, with a name that sorts by time."""

    def __init__(self, location: LogLocation) -> None:
        self._location = location
        self._begun = False

    def identity(self) -> str:
        return self._location.make_identity()

    def turned(self) -> bool:
        begun, self._begun = self._begun, True
        return not begun

    def last(self) -> bytes | None:
        return None

    def append(self, batch: LogBatch) -> None:
        self._location.permit_write()
        moment = datetime.fromtimestamp(batch.seconds, UTC)
        name = f"{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{batch.writer}-{batch.seq:012d}-{batch.nonce}.jsonl"
        key = self._location.directory.join(name)
        try:
            self._location.store.run(flows.write, key, batch.data, ABSENT)
        except FileAlreadyExistsError:
            if not batch.doubtful:
                raise


def open_log(location: LogLocation, max_bytes: int = MAX_BYTES) -> Log:
    """Open a log for writing: appended in place on a blocking backend, else one object per batch."""
    if isinstance(location.store.backend, BlockingBackend):
        return SegmentedLog(location, max_bytes)
    return BatchedLog(location)


def _day() -> str:
    return f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d}"
