"""`Journal`: one writer's records, chained and in order, however many threads make them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent_memory._fork import renewed_in_child
from agent_memory._uncopied import Uncopied
from agent_memory.audit.log import Batch, Log
from agent_memory.audit.record import START, encode, head
from agent_memory.errors import AgentMemoryError, AppendError, OutcomeUnknownError

MOST_WAITING: Final = 10_000
"""Records that wait to be written; more are refused, and counted by a record once there is room."""


class Position(NamedTuple):
    """How far a writer's chain is written."""

    writer: str
    seq: int
    hash: str


class Journal(Uncopied):
    """Chains records and writes them, all that wait at once, so that many threads share one write.

    After a fork the child is another writer; what the parent has not written yet is the parent's to write.

    Args:
        log: where to.
        key: makes the hashes keyed.

    Attributes:
        written: how far the chain is written; None before the first write.
    """

    def __init__(self, log: Log, key: bytes | None = None) -> None:
        self._log = log
        self._key = key
        self._begin()
        _journals.add(self)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._turn = threading.Lock()
        self._chain = Position(secrets.token_hex(8), 0, START)
        self._waiting: list[bytes] = []
        self._unwritten: Batch | None = None
        self._settled = 0
        self._lost = 0
        self._latest = 0.0
        self.written: Position | None = None

    @property
    def waiting(self) -> int:
        """How many records are not written yet."""
        return self._chain.seq - self._settled

    def add(self, event: str, seconds: float, facts: Mapping[str, object]) -> int:
        """Chain one more record, to be written later; returns its number in the chain.

        Raises:
            AppendError: `MOST_WAITING` records could not be written yet.
        """
        with self._guard:
            if len(self._waiting) >= MOST_WAITING:
                self._lost += 1
                raise AppendError("the audit log takes no more: too many records wait to be written")
            if self._log.turned() or self._chain.seq == 0:
                self._chain_one("segment" if self._chain.seq else "begin", time.time(), self._seen())
            if self._lost:
                self._chain_one("lost", time.time(), {"records": self._lost})
                self._lost = 0
            return self._chain_one(event, seconds, facts)

    def settle(self, number: int) -> None:
        """Wait until a record is written, by this thread or another; errors are those of the log's backend."""
        if self._settled >= number:
            return
        with self._turn:
            while self._settled < number:
                self._write()

    def flush(self) -> None:
        """Write all that waits."""
        self.settle(self._chain.seq)

    def _chain_one(self, event: str, seconds: float, facts: Mapping[str, object]) -> int:
        writer, seq, prev = self._chain
        line, digest = encode(writer, seq + 1, prev, event, seconds, facts, self._key)
        self._chain = Position(writer, seq + 1, digest)
        self._waiting.append(line)
        return seq + 1

    def _seen(self) -> dict[str, object]:
        """The last record there is, of whichever writer: whoever removes it would have to change this one."""
        try:
            line = self._log.last()
        except AgentMemoryError:
            return {}  # to write will fail too, and say so
        last = head(line) if line else None
        return {"seen": [last.writer, last.seq, last.hash]} if last else {}

    def _write(self) -> None:
        with self._guard:
            if self._unwritten is None:
                lines, self._waiting = self._waiting, []
                first = self._chain.seq - len(lines) + 1
                self._latest = max(self._latest, time.time())  # the order of a chain outlives a clock set back
                self._unwritten = Batch(self._latest, self._chain.writer, first, b"".join(lines))
                self._end = self._chain
            batch, end = self._unwritten, self._end
        try:
            self._log.append(batch)
        except OutcomeUnknownError:
            batch.doubtful = True
            raise
        self._unwritten = None
        self.written, self._settled = end, end.seq


_journals = renewed_in_child(Journal._begin)
