"""The audit log: records chained by hashes, the storage of the log, and its verification.

The log is tamper-evident as long as an attacker cannot write to the place of the checkpoints: with write access to both
the log and the checkpoints, an attacker can forge a whole log. `agent_memory.plugins.audit.AuditPlugin` writes it.
"""

from __future__ import annotations

from agent_memory.audit.findings import Finding, Line, Verdict
from agent_memory.audit.journal import Journal, JournalEntry, Position
from agent_memory.audit.log import Log, LogLocation, log_at, open_log
from agent_memory.audit.record import encode, facts_of, head
from agent_memory.audit.records import Record, records
from agent_memory.audit.salts import Salts
from agent_memory.audit.verify import Verifier, verify

__all__ = [
    "Finding",
    "Journal",
    "JournalEntry",
    "Line",
    "Log",
    "LogLocation",
    "Position",
    "Record",
    "Salts",
    "Verdict",
    "Verifier",
    "encode",
    "facts_of",
    "head",
    "log_at",
    "open_log",
    "records",
    "verify",
]  # fmt: skip
