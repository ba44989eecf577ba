"""Reads the records of an audit log: all of them, or the appends of one agent, for an undo."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from agent_memory.audit.bases import bases_of
from agent_memory.audit.location import MERGED_MARK, LogLocation, log_at
from agent_memory.audit.names import Spellings, is_digest
from agent_memory.audit.record import facts_of, head
from agent_memory.audit.salts import Salts
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.undo import RecordedAppend, RecordedAppends
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import Key
from agent_memory.reading.reader import Reader

Record: TypeAlias = dict[str, Any]
"""The fields of a record, by name."""
_TEXTS: Final = (
    "event", "time", "id", "actor", "agent", "operation", "path", "target", "outcome", "error", "digest",
    "before_digest", "tool_call_id", "version", "commitment", "salt", "successor",
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
    with _opened(log) as location:
        for line in lines_of(location):
            if (found := parsed(line)) and found.is_as_written:
                yield found.record


@contextmanager
def _opened(log: str | os.PathLike[str] | LogLocation) -> Iterator[LogLocation]:
    """The location of a log; its store is closed at the end, unless the caller located the log."""
    if isinstance(log, LogLocation):
        yield log
        return
    location = log_at(log)
    try:
        yield location
    finally:
        location.store.close()


def lines_of(location: LogLocation, *, newest_first: bool = False) -> Iterator[bytes]:
    """Yield the lines of a log, as they were when the first one was read; in the order of the log, or from its end.

    The first line of a log that was begun anew is the last record of its base.
    """
    base = [line for line in (location.base_record(),) if line]
    found = _lines_from_end(location) if newest_first else _lines(location)
    try:
        yield from [] if newest_first else base
        yield from (line for line in found if not line.startswith(MERGED_MARK))
        yield from base if newest_first else []
    except AgentMemoryFileNotFoundError:
        raise ConflictError("the audit log was pruned or merged while it was read; read it again") from None


def _lines(location: LogLocation) -> Iterator[bytes]:
    for part, reader in location.readers():
        yield from lines_of_part(location, part, reader)


def lines_of_part(location: LogLocation, part: Key, reader: Reader, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a part that begin at an offset or after it."""
    for block in location.blocks(part, reader, start):
        yield from block.splitlines()


def _lines_from_end(location: LogLocation) -> Iterator[bytes]:
    for _, reader in reversed(location.readers()):
        for block in location.blocks_from_end(reader):
            yield from reversed(block.splitlines())


def has_none_of(line: bytes, texts: Collection[bytes]) -> bool:
    """Whether a line is a record as it was written, without these texts as `record.quoted` spells them.

    That is a fast test before `parsed`. An edited line may spell a text in another way, so this is false for it.
    """
    if any(text in line for text in texts):
        return False
    found = head(line)
    return found is not None and found.whole


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


def has_digests(location: LogLocation) -> bool:
    """Whether the newest record of an agent names it by a digest; False if there is none."""
    for line in lines_of(location, newest_first=True):
        if (found := parsed(line)) and "agent" in found.record:
            return is_digest(found.record["agent"])
    return any(each.facts and any(is_digest(salt.agent) for salt in each.facts.salts) for each in bases_of(location))


def recorded_appends(log: str | os.PathLike[str] | LogLocation, agent: str | None) -> RecordedAppends:
    """Return the appends to the files of one agent, with their digests, from records that are as they were written.

    Without the salt of the agent, which forgetting destroys, there are none, because nothing proves their bytes.
    """
    of_version: dict[str, list[RecordedAppend]] = defaultdict(list)
    unversioned: dict[str, list[RecordedAppend]] = defaultdict(list)
    with _opened(log) as location:
        names = Salts(location).known_names(agent)
        spelled = Spellings(agent, names)
        if names:
            for record in records(location):
                if record.get("agent") in spelled.agents and (append := _append(record, names.content)):
                    version = record.get("version")
                    (of_version[version] if version else unversioned[record.get("path", "")]).append(append)

    def of_path(path: str) -> list[RecordedAppend]:
        return [each for name in spelled.of(path) for each in unversioned.get(name, ())]

    return RecordedAppends(of_version, of_path)


def _append(record: Record, digest_of: Callable[[str], str]) -> RecordedAppend | None:
    """The append of a record; None if the record is of another operation, or lacks a fact."""
    if record.get("operation") != "append" or record.get("outcome") != "ok":
        return None
    try:
        time = datetime.fromisoformat(record["time"]).timestamp()
        by = MadeBy("append", record.get("actor"), record.get("tool_call_id"), time).shortened()
        return RecordedAppend(by, record["size"], record["given"], partial(_is_of, digest_of, record["digest"]))
    except KeyError:
        return None


def _is_of(digest_of: Callable[[str], str], digest: str, sha256: str) -> bool:
    return digest_of(sha256) == digest
