"""A log that is begun anew, its checkpoints, and its archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_memory import AgentMemoryService
from agent_memory.audit import LogLocation, Verdict, log_at, records, verify
from agent_memory.audit.anew import Renewal
from agent_memory.audit.journal import Position
from agent_memory.audit.verify import Proofs
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import AuditCheckpoint, CheckpointFile, checkpoints_in

FAR = 4e9
"""A time after all records, in POSIX seconds."""
Target = str | Path


class Trial:
    """A log with its checkpoints in ``heads.jsonl``."""

    def __init__(self, target: Target, directory: Path, options: dict[str, object] | None = None) -> None:
        self.target, self.heads, self.options = target, directory / "heads.jsonl", options or {}

    def open(self, **options: Any) -> AuditPlugin:
        where: Any = {"storage_options": self.options} if self.options else {}
        return AuditPlugin(self.target, checkpoints=self.heads, required=True, checkpoint_every=1, **where, **options)

    def write(self, number: int = 1, agent: str = "bob") -> None:
        """Write records by a new writer."""
        with self.open() as audit, AgentMemoryService("memory://anew", plugins=[audit], actor="ops") as service:
            for _ in range(number):
                service.append_to_memory_file(agent, "log.md", "x\n")

    @property
    def location(self) -> LogLocation:
        return log_at(self.target, self.options or None)

    def anchors(self) -> dict[tuple[str, int], set[str]]:
        found: dict[tuple[str, int], set[str]] = {}
        for each in checkpoints_in(self.heads.read_bytes() if self.heads.exists() else b""):
            found.setdefault((each.writer, each.seq), set()).add(each.hash)
        return found

    def verdict(self, location: LogLocation | None = None, **options: Any) -> Verdict:
        anchors = self.anchors()
        return verify(location or self.location, anchors, **options)

    def renewal(self, location: LogLocation | None = None, **options: Any) -> Renewal:
        def receive(position: Position, identity: str) -> None:
            heads(AuditCheckpoint(0.0, *position, identity))

        heads = CheckpointFile(self.heads, required=True)
        proofs = Proofs(self.anchors(), None, self.location.identity(), {}, salts=True)
        return Renewal(location or self.location, proofs, "ops", receive, **options)

    def appends(self, location: LogLocation | None = None) -> list[str]:
        return [record["id"] for record in records(location or self.location) if record.get("operation") == "append"]


def archived(trial: Trial, directory: Path) -> LogLocation:
    """A location for an archive of the log: of the same kind as the log, in a directory."""
    if isinstance(trial.target, Path):
        return log_at(directory / trial.target.name)
    return log_at(f"file://{directory}")


def lose(location: LogLocation) -> None:
    """Remove the last line of a log, behind its back."""
    part = location.parts()[-1]
    data = location.store.read(part).data
    lines = data.splitlines(keepends=True)
    location.store.delete(part)
    if len(lines) > 1:
        location.store.write(part, b"".join(lines[:-1]))
