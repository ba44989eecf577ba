"""Who did what: one chained JSON line per operation and refusal, in ASCII, through a backend and never through hooks.

A record tells time, actor, agent, operation, path, sizes, digests, outcome and duration; it never holds
content. Below a URL's root the log lies where no path an agent can name reaches it; a log in a file is the
caller's to put outside the trees. `agent_memory.audit` has the format, and verifies it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from typing import Final

from agent_memory.audit import Journal, JournalEntry, LogLocation, Position, Salts, log_at, open_log
from agent_memory.audit.log import MAX_BYTES
from agent_memory.backend import Uncopied
from agent_memory.errors import AppendError
from agent_memory.hookspecs import AuditCheckpoint, Operation, Outcome, Plugin, hookimpl
from agent_memory.plugins._checking import require_whole
from agent_memory.runtime.fork import renewed_in_child

FLUSH_SECONDS: Final = 2.0
"""How long a record that is not required may wait for others."""
MOST_AT_ONCE: Final = 1000
"""How many such records may wait, before whoever makes the next one writes them."""
_LEAST_KEY = 16
_log = logging.getLogger("agent_memory")
_MOST_CHARACTERS = 256
_sending: ContextVar[tuple[AuditPlugin, ...]] = ContextVar("agent_memory_sending_checkpoints", default=())


class AuditPlugin(Plugin, Uncopied):
    """Writes a record to ``target`` for each operation and each refused name.

    With ``required`` a record is durable, to the level of the log's backend, before the audited call returns; threads
    share writes. Otherwise records are written together, after `FLUSH_SECONDS` or `MOST_AT_ONCE` of them, and at the
    latest when a service with this plugin is closed, by `close` or at exit. On a disk they are lines of one file; over
    a network each write is an object.

    Args:
        target: a file, named as the key grammar allows, or a backend URL, below whose root the log is
            ``.agent-memory/audit/YYYY-MM-DD.jsonl``, or on S3 ``.agent-memory/audit/YYYY-MM-DD/*.jsonl``; or where
            `agent_memory.audit.log_at` says it is.
        required: whether a call waits for its record, and is told by `OutcomeUnknownError` if it could not be
            written; otherwise that is logged.
        intent: whether to write a record before the operation too, so that after a crash the log shows what
            was begun. With ``required`` an operation whose intent cannot be written does not happen.
        key: at least 16 bytes that make the hashes keyed (HMAC-SHA-256), so that nobody without it makes up records.
        max_segment_bytes: the size from which a file is followed by the next one, ``audit.1.jsonl``.
        checkpoint_every: how many records a checkpoint comes after, and one at the end; see
            `agent_memory.plugins.checkpoints`.
        storage_options: for a URL's backend.

    Raises:
        ValueError: a key that is too short, a number that is not positive, a target that is a directory.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | LogLocation,
        *,
        required: bool = False,
        intent: bool = False,
        key: bytes | None = None,
        max_segment_bytes: int = MAX_BYTES,
        checkpoint_every: int = 1000,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        if key is not None and (not isinstance(key, bytes) or len(key) < _LEAST_KEY):
            raise ValueError(f"the key of an audit log is at least {_LEAST_KEY} bytes")
        for name, number in (("max_segment_bytes", max_segment_bytes), ("checkpoint_every", checkpoint_every)):
            require_whole(name, number, least=1)
        for name, flag in (("required", required), ("intent", intent)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name} is true or false, not {flag!r}")
        self.required = required
        self._intent = intent
        self._every = checkpoint_every
        self._location = target if isinstance(target, LogLocation) else log_at(target, storage_options)
        self._salts = Salts(self._location)
        self._journal = Journal(open_log(self._location, max_segment_bytes), key, self._send_late)
        self._receivers: list[Callable[[AuditCheckpoint], None]] = []
        self._sends = threading.RLock()  # a signal's handler may do what is audited itself
        self._checkpointed: Position | None = None
        self._mine = threading.local()
        self._closed = False
        _open.add(self)

    def send_checkpoints_to(self, receiver: Callable[[AuditCheckpoint], None]) -> None:
        """Send each checkpoint to one more receiver."""
        self._receivers.append(receiver)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Record the intent, if it is wanted."""
        if not self._intent:
            return
        try:
            self._record(JournalEntry("intent", operation.time, lambda: _asked(operation)))
        except Exception:
            if self.required:
                raise
            _log.exception("an audit intent could not be written")

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Record what happened, once; when an agent's memory was forgotten, destroy the salt of its digests first."""
        mine = self._mine
        if getattr(mine, "id", None) != operation.id:  # else an interrupt ended the call, and the hook is called again
            mine.entry, mine.id = self._entry(operation, outcome), operation.id
        self._record(mine.entry)

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Record a refused name."""
        facts = {"actor": _short(actor), "agent": agent, "path": text, "rule": reason}
        self._record(JournalEntry("refused", time.time(), lambda: facts))

    def has_salt(self, agent: str | None) -> bool:
        """Whether the log has a salt of this agent, which to forget the agent destroys."""
        return self._salts.known_commitment(agent) is not None

    def flush(self) -> None:
        """Write what waits; a service that is closed calls it."""
        if self._closed:
            return
        self._journal.flush()
        self._send_checkpoint(self._every)

    def close(self) -> None:
        """Write what waits, send a last checkpoint, and release what the target's backend holds."""
        if self._closed:
            return
        try:
            self.flush()
            self._closed = True
            self._send_checkpoint(1)
        finally:
            self._closed = True
            self._journal.close()
            _open.discard(self)
            self._location.store.close()

    def _begin_in_child(self) -> None:
        self._sends = threading.RLock()  # the thread that held it is not in the child
        self._salts = Salts(self._location)

    def _entry(self, operation: Operation, outcome: Outcome) -> JournalEntry:
        def facts() -> dict[str, object]:
            salt = {"salt": "kept"} if forgotten else {}
            return {**_asked(operation), **_happened(outcome), **salt}

        def more() -> dict[str, object]:
            if not forgotten:
                return self._digests(operation, outcome)
            self._salts.destroy(operation.agent)
            return {"salt": "destroyed"}

        forgotten = operation.kind == "forget" and outcome.status == "ok"
        return JournalEntry("operation", operation.time, facts, more)

    def _digests(self, operation: Operation, outcome: Outcome) -> dict[str, object]:
        found = {"digest": outcome.sha256, "before_digest": outcome.before_sha256}
        agent, began = operation.agent, operation.time
        digests: dict[str, object] = {
            name: self._salts.digest(agent, sha256, began) for name, sha256 in found.items() if sha256
        }
        return {**digests, "commitment": self._salts.take_commitment(agent)}

    def _record(self, entry: JournalEntry) -> None:
        if self._closed:
            raise AppendError("the audit log is closed: nothing is recorded any more")
        self._journal.add(entry)
        if self.required or self._journal.waiting >= MOST_AT_ONCE:
            self._journal.settle(entry)
            self._send_checkpoint(self._every)
        else:
            self._journal.write_within(FLUSH_SECONDS)

    def _send_late(self) -> None:
        if not self._closed:
            self._send_checkpoint(self._every)

    def _send_checkpoint(self, least: int) -> None:
        """Send how far the chain is written, if that is so many records further than what was sent last."""
        if self in _sending.get():
            return  # a receiver does what is audited itself
        if self._unsent() >= least:
            with self._sends:
                if self._unsent() >= least:  # still, after the one who was sending
                    copy_context().run(self._send)  # an interrupt cannot leave `_sending` set behind

    def _unsent(self) -> int:
        """How many records are written that no checkpoint was sent for."""
        position, last = self._journal.written, self._checkpointed
        if position is None:
            return 0
        return position.seq - (last.seq if last and last.writer == position.writer else 0)

    def _send(self) -> None:
        position = self._journal.written
        if position is None:
            return
        _sending.set((*_sending.get(), self))
        checkpoint = AuditCheckpoint(time.time(), *position, self._journal.identity)
        for receive in self._receivers:
            receive(checkpoint)
        self._checkpointed = position


def from_configuration(
    target: str,
    *,
    key_file: str | None = None,
    required: bool = False,
    intent: bool = False,
    max_segment_bytes: int = MAX_BYTES,
    checkpoint_every: int = 1000,
    storage_options: Mapping[str, object] | None = None,
) -> AuditPlugin:
    """The plugin as a configuration has it: ``key_file`` is a file whose bytes are the key.

    Raises:
        ValueError: the file cannot be read; and as `AuditPlugin`.
    """
    try:
        key = None if key_file is None else Path(key_file).read_bytes()
    except OSError as error:
        raise ValueError(f"key_file cannot be read: {error.strerror}") from None
    return AuditPlugin(
        target,
        required=required,
        intent=intent,
        key=key,
        max_segment_bytes=max_segment_bytes,
        checkpoint_every=checkpoint_every,
        storage_options=storage_options,
    )


@atexit.register
def _flush_all() -> None:
    for audit in list(_open):
        if audit._journal.waiting:
            try:
                audit.flush()
            except Exception:  # noqa: BLE001 - nobody is left to be told otherwise
                _log.exception("audit records could not be written")


def _flush_at_the_end(_: object) -> None:
    Finalize(None, _flush_all, exitpriority=1)


_open = renewed_in_child(AuditPlugin._begin_in_child)
register_after_fork(_open, _flush_at_the_end)  # a child that multiprocessing forked ends without `atexit`
_flush_at_the_end(None)  # and so does one that imports this module itself


def _asked(operation: Operation) -> dict[str, object]:
    return {
        "id": operation.id,
        "actor": _short(operation.actor),
        "agent": operation.agent,
        "tool_call_id": _short(operation.tool_call_id),
        "operation": operation.kind,
        "path": operation.path,
        "target": operation.target,
        "given": operation.size,
    }


def _short(text: str | None) -> str | None:
    """What a caller says of itself, of bounded length: a record is a line that can be read at once."""
    return text if text is None or len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _happened(outcome: Outcome) -> dict[str, object]:
    return {
        "outcome": outcome.status,
        "error": outcome.error,
        "size": outcome.size,
        "files": outcome.files,
        "skipped": outcome.skipped or None,
        "attempts": outcome.attempts if outcome.attempts > 1 else None,
        "duration": round(outcome.duration, 6),
    }
