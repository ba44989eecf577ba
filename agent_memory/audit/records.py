"""Reads the records of an audit log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from agent_memory.audit.log import LogLocation, log_at
from agent_memory.audit.record import facts_of, head

Record: TypeAlias = dict[str, Any]
"""The fields of a record, by name."""
_TEXTS: Final = (
    "event", "time", "id", "actor", "agent", "operation", "path", "target", "outcome", "error", "digest",
    "before_digest", "tool_call_id", "version",
)  # fmt: skip
_COUNTS: Final = ("size", "given")


class RecordLine(NamedTuple):
    """A line that has the form of a record.

    Attributes:
        record: its fields.
        is_as_written: whether its hash is that of the line; a keyed hash is not checked, because that needs the key.
    """

    record: Record
    is_as_written: bool


def records(log: str | os.PathLike[str] | LogLocation) -> Iterator[Record]:
    """Read the records of an audit log, in the order of the log.

    Lines that no writer of the log wrote are left out, and so are records that were changed: `verify` reports both. The
    records of a keyed log are not checked.

    Args:
        log: a file or URL, as for `agent_memory.plugins.audit.AuditPlugin`; or a result of `log_at`.

    Raises:
        ReadError: the log could not be read.
        ValueError: ``log`` is a directory.
    """
    location = log if isinstance(log, LogLocation) else log_at(log)
    try:
        for line in lines_of(location):
            if (found := parsed(line)) and found.is_as_written:
                yield found.record
    finally:
        if location is not log:
            location.store.close()


def lines_of(location: LogLocation) -> Iterator[bytes]:
    """Yield the lines of a log, as they were when the first one was read."""
    for part, reader in location.readers():
        for block in location.blocks(part, reader):
            yield from block.splitlines()


def parsed(line: bytes) -> RecordLine | None:
    """Parse a line; None if it does not have the form of a record."""
    if (found := head(line)) is None:
        return None
    try:
        record = facts_of(line)
        datetime.fromisoformat(record["time"]).astimezone(UTC)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    if not all(isinstance(record.get(name, ""), str) for name in _TEXTS):
        return None
    if not all(type(number := record.get(name, 0)) is int and number >= 0 for name in _COUNTS):
        return None
    return RecordLine(record, found.whole or found.keyed)
