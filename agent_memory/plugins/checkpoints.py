"""Second places for the heads of audit logs: a file, or the standard library's logging.

A checkpoint is worth what its place is: put it where whoever can write the log cannot write.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from agent_memory.backend import Uncopied
from agent_memory.core import flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.hookspecs import AuditCheckpoint, Plugin, hookimpl
from agent_memory.key import Key
from agent_memory.registry import open_backend

_log = logging.getLogger("agent_memory.audit")


class CheckpointFile(Plugin, Uncopied):
    """Appends each checkpoint to a file, as a JSON line, durably.

    Args:
        path: the file, named as the key grammar allows.
        required: whether a caller is told that a checkpoint could not be kept.
    """

    def __init__(self, path: str | os.PathLike[str], *, required: bool = False) -> None:
        self.required = required
        file = Path(path).expanduser()
        self._key = Key.tree().join(file.name)
        self._store = BlockingStore(open_backend(file.parent))

    @hookimpl
    def agent_memory_audit_checkpoint(self, checkpoint: AuditCheckpoint) -> None:
        """Keep it."""
        line = json.dumps(asdict(checkpoint)).encode() + b"\n"
        self._store.run(flows.append, self._key, line, separator=b"\n")

    def close(self) -> None:
        """Release what the file's backend holds."""
        self._store.close()


class CheckpointLogger(Plugin):
    """Logs each checkpoint, at INFO, on the logger ``agent_memory.audit``, which may ship it to another machine."""

    @hookimpl
    def agent_memory_audit_checkpoint(self, checkpoint: AuditCheckpoint) -> None:
        """Log it."""
        facts = (checkpoint.writer, checkpoint.seq, checkpoint.hash, checkpoint.log)
        _log.info("checkpoint writer=%s seq=%d hash=%s log=%s", *facts)


def checkpoints_in(data: bytes) -> Iterator[AuditCheckpoint]:
    """The checkpoints of a file that `CheckpointFile` wrote; a last line without an end is passed over.

    Raises:
        ValueError: another line is no checkpoint.
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            yield AuditCheckpoint(**json.loads(line))
        except (ValueError, TypeError):
            if line and number < len(lines):
                raise ValueError(f"line {number} is no checkpoint") from None
