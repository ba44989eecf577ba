"""The audit log of the command line: every change is recorded in the store, unless ``--no-audit`` is given."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from agent_memory.audit import LogLocation
from agent_memory.cli.output import note
from agent_memory.errors import AgentMemoryError
from agent_memory.hookspecs import Operation, Outcome, hookimpl
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import CheckpointFile
from agent_memory.registry import open_backend

_NOT_RECORDED: Final = ("file_not_found", "file_operation", "read", "write", "append")
"""Kinds of errors after which nothing has changed: of a missing file, and of the storage, where a record fails too."""


def log_of_store(url: str, options: Mapping[str, object]) -> LogLocation:
    """The location of a store's own log; the caller closes its backend."""
    return LogLocation.below(open_backend(url, options))


class ChangeRecorder:
    """An observer that records changes and refused names in the store's own log. The first record opens the log.

    If the log is keyed or cannot be written, a note on stderr says so and the command continues: its change is made.
    ``checkpoints`` receives the checkpoints of the log.
    """

    required = True  # an interrupt during a record does not lose it: the observer is called once more

    def __init__(self, url: str, options: Mapping[str, object], checkpoints: CheckpointFile | None) -> None:
        self._url = url
        self._options = options
        self._checkpoints = checkpoints
        self._opening = threading.Lock()
        self._audit: AuditPlugin | None = None
        self._is_off = False

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Record a change."""
        if operation.changes and outcome.error not in _NOT_RECORDED and (audit := self._opened()):
            with _telling():
                audit.agent_memory_after_operation(operation, outcome)

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Record a refused name."""
        if audit := self._opened():
            with _telling():
                audit.agent_memory_key_rejected(agent, text, reason, actor)

    def close(self) -> None:
        """Write the queued records, and close the log; a second call does nothing."""
        audit, self._audit, self._is_off = self._audit, None, True
        if audit:
            with _telling():
                audit.close()

    def _opened(self) -> AuditPlugin | None:
        with self._opening:
            if not (self._audit or self._is_off):
                with _telling():
                    self._audit = self._made()
                self._is_off = self._audit is None
            return self._audit

    def _made(self) -> AuditPlugin | None:
        location = log_of_store(self._url, self._options)
        try:
            if location.is_keyed():
                note("not recorded: the audit log of this store is keyed; --config can enable it with its key")
                location.store.close()
                return None
            location.make_identity()  # if nothing can be written, fail here once, not at each record
        except BaseException:
            location.store.close()
            raise
        return AuditPlugin(location, checkpoints=self._checkpoints)


@contextmanager
def _telling() -> Iterator[None]:
    """Say on stderr that the log could not be written; the command goes on."""
    try:
        yield
    except AgentMemoryError as error:
        note(f"the audit log could not be written: {error}; --no-audit turns it off")
