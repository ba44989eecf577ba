"""`Statistics`: what the operations of a service did, as numbers; counted with and without plugins."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agent_memory.backend.helpers import Uncopied
from agent_memory.core.flows import Effect
from agent_memory.hookspecs import WRITING, OperationKind, Outcome
from agent_memory.runtime.fork import renewed_in_child

Status: TypeAlias = Literal["ok", "denied", "error", "unknown"]
MOST_PENDING: Final = 256
"""The number of operations that are counted together."""


@dataclass(frozen=True, slots=True)
class OperationStatistics:
    """The numbers of the operations of one kind that ended with one status.

    Attributes:
        kind: the kind, as of `agent_memory.Operation`.
        status: the status, as of `agent_memory.Outcome`.
        count: the number of operations.
        bytes_written: the bytes of content that they wrote, after the filters of plugins.
        conflicts: how often another writer was faster, also if a later attempt succeeded.
        seconds: how long their callers waited, in all.
        storage_seconds: the part of it for the storage.
    """

    kind: OperationKind
    status: Status
    count: int
    bytes_written: int
    conflicts: int
    seconds: float
    storage_seconds: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The numbers of a service since it was opened; after a fork, of its process only.

    Attributes:
        operations: one item for each kind and status that occurred, in this order; refusals have the status "denied".
        refused_names: the number of names that were refused, which begins no operation.
    """

    operations: tuple[OperationStatistics, ...]
    refused_names: int


Ended: TypeAlias = tuple[OperationKind, Status, int, int, float, float]
"""One operation that ended: the values of `OperationStatistics` without the count, in its order."""


class Tally(Uncopied):
    """Counts operations, in any thread and in signal handlers, also if a signal handler raises.

    Attributes:
        pending: the operations, and an item None for each refused name, that `fold` has not counted. An append is one
            step, which no thread and no signal handler can divide.
    """

    def __init__(self) -> None:
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Begin at zero: the child of a fork did not do what its parent did."""
        self.pending: deque[Ended | None] = deque()
        self._lock = threading.RLock()
        self._is_folding = False
        self._rows: dict[tuple[OperationKind, Status], _Count] = {}
        self._refused_names = 0

    def fold(self) -> None:
        """Count the pending operations."""
        with self._lock:
            if self._is_folding:
                return  # this is a signal handler that interrupted this function in the same thread
            self._is_folding = True
            try:
                for _ in range(len(self.pending)):
                    self._count_first()
            finally:
                self._is_folding = False

    def _count_first(self) -> None:
        if (ended := self.pending[0]) is None:
            del self.pending[0]
            self._refused_names += 1
            return
        kind, status, written, conflicts, seconds, storage_seconds = ended
        key = kind, status
        if key not in self._rows:
            self._rows[key] = _Count()
        row = self._rows[key]
        del self.pending[0]  # from here on there is no call, after which a signal handler could raise
        row.count += 1
        row.bytes_written += written
        row.conflicts += conflicts
        row.seconds += seconds
        row.storage_seconds += storage_seconds

    def statistics(self) -> Statistics:
        """Return the numbers."""
        with self._lock:
            self.fold()
            rows = sorted(self._rows.items(), key=lambda item: item[0])
            found = (
                OperationStatistics(*key, row.count, row.bytes_written, row.conflicts, row.seconds, row.storage_seconds)
                for key, row in rows
            )
            return Statistics(tuple(found), self._refused_names)


class _Count:
    """The numbers of one kind and status."""

    __slots__ = ("bytes_written", "conflicts", "count", "seconds", "storage_seconds")

    def __init__(self) -> None:
        self.count = self.bytes_written = self.conflicts = 0
        self.seconds = self.storage_seconds = 0.0


_all = renewed_in_child(Tally.forget)


def bytes_written(kind: OperationKind, given: int | None, result: Effect | Outcome) -> int | None:
    """The bytes of content that a successful operation wrote; None for another operation.

    Args:
        kind: the kind of the operation.
        given: the bytes that the caller gave.
        result: its result, or its outcome.
    """
    if kind not in WRITING or result.size is None or result.replayed:
        return None
    if kind == "append":
        return given
    if kind == "edit" and result.sha256 == result.before_sha256:
        return None  # it changed nothing
    return result.size


def conflicts_of(attempts: int, error: str | None) -> int:
    """The number of times that another writer was faster: each but the last attempt, and that one if it failed so."""
    return attempts - 1 + (error == "conflict")
