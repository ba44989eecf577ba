"""The logging plugin: one line per operation on the logger ``agent_memory``, at INFO; failures and refusals at WARNING.

A missing file, an existing file and a conflict are ordinary outcomes, logged at INFO.

The plugin is on by default. A line never contains content; names are escaped, so that a name cannot forge a line.
"""

from __future__ import annotations

import logging

from agent_memory.hookspecs import Operation, Outcome, Plugin, hookimpl
from agent_memory.key.quoting import ascii_field

_ORDINARY = ("file_not_found", "file_exists", "conflict")
_log = logging.getLogger("agent_memory")


class LoggingPlugin(Plugin):
    """Logs every operation and every refused name."""

    def listening(self) -> bool:
        """Whether successful operations are logged at the present level."""
        return _log.isEnabledFor(logging.INFO)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Log one line."""
        fine = not outcome.skipped and (outcome.status == "ok" or outcome.error in _ORDINARY)
        level = logging.INFO if fine else logging.WARNING
        if _log.isEnabledFor(level):
            _log.log(level, "%s", _line(operation, outcome))

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        """Log one line."""
        by = "" if actor is None else f" actor={actor!a}"
        _log.warning("refused agent=%s path=%s rule=%s%s", _agent(agent), text, ascii_field(reason), by)


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
