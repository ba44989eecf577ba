"""The audit log: records that are chained by their hashes, where they lie, and how they are verified.

Tamper-evident against those who cannot write where the checkpoints go: whoever can rewrite the log and the checkpoints
can make up another log. `agent_memory.plugins.audit.AuditPlugin` writes it.
"""

from __future__ import annotations

from agent_memory.audit.journal import Journal, JournalEntry, Position
from agent_memory.audit.log import Log, LogLocation, log_at, open_log
from agent_memory.audit.record import encode, facts_of, head
from agent_memory.audit.salts import Salts
from agent_memory.audit.verify import Finding, Line, Verdict, Verifier, verify

__all__ = [
    "Finding",
    "Journal",
    "JournalEntry",
    "Line",
    "Log",
    "LogLocation",
    "Position",
    "Salts",
    "Verdict",
    "Verifier",
    "encode",
    "facts_of",
    "head",
    "log_at",
    "open_log",
    "verify",
]  # fmt: skip
