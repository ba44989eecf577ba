"""`Journal`: one writer's records, chained and in order, safe for threads and for signal handlers.

Only a thread that the journal started changes the chain, unless no thread can be started any more. Python runs signal
handlers in the main thread, so they cannot interrupt that thread. A caller puts its record into a deque and waits for
the answer without holding a lock: a signal handler that adds a record does not wait for the code that it interrupted.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from agent_memory.audit.log import Log, LogBatch
from agent_memory.audit.record import START, encode, head
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import AgentMemoryError, AppendError, OutcomeUnknownError
from agent_memory.runtime.fork import renewed_in_child

MOST_WAITING: Final = 10_000
"""The most unwritten records; further ones are refused, and a later record states how many were refused."""
Facts = Callable[[], Mapping[str, object]]
_log = logging.getLogger("agent_memory")


class Position(NamedTuple):
    """The last written record of a writer's chain."""

    writer: str
    seq: int
    hash: str


class JournalEntry(Uncopied):
    """One record to be written by a journal; an entry that is added twice is written once.

    Args:
        event: the kind of record.
        seconds: the POSIX time of the record.
        facts: returns the fields of the record; called by the journal's thread.
        more: returns further fields; if it fails, the record is written without them and the caller gets the error.

    Attributes:
        error: the reason why the record, or a part of it, is not written yet.
        is_awaited: whether a caller waits for the record and will get the error.
        is_answered: whether the caller may continue.
    """

    __slots__ = ("_answer", "error", "event", "facts", "is_answered", "is_awaited", "is_chained", "more", "seconds")

    def __init__(self, event: str, seconds: float, facts: Facts, more: Facts | None = None) -> None:
        self.event = event
        self.seconds = seconds
        self.facts = facts
        self.more = more
        self.is_chained = False
        self.is_awaited = False
        self.is_answered = False
        self.error: BaseException | None = None
        self._answer = allocate_lock()
        self._answer.acquire()

    def answer(self, error: BaseException | None) -> None:
        """Let the caller continue; the journal's thread calls it once or more."""
        if not self.is_answered:
            self.error = self.error or error
            self.is_answered = True
            self._answer.release()

    def wait(self) -> None:
        """Wait for the answer and raise its error; an interrupted caller may wait again."""
        if not self.is_answered:
            self._answer.acquire()
        if self.error is not None:
            raise self.error


class Journal(Uncopied):
    """Chains records and writes all waiting ones together, so that many threads share one write.

    After a fork the child is a new writer; only the parent writes the records that waited in it.

    Args:
        log: the log to write.
        key: the key of keyed hashes; None for plain ones.
        written_late: called by the background thread after it wrote records for which no caller waits.

    Attributes:
        written: the last written record; None before the first write.
        identity: the identity of the log; empty before the first write.
    """

    def __init__(self, log: Log, key: bytes | None = None, written_late: Callable[[], object] = lambda: None) -> None:
        self._log = log
        self._key = key
        self._written_late = written_late
        self._is_closed = False
        self._begin()
        _journals.add(self)

    def _begin(self) -> None:
        self._inbox: deque[JournalEntry] = deque()
        self._refused: list[None] = []  # one element per refused record: `append` is atomic, a counter is not
        self._writing = allocate_lock()  # held by the thread that writes
        self._late = allocate_lock()  # held by the thread that waits before it writes
        self._chain = Position(secrets.token_hex(8), 0, START)
        self._lines: list[bytes] = []
        self._unwritten: LogBatch | None = None
        self._end = self._chain
        self._settled = 0
        self._latest = 0.0
        self.identity = ""
        self.written: Position | None = None

    @property
    def waiting(self) -> int:
        """The number of records that are not written yet."""
        return len(self._inbox) + self._chain.seq - self._settled

    def add(self, entry: JournalEntry) -> None:
        """Queue one record for the next `settle`, `flush` or `write_within`.

        Raises:
            AppendError: `MOST_WAITING` records are not written yet.
        """
        if self.waiting >= MOST_WAITING:
            self._refused.append(None)
            raise AppendError(f"the audit log already has {MOST_WAITING:,} unwritten records; the record was dropped")
        self._inbox.append(entry)

    def settle(self, entry: JournalEntry) -> None:
        """Wait until a record is written; raises the errors of the log's backend and of the record's facts."""
        entry.is_awaited = True
        if sys.is_finalizing():
            self._serve()  # other threads no longer run
            entry.answer(AppendError("the interpreter ended while another thread wrote the audit log"))
        elif not self._writing.locked():  # else the thread that holds the lock checks again after releasing it
            self._start(self._serve)
        entry.wait()

    def flush(self) -> None:
        """Write all waiting records; if there are none, nothing is written and no log is created."""
        if not (self.waiting or self._refused):
            return
        mark = JournalEntry("", 0, dict)
        self._inbox.append(mark)
        self.settle(mark)

    def write_within(self, seconds: float) -> None:
        """Have the waiting records written within this many seconds; a failed write is retried after as many."""
        if not (self._late.locked() or self._is_closed):
            self._start(self._serve_late, seconds)

    def close(self) -> None:
        """Stop retrying failed writes."""
        self._is_closed = True

    def _start(self, work: Callable[..., object], *args: float) -> None:
        try:
            start_new_thread(work, args)
        except RuntimeError:  # the interpreter is about to end, or the process is at its limit of threads
            self._serve()

    def _serve_late(self, seconds: float) -> None:
        if not self._late.acquire(blocking=False):
            return
        try:
            time.sleep(seconds)
        finally:
            self._late.release()
        error = self._serve()
        try:
            if error is None:
                self._written_late()
        except BaseException as failure:  # noqa: BLE001 - no caller waits for it
            error = failure
        if error is not None:
            _log.error(
                "audit records, or their checkpoint, could not be written; they are kept and will be retried",
                exc_info=error,
            )
            self.write_within(seconds)

    def _serve(self) -> BaseException | None:
        """Write all waiting records, unless another thread does; that thread checks again after releasing the lock."""
        error: BaseException | None = None
        while self._unanswered() if error else self._inbox or self._lines or self._unwritten:
            if not self._writing.acquire(blocking=False):
                return None
            try:
                error = self._work()
            finally:
                self._writing.release()
        return error

    def _unanswered(self) -> bool:
        return any(not entry.is_answered for entry in list(self._inbox))

    def _work(self) -> BaseException | None:
        entries: list[JournalEntry] = []
        error: BaseException | None = None
        try:
            self.identity = self.identity or self._log.identity()
            self._chain_all(entries)
            self._write()
        except BaseException as failure:  # noqa: BLE001 - the callers get the error
            error = failure
            entries = entries or list(self._inbox)  # the next attempt chains them
        unheard = [
            entry.error for entry in entries if entry.error is not None and not (entry.is_awaited or entry.is_answered)
        ]
        for entry in entries:
            entry.answer(error)
        for each in unheard:
            _log.error("an audit record, or a part of it, could not be written", exc_info=each)
        return error

    def _chain_all(self, entries: list[JournalEntry]) -> None:
        for _ in range(len(self._inbox)):
            entry = self._inbox[0]
            entries.append(entry)
            try:
                if entry.event and not entry.is_chained:
                    self._chain_entry(entry)
            except Exception as failure:  # noqa: BLE001 - the caller gets the error; other records are still written
                entry.error = failure
            finally:
                self._inbox.popleft()  # not earlier, so that `waiting` always counts the entry
        if refused := len(self._refused):
            del self._refused[:refused]
            self._chain_one("lost", time.time(), {"records": refused})

    def _chain_entry(self, entry: JournalEntry) -> None:
        facts = dict(entry.facts())
        if entry.more:
            try:
                facts |= entry.more()
            except Exception as failure:  # noqa: BLE001 - the caller gets the error; the record has its other facts
                entry.error = failure
        self._chain_one(entry.event, entry.seconds, facts)
        entry.is_chained = True

    def _chain_one(self, event: str, seconds: float, facts: Mapping[str, object]) -> None:
        if self._log.turned() or self._chain.seq == 0:
            facts_of_log = {"log": self.identity, **self._seen()}
            self._link("segment" if self._chain.seq else "begin", time.time(), facts_of_log)
        self._link(event, seconds, facts)

    def _link(self, event: str, seconds: float, facts: Mapping[str, object]) -> None:
        writer, seq, prev = self._chain
        line, digest = encode(writer, seq + 1, prev, event, seconds, facts, self._key)
        self._chain = Position(writer, seq + 1, digest)
        self._lines.append(line)

    def _seen(self) -> dict[str, object]:
        """The last record of the log, of any writer: removing it unnoticed would need a change of this record too."""
        try:
            line = self._log.last()
        except AgentMemoryError:
            return {}  # the write will fail too, and report the error
        last = head(line) if line else None
        return {"seen": [last.writer, last.seq, last.hash]} if last else {}

    def _write(self) -> None:
        while self._unwritten or self._lines:
            batch = self._unwritten = self._unwritten or self._batch()
            try:
                self._log.append(batch)
            except BaseException as error:
                batch.doubtful |= isinstance(error, OutcomeUnknownError) or not isinstance(error, AgentMemoryError)
                raise
            self._unwritten = None
            self.written, self._settled = self._end, self._end.seq

    def _batch(self) -> LogBatch:
        lines, self._lines = self._lines, []
        first = self._chain.seq - len(lines) + 1
        self._latest = max(self._latest, time.time())  # keep the order of the chain if the clock is set back
        self._end = self._chain
        return LogBatch(self._latest, self._chain.writer, first, b"".join(lines))


_journals = renewed_in_child(Journal._begin)
