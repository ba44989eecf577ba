"""Who did what: one JSON line per operation and per refusal, in ASCII, through a backend and never through hooks.

A record tells time, actor, agent, operation, path, sizes, digests, outcome and duration; it never holds
content. Below a URL's root the log lies where no path an agent can name reaches it; a log in a file is the
caller's to put outside the trees.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from agent_memory import flows
from agent_memory.backend import Backend
from agent_memory.hookspecs import Operation, Outcome, hookimpl
from agent_memory.key import Key
from agent_memory.registry import open_backend
from agent_memory.runners import close_backend, run_sync

_log = logging.getLogger("agent_memory")


class AuditPlugin:
    """Appends a JSON line to ``target`` for each operation and each refused name.

    The line is durable, to the level of the target's backend, before the audited call returns.

    Args:
        target: a file, named as the key grammar allows, or a backend URL, below whose root the log is
            ``.agent-memory/audit/YYYY-MM-DD.jsonl``.
        required: whether a caller is told, by `OutcomeUnknownError`, that a record could not be written;
            otherwise that is logged.
        intent: whether to write a line before the operation too, so that after a crash the log shows what
            was begun. With ``required`` an operation whose intent cannot be written does not happen.
        storage_options: for a URL's backend.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        required: bool = False,
        intent: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self.required = required
        self._intent = intent
        self._file: Key | None = None
        if not isinstance(target, str) or "://" not in target:
            path = Path(target).expanduser()
            self._file = Key.tree().join(path.name)
            target = path.parent
        self._backend = open_backend(target, storage_options)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Record the intent, if wanted."""
        if not self._intent:
            return
        try:
            self._append(operation.time, {"event": "intent", **_asked(operation)})
        except Exception:
            if self.required:
                raise
            _log.exception("an audit intent could not be written")

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Record what happened."""
        self._append(operation.time, {"event": "operation", **_asked(operation), **_happened(outcome)})

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Record a refused name."""
        facts = {"event": "refused", "actor": actor, "agent": agent, "path": text, "rule": reason}
        self._append(time.time(), facts)

    def close(self) -> None:
        """Release what the target's backend holds."""
        close_backend(self._backend)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, seconds: float, facts: Mapping[str, object]) -> None:
        moment = datetime.fromtimestamp(seconds, UTC)
        record = {"time": moment.isoformat(), **{name: fact for name, fact in facts.items() if fact is not None}}
        line = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        key = self._file or Key.internal(f"audit/{moment:%Y-%m-%d}.jsonl")
        store = cast(Backend, self._backend)
        run_sync(self._backend, lambda run: flows.append(store, run, key, line, separator=b"\n"))


def _asked(operation: Operation) -> dict[str, object]:
    return {
        "id": operation.id,
        "actor": operation.actor,
        "agent": operation.agent,
        "tool_call_id": operation.tool_call_id,
        "operation": operation.kind,
        "path": operation.path,
        "target": operation.target,
        "given": operation.size,
    }


def _happened(outcome: Outcome) -> dict[str, object]:
    return {
        "outcome": outcome.status,
        "error": outcome.error,
        "size": outcome.size,
        "sha256": outcome.sha256,
        "before_sha256": outcome.before_sha256,
        "files": outcome.files,
        "skipped": outcome.skipped or None,
        "attempts": outcome.attempts if outcome.attempts > 1 else None,
        "duration": round(outcome.duration, 6),
    }
