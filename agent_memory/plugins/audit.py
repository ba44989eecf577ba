"""The audit plugin: one chained JSON line in ASCII per operation and refusal, written without hooks.

A record has the time, actor, agent, operation, path, sizes, digests, outcome and duration, and never content. Below the
root of a URL, no path that an agent can name reaches the log; the caller must put a log in a file outside the trees.
`agent_memory.audit` defines the format and verifies it.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from multiprocessing.util import Finalize, register_after_fork
from typing import Final, TypeAlias

from agent_memory.audit import LogLocation, Record, log_at, records
from agent_memory.audit.journal import Journal, JournalEntry, Position
from agent_memory.audit.log import MAX_BYTES, open_log
from agent_memory.audit.names import PATHS_OPTIONS, AgentNames, PathsOption, Spellings, with_digests
from agent_memory.audit.salts import Salts
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import AgentMemoryError, AppendError, OperationDenied
from agent_memory.hookspecs import READING, Operation, Outcome, Plugin, hookimpl
from agent_memory.key import is_agent_id, is_at_or_below
from agent_memory.plugins._checking import require_whole
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.checkpoints import AuditCheckpoint, CheckpointFile
from agent_memory.runtime.fork import renewed_in_child

FLUSH_SECONDS: Final = 2.0
"""The longest time in seconds that a record which is not required waits for further records."""
CHECKPOINT_SECONDS: Final = 3600.0
"""The longest time in seconds that a written record waits for a checkpoint."""
MOST_AT_ONCE: Final = 1000
"""The number of waiting records at which the caller that adds one writes them all."""
_LEAST_KEY = 16
_log = logging.getLogger("agent_memory")
_MOST_CHARACTERS = 256
_NAMES = (str, os.PathLike)
Receiver: TypeAlias = Callable[[AuditCheckpoint], object]
"""Gets each checkpoint; its result is not used."""
_sending: ContextVar[tuple[AuditPlugin, ...]] = ContextVar("agent_memory_sending_checkpoints", default=())


class AuditPlugin(Plugin, Uncopied):
    """Writes a record to ``target`` for each operation and each refused name.

    With ``required`` a record has the durability of the log's backend before the audited call returns; threads share
    writes. Otherwise records are written together: after `FLUSH_SECONDS`, when `MOST_AT_ONCE` are waiting, when a
    service with this plugin is closed, by `close`, and at exit. On a disk they are lines of one file; over a network
    each write creates one object.

    Args:
        target: a file, whose name must follow the key grammar; or a backend URL, below whose root the log is
            ``.agent-memory/audit/YYYY-MM-DD.jsonl``, or on S3 ``.agent-memory/audit/YYYY-MM-DD/*.jsonl``; or a
            result of `agent_memory.audit.log_at`.
        required: whether a call waits for its record and raises `OutcomeUnknownError` if it could not be written;
            otherwise such an error is logged.
        intent: whether to write a record before the operation too, so that the log shows operations interrupted by
            a crash. With ``required``, an operation whose intent cannot be written does not happen.
        key: at least 16 bytes; the hashes are HMAC-SHA-256 with it, so a process without this key cannot forge records.
        max_segment_bytes: the size at which the next file begins, ``audit.1.jsonl``.
        checkpoints: the receiver of the checkpoints: a file for `agent_memory.plugins.checkpoints.CheckpointFile`, with
            the same ``required``, or a function, whose exception is an error of this plugin. A
            `CheckpointFile` is closed with this plugin.
        checkpoint_every: the number of records between two checkpoints. One is also sent after the first record,
            after `CHECKPOINT_SECONDS`, and at the end.
        storage_options: options of the URL's backend.
        paths: "names", or "digest": records name agents and paths by digests, which nobody can test against a name
            after a forget of the agent has destroyed its salt.

    Raises:
        ValueError: the key is too short, a number is not positive, ``paths`` is another text, or the target is a
            directory.
        TypeError: ``checkpoints`` is neither the name of a file nor a function.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | LogLocation,
        *,
        required: bool = False,
        intent: bool = False,
        key: bytes | None = None,
        max_segment_bytes: int = MAX_BYTES,
        checkpoints: str | os.PathLike[str] | Receiver | None = None,
        checkpoint_every: int = 1000,
        storage_options: Mapping[str, object] | None = None,
        paths: PathsOption = "names",
    ) -> None:
        if key is not None and (not isinstance(key, bytes) or len(key) < _LEAST_KEY):
            raise ValueError(f"the key of an audit log must be bytes, at least {_LEAST_KEY} of them")
        for name, number in (("max_segment_bytes", max_segment_bytes), ("checkpoint_every", checkpoint_every)):
            require_whole(name, number, least=1)
        for name, flag in (("required", required), ("intent", intent)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name} must be true or false, not {flag!r}")
        if paths not in PATHS_OPTIONS:
            raise ValueError(f"paths must be one of {', '.join(map(repr, PATHS_OPTIONS))}, not {paths!r}")
        if not (checkpoints is None or callable(checkpoints) or isinstance(checkpoints, _NAMES)):
            raise TypeError(f"checkpoints must be the name of a file or a function, not {checkpoints!r}")
        self.required = required
        self._intent = intent
        self._has_digests = paths == "digest"
        self._every = checkpoint_every
        self._location = target if isinstance(target, LogLocation) else log_at(target, storage_options)
        self._salts = Salts(self._location)
        self._journal = Journal(open_log(self._location, max_segment_bytes), key, self._send_late)
        self._receive: Receiver | None = (
            CheckpointFile(checkpoints, required=required) if isinstance(checkpoints, _NAMES) else checkpoints
        )
        self._sends = threading.RLock()  # reentrant: a signal handler may run an audited operation
        self._checkpointed: Position | None = None
        self._hour = threading.Lock()  # held by the thread that waits for the next hourly checkpoint
        self._ended = threading.Event()
        self._mine = threading.local()
        self._closed = False
        _open.add(self)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Record the intent, if it is wanted; refuse the operation if a required log is closed."""
        if self.required and self._closed:
            raise OperationDenied("the audit log is closed; nothing was done")
        if not self._intent:
            return
        try:
            self._record(JournalEntry("intent", operation.time, lambda: self._asked(operation)))
        except Exception:
            if self.required:
                raise
            _log.exception("an audit intent could not be written")

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Record the outcome once; after a forget or a redaction, first destroy the salt of the agent's digests."""
        mine = self._mine
        if getattr(mine, "id", None) != operation.id:  # else a signal ended the first call and this is the second
            mine.entry, mine.id = self._entry(operation, outcome), operation.id
        self._record(mine.entry)

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Record a refused name."""

        def facts() -> Mapping[str, object]:
            if not self._has_digests:
                return asked
            if reason == "agent-id" or not (agent is None or is_agent_id(agent)):
                return with_digests({**asked, "agent": None}, None)  # no forget would destroy the salt of a digest
            names = self._names(agent, began, failed)
            return {**with_digests(asked, names), **({"path": names.text(text)} if names else {})}

        def more() -> Mapping[str, object]:
            if failed:
                raise failed[0]
            return {}

        failed: list[AgentMemoryError] = []
        began, asked = time.time(), {"actor": _short(actor), "agent": agent, "path": text, "rule": reason}
        self._record(JournalEntry("refused", began, facts, more))

    def has_salt(self, agent: str | None, path: str = "") -> bool:
        """Whether the log has a salt of this agent, which a forget destroys, and changes of files at or below a path.

        With a ``path`` all records are read.
        """
        if self._salts.known_commitment(agent) is None:
            return False
        return not path or self._has_changed(Spellings(agent, self._salts.known_names(agent)), path)

    def _has_changed(self, spelled: Spellings, path: str) -> bool:
        """Whether the log has changes of an agent's files at or below a path."""
        names = spelled.of(path)
        return any(
            _is_made_below(each, names) for each in records(self._location) if each.get("agent") in spelled.agents
        )

    def writes_to(self, location: LogLocation) -> bool:
        """Whether a location is that of this log, as its identity says; False if it has no identity yet."""
        identity = location.identity()
        return identity is not None and self._location.identity() == identity

    def flush(self) -> None:
        """Write the waiting records; a service calls this when it is closed."""
        if self._closed:
            return
        self._journal.flush()
        self._send_checkpoint(self._every)

    def close(self) -> None:
        """Write the waiting records, send a last checkpoint, and close the target's backend.

        If an interrupt ends this call, the log stays open, and the records are written at exit at the latest.
        """
        if self._closed:
            return
        try:
            self.flush()
            self._closed = True
            self._send_checkpoint(1)
        except Exception:
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._ended.set()
        self._journal.close()
        _open.discard(self)
        self._location.store.close()
        if isinstance(self._receive, CheckpointFile):
            self._receive.close()

    def _begin_in_child(self) -> None:
        self._sends = threading.RLock()  # the child does not have the thread that may have held the old lock
        self._hour, self._ended = threading.Lock(), threading.Event()
        self._salts = Salts(self._location)

    def _entry(self, operation: Operation, outcome: Outcome) -> JournalEntry:
        failed: list[AgentMemoryError] = []

        def facts() -> dict[str, object]:
            salt = {"salt": "kept"} if forgotten else {}
            return {**self._asked(operation, failed), **_happened(outcome), **salt}

        def more() -> dict[str, object]:
            if forgotten:
                return self._destroyed(operation, outcome)
            if failed:
                raise failed[0]
            return self._digests(operation, outcome)

        forgotten = operation.kind in ("forget", "redact") and outcome.status == "ok"
        return JournalEntry("operation", operation.time, facts, more)

    def _asked(self, operation: Operation, failed: list[AgentMemoryError] | None = None) -> dict[str, object]:
        """The request; with ``failed`` an error of the salt is added to it, and the record has no names."""
        asked = _asked(operation)
        if not self._has_digests:
            return asked
        return with_digests(asked, self._names(operation.agent, operation.time, failed))

    def _names(self, agent: str | None, began: float, failed: list[AgentMemoryError] | None) -> AgentNames | None:
        """The digests of an agent; None after an error of its salt, which is added to ``failed`` or raised."""
        try:
            return self._salts.names(agent, began)
        except AgentMemoryError as error:
            if failed is None:
                raise
            failed.append(error)
            return None

    def _destroyed(self, operation: Operation, outcome: Outcome) -> dict[str, object]:
        """Destroy the salt of an agent; the digest under its next salt is a fact, if the agent keeps other files.

        A record with digests names the agent as under the destroyed salt, which another process may have made.
        """
        agent, ended = operation.agent, operation.time + outcome.duration
        before: AgentNames | None = None
        successor: AgentNames | None = None
        with suppress(AgentMemoryError):
            before = self._salts.known_names(agent)
        self._salts.destroy(agent, ended)
        if self._has_digests and (operation.kind == "redact" or operation.path):
            with suppress(AgentMemoryError):
                successor = self._salts.names(agent, math.inf)
        named = {"agent": before.digest} if before and agent is not None and self._has_digests else {}
        commitment = before and before.commitment
        return {**named, "salt": "destroyed", "commitment": commitment, "successor": successor and successor.digest}

    def _digests(self, operation: Operation, outcome: Outcome) -> dict[str, object]:
        found = {"digest": outcome.sha256, "before_digest": outcome.before_sha256}
        agent, began = operation.agent, operation.time
        digests: dict[str, object] = {
            name: self._salts.digest(agent, sha256, began) for name, sha256 in found.items() if sha256
        }
        return {**digests, "commitment": self._salts.take_commitment(agent)}

    def _record(self, entry: JournalEntry) -> None:
        if self._closed:
            raise AppendError("the audit log is closed: the operation is not recorded")
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
        """Send a checkpoint after the first record, or if ``least`` records were written since the last one."""
        if self._receive is None or self in _sending.get():
            return  # no receiver, or the receiver runs an audited operation
        unsent = self._unsent()
        if unsent >= least or (unsent and self._is_first()):
            with self._sends:
                unsent = self._unsent()  # another thread may have sent one while this one waited for the lock
                if unsent >= least or (unsent and self._is_first()):
                    copy_context().run(self._send)  # in a copy, so that an interrupt cannot leave `_sending` set
        elif unsent and not self._hour.locked() and not self._closed:
            with suppress(RuntimeError):  # the interpreter ends, or the process is at its limit of threads
                start_new_thread(self._send_hourly, ())

    def _send_hourly(self) -> None:
        """Send a checkpoint after `CHECKPOINT_SECONDS`, unless the log is closed earlier."""
        if self._hour.acquire(blocking=False):
            try:
                if not self._ended.wait(CHECKPOINT_SECONDS):
                    self._send_checkpoint(1)
            except Exception:  # noqa: BLE001 - no caller waits for it
                _log.exception("an hourly checkpoint could not be sent")
            finally:
                self._hour.release()

    def _is_first(self) -> bool:
        """Whether this writer has sent no checkpoint yet."""
        position, last = self._journal.written, self._checkpointed
        return position is not None and (last is None or last.writer != position.writer)

    def _unsent(self) -> int:
        """The number of records written since the last checkpoint."""
        position, last = self._journal.written, self._checkpointed
        if position is None:
            return 0
        return position.seq - (last.seq if last and last.writer == position.writer else 0)

    def _send(self) -> None:
        position = self._journal.written
        if position is None or self._receive is None:
            return
        _sending.set((*_sending.get(), self))
        self._receive(AuditCheckpoint(time.time(), *position, self._journal.identity))
        self._checkpointed = position


def from_configuration(
    target: str,
    *,
    key_file: str | None = None,
    required: bool = False,
    intent: bool = False,
    max_segment_bytes: int = MAX_BYTES,
    checkpoints: str | Receiver | None = None,
    checkpoint_every: int = 1000,
    storage_options: Mapping[str, object] | None = None,
    paths: PathsOption = "names",
) -> AuditPlugin:
    """Make the plugin from a configuration: ``key_file`` is a file whose bytes are the key.

    Raises:
        ValueError: the file cannot be read, or as `AuditPlugin`.
    """
    try:
        key = None if key_file is None else read_host_file(key_file)
    except OSError as error:
        raise ValueError(f"key_file cannot be read: {error.strerror}") from None
    return AuditPlugin(
        target,
        required=required,
        intent=intent,
        key=key,
        max_segment_bytes=max_segment_bytes,
        checkpoints=checkpoints,
        checkpoint_every=checkpoint_every,
        storage_options=storage_options,
        paths=paths,
    )


@atexit.register
def _flush_all() -> None:
    for audit in list(_open):
        if audit._journal.waiting:
            try:
                audit.flush()
            except Exception:  # noqa: BLE001 - at exit no caller is left to get the error
                _log.exception("audit records could not be written")


def _flush_at_the_end(_: object) -> None:
    Finalize(None, _flush_all, exitpriority=1)


_open = renewed_in_child(AuditPlugin._begin_in_child)
register_after_fork(_open, _flush_at_the_end)  # a child forked by multiprocessing ends without `atexit`
_flush_at_the_end(None)  # the same for a child that imports this module itself


def _is_made_below(record: Record, directories: Collection[str]) -> bool:
    """Whether a record tells of a change of files at or below one of the spellings of a path."""
    names = [record[end] for end in ("path", "target") if end in record]
    return (
        record.get("outcome") == "ok"
        and record.get("operation") not in READING
        and any(is_at_or_below(name, directory) for name in names for directory in directories)
    )


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
    """Shorten a text that the caller chose, so that the line of a record has a bounded length."""
    return text if text is None or len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _happened(outcome: Outcome) -> dict[str, object]:
    return {
        "outcome": outcome.status,
        "error": outcome.error,
        "size": outcome.size,
        "files": outcome.files,
        "skipped": outcome.skipped or None,
        "attempts": outcome.attempts if outcome.attempts > 1 else None,
        "replayed": outcome.replayed or None,
        "version": outcome.version_id,
        "versions_searched": None if outcome.versions_searched else False,
        "duration": round(outcome.duration, 6),
    }
