"""The operations on an audit log that the tests kill: each in a directory of log, checkpoints and archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from agent_memory import AgentMemory
from agent_memory.audit import LogLocation
from agent_memory.audit import log as log_module
from tests.audit.trial import FAR, Trial, archived, lose


@dataclass(frozen=True, repr=False)
class LogOperation:
    """One operation on an audit log of two days, or of one file.

    Attributes:
        renew: the operation; it gets the log, its archive, and the time between the two days.
        one_file: whether the log is one file.
        is_damaged: whether the log has lost a line before.
    """

    name: str
    renew: Callable[[Trial, LogLocation, float], object]
    one_file: bool = False
    is_damaged: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def trial(self, base: Path) -> Trial:
        """The log below a directory."""
        return Trial(base / "log" / "audit.jsonl" if self.one_file else f"file://{base}/log", base)

    def archive(self, base: Path, name: str = "archive") -> LogLocation:
        """An archive below a directory."""
        return archived(self.trial(base), base / name)

    def prepare(self, base: Path) -> None:
        """Write the records of two days, by four writers."""
        base.mkdir(exist_ok=True)
        trial = self.trial(base)
        for day in ("2026-11-20", "2026-11-21"):
            (base / "between").write_text(str(time.time()))
            with patch.object(log_module, "_day", lambda day=day: day):
                trial.write(2)
                trial.write(1, "eve")
        if self.is_damaged:
            lose(trial.location)

    def do(self, base: Path, archive: LogLocation) -> None:
        """Run the operation with another archive."""
        self.renew(self.trial(base), archive, float((base / "between").read_text()))

    def run(self, _: AgentMemory) -> None:
        """Run the operation in the current directory."""
        base = Path.cwd()
        self.do(base, self.archive(base))


LOG_OPERATIONS = {
    operation.name: operation
    for operation in (
        LogOperation("audit prune", lambda log, archive, then: log.renewal(archive=archive).prune(then, "yearly")),
        LogOperation("audit prune, all", lambda log, archive, _: log.renewal(archive=archive).prune(FAR)),
        LogOperation("audit close", lambda log, archive, _: log.renewal(archive=archive).close("moved")),
        LogOperation(
            "audit close, one file", lambda log, archive, _: log.renewal(archive=archive).close(), one_file=True
        ),
        LogOperation("audit restart", lambda log, *_: log.renewal().restart("lost a line"), is_damaged=True),
    )
}
