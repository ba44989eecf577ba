"""Checkpoints of an audit log, and their receivers: a file, or the standard library's logging.

`agent_memory.plugins.audit.AuditPlugin` sends them. A checkpoint protects a log only if a process that can write the
log cannot write to the place of the checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from agent_memory.core import flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.stored_facts import count, fields_of, seconds, text
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.key import Key
from agent_memory.registry import open_backend

_log = logging.getLogger("agent_memory.audit")
_BEGINNING: Final = b'{"time": '


@dataclass(frozen=True, slots=True)
class AuditCheckpoint:
    """A position in one writer's chain of the audit log ``log``: record ``seq`` has this hash.

    ``time`` is in POSIX seconds. A copy in a place that the writers of the log cannot change proves all records up to
    this position.
    """

    time: float
    writer: str
    seq: int
    hash: str
    log: str = ""


class CheckpointFile:
    """A receiver that appends each checkpoint durably to a file, as a JSON line.

    Args:
        path: the file, whose name must follow the key grammar.
        required: whether a checkpoint that cannot be written is an error of the audit log; otherwise it is logged.
    """

    def __init__(self, path: str | os.PathLike[str], *, required: bool = False) -> None:
        self.required = required
        file = Path(path).expanduser()
        self._key = Key.tree().join(file.name)
        self._store = BlockingStore(open_backend(file.parent))

    def __call__(self, checkpoint: AuditCheckpoint) -> None:
        """Append the checkpoint to the file."""
        line = json.dumps(asdict(checkpoint)).encode() + b"\n"
        try:
            self._store.run(flows.append, self._key, line, separator=b"\n")
        except AgentMemoryError:
            if self.required:
                raise
            _log.exception("a checkpoint could not be written")

    def kept(self) -> list[AuditCheckpoint]:
        """The checkpoints in the file; none if there is no file yet. Errors as `checkpoints_in`."""
        try:
            return list(checkpoints_in(self._store.read(self._key).data))
        except AgentMemoryFileNotFoundError:
            return []

    def close(self) -> None:
        """Close the file's backend."""
        self._store.close()


def log_checkpoint(checkpoint: AuditCheckpoint) -> None:
    """Log a checkpoint at INFO on the logger ``agent_memory.audit``; a handler may send it to another machine."""
    facts = (checkpoint.writer, checkpoint.seq, checkpoint.hash, checkpoint.log)
    _log.info("checkpoint writer=%s seq=%d hash=%s log=%s", *facts)


def checkpoints_in(data: bytes) -> Iterator[AuditCheckpoint]:
    """The checkpoints in a file of `CheckpointFile`; a line that a killed process began is skipped.

    Raises:
        ValueError: another line is not a checkpoint.
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            yield _checkpoint(line)
        except (ValueError, TypeError, KeyError):
            if number < len(lines) and not _is_torn(line):
                raise ValueError(f"line {number} is not a checkpoint") from None


def _is_torn(line: bytes) -> bool:
    """Whether a line is only the beginning of a checkpoint, filled up with zeros by a filesystem after a power loss."""
    begun = line.rstrip(b"\0")
    return b"}" not in begun and begun.startswith(_BEGINNING[: len(begun)])


def _checkpoint(line: bytes) -> AuditCheckpoint:
    return AuditCheckpoint(**{name: _CHECKS[name](value) for name, value in fields_of(line).items()})


_CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "time": seconds,
    "writer": text,
    "seq": count,
    "hash": text,
    "log": text,
}
