"""The audit log: records chained by hashes, the storage of the log, and its verification.

The log is tamper-evident as long as an attacker cannot write to the place of the checkpoints: with write access to both
the log and the checkpoints, an attacker can forge a whole log. `agent_memory.plugins.audit.AuditPlugin` writes it.
"""

from __future__ import annotations

from agent_memory.audit.findings import Finding, Line, Verdict
from agent_memory.audit.location import LogLocation, log_at
from agent_memory.audit.records import Record, records
from agent_memory.audit.verify import verify

__all__ = ["Finding", "Line", "LogLocation", "Record", "Verdict", "log_at", "records", "verify"]
