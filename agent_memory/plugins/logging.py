"""The logging plugin: one line per operation on the logger ``agent_memory``, at INFO; failures and refusals at WARNING.

A missing file, an existing file and a conflict are ordinary outcomes, logged at INFO. Refusals of one agent are logged
once a minute: a model may try again and again.

The plugin is on by default. A line never contains content; names are escaped, so that a name cannot forge a line.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from agent_memory.hookspecs import Operation, Outcome, Plugin, hookimpl
from agent_memory.key.quoting import ascii_field

_ORDINARY = ("file_not_found", "file_exists", "conflict")
_SECONDS: Final = 60.0
_MOST_SUBJECTS: Final = 1_000
_log = logging.getLogger("agent_memory")


class LoggingPlugin(Plugin):
    """Logs every operation, and refused operations and names."""

    def __init__(self) -> None:
        self._refusals = _Refusals()

    def listening(self) -> bool:
        """Whether successful operations are logged at the present level."""
        return _log.isEnabledFor(logging.INFO)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Log one line."""
        fine = not outcome.skipped and (outcome.status == "ok" or outcome.error in _ORDINARY)
        level = logging.INFO if fine else logging.WARNING
        if not _log.isEnabledFor(level):
            return
        left_out = self._refusals.count((operation.agent, "")) if outcome.status == "denied" else 0
        if left_out is not None:
            _log.log(level, "%s%s", _line(operation, outcome), f" left_out={left_out}" if left_out else "")

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Log one line."""
        by = "" if actor is None else f" actor={actor!a}"
        if (left_out := self._refusals.count((agent, reason))) is not None:
            by += f" left_out={left_out}" if left_out else ""
            _log.warning("refused agent=%s path=%s rule=%s%s", _agent(agent), text, ascii_field(reason), by)


class _Refusals:
    """The refusals of each subject; the log gets one of them a minute."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def count(self, subject: Hashable) -> int | None:
        """Count a refusal; return how many were left out since the last logged one, or None to leave this one out."""
        now = time.monotonic()
        since, left_out = self._seen.get(subject, (-math.inf, 0))
        if now < since + _SECONDS:
            self._seen[subject] = since, left_out + 1
            return None
        self._seen.pop(subject, None)  # it becomes the youngest
        self._seen[subject] = now, 0
        if len(self._seen) > _MOST_SUBJECTS:
            self._seen.popitem(last=False)
        return left_out


def _agent(agent: str | None) -> str:
    return "-" if agent is None else ascii_field(agent)


def _line(operation: Operation, outcome: Outcome) -> str:
    facts = {
        "agent": _agent(operation.agent),
        "path": ascii(operation.path),
        "target": None if operation.target is None else ascii(operation.target),
        "size": operation.size if outcome.size is None else outcome.size,
        "files": outcome.files,
        "skipped": outcome.skipped or None,
        "attempts": outcome.attempts if outcome.attempts > 1 else None,
        "replayed": outcome.replayed or None,
        "versions_searched": None if outcome.versions_searched else False,
        "actor": None if operation.actor is None else ascii(operation.actor),
        "ms": f"{outcome.duration * 1000:.1f}",
        "outcome": outcome.status,
        "error": None if outcome.error is None else ascii_field(outcome.error),
    }
    return " ".join([operation.kind, *(f"{name}={value}" for name, value in facts.items() if value is not None)])
