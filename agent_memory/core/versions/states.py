"""The states of a file: the current one, and the earlier ones as their records describe them."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent_memory.backend import ANY, Backend, ETag, ReadWhen, Snapshot
from agent_memory.backend.helpers import refuse_larger_read
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import NONCE_LENGTH, Record
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file; `agent_memory.memory.FileVersions.read` returns its content.

    Attributes:
        id: names the version, in this file and under every later name of it; "" for a current file that was written
            while no versions were kept. A rename by a copy (S3) gives the current version another id.
        path: the file's name when the version ended; for the current one, its name now.
        made_by: the operation that made it; None if it was made without this package, or before versions were kept.
        ended_by: the operation that replaced or deleted it; None for the current version.
        size: the content's size in bytes, with what was appended; 0 if it was redacted.
        previous: the id of the version that it replaced; None for the first one.
        number: the number of changes since the file was created, appends not counted.
        redacted_by: the operation that erased its content; None if the content is there.
        reason: the reason of the redaction. If ``redacted_by`` is None, the redaction did not end: call it again.
        appended_bytes: how many bytes of the content were appended after ``made_by``; the audit log tells by which
            operations.
    """

    id: str
    path: str
    made_by: MadeBy | None
    ended_by: MadeBy | None
    size: int
    previous: str | None
    number: int
    redacted_by: MadeBy | None = None
    reason: str | None = None
    appended_bytes: int = 0


@dataclass(frozen=True)
class CurrentFile:
    """The current state of a file.

    Attributes:
        key: the file.
        snapshot: the state as it was read: whole, or without data.
        origin: its origin; `Origin.unknown` if none is stored.
        modified: the time of the last change in a listing, in POSIX seconds; infinite if no listing was read.
    """

    key: Key
    snapshot: Snapshot
    origin: Origin
    modified: float = math.inf

    @property
    def version(self) -> FileVersion:
        """The state as a version; without an origin its id is ""."""
        origin, size = self.origin, self.snapshot.size
        appended = max(0, size - origin.size)
        return FileVersion(
            origin.id, self.key.path, origin.by, None, size, origin.previous, origin.number, appended_bytes=appended
        )

    @property
    def is_whole(self) -> bool:
        """Whether the whole content was read."""
        return len(self.snapshot.data) == self.snapshot.size

    def whole(self, limit: int) -> Snapshot:
        """Return the state as it was read; raises `FileTooLargeError` if it has more bytes than one read may have."""
        if not self.is_whole:
            refuse_larger_read(self.key, self.snapshot.size, limit)
        return self.snapshot

    def with_known_origin(self) -> CurrentFile:
        """Return it with an origin: a new one if none is stored, or if another program changed the content since."""
        size = self.snapshot.size
        if not self.origin.id:
            return replace(self, origin=Origin.first(None, size, None))
        if self.is_whole and not self.origin.is_of(self.snapshot.data):
            return replace(self, origin=self.origin.next(None, size, None))
        return self


async def read_current(
    store: Backend, run: Run, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY
) -> CurrentFile:
    """Read a file, or a range of it, with the origin of its state; the store keeps origins."""
    snapshot = await run.call(store.read, key, start, end, when)
    return CurrentFile(key, snapshot, Origin.parse(snapshot.origin) or Origin.unknown(snapshot.size))


async def current_file(store: Backend, run: Run, key: Key) -> CurrentFile | None:
    """Return the current state of a file, without its content; None if there is no file."""
    try:
        if store.keeps_origins:
            return await read_current(store, run, key, 0, 0)
        entry = await run.call(store.stat, key)
    except AgentMemoryFileNotFoundError:
        return None
    # without origins nothing is changed on the condition of this state
    return CurrentFile(key, Snapshot(b"", entry.etag or ETag(""), entry.size), Origin.unknown(entry.size))


async def require_state(store: Backend, run: Run, key: Key, state: str) -> None:
    """Raise `ConflictError` unless a file has the state with an id; "" is a state without an origin."""
    if store.keeps_origins and (await read_current(store, run, key, 0, 0)).origin.id != state:
        raise ConflictError("the file changed since it was read; nothing was written", path=key.path)


class StoredRecord(NamedTuple):
    """A record as it is stored.

    Attributes:
        record: its facts.
        key: its name.
        data: its content, if that was read with the facts.
        is_second: whether its state existed twice, and this is the content that it had the other time.
    """

    record: Record
    key: Key
    data: bytes | None
    is_second: bool = False

    @property
    def version_id(self) -> str:
        """The id of the version."""
        return self.record.id + self.key.name[-NONCE_LENGTH:] if self.is_second else self.record.id

    @property
    def version(self) -> FileVersion:
        """The version that the record describes."""
        record = self.record
        return FileVersion(
            self.version_id, record.path, record.made_by, record.ended_by, record.size, record.previous, record.number,
            record.redacted_by, record.reason, record.size - record.made_size,
        )  # fmt: skip


class FileStates(NamedTuple):
    """The states of one file that the store has: the current one, and one record of each earlier one, newest first."""

    current: CurrentFile | None
    records: list[StoredRecord]

    @property
    def versions(self) -> tuple[FileVersion, ...]:
        """All states."""
        current = () if self.current is None else (self.current.version,)
        return (*current, *(each.version for each in self.records))


def one_per_state(
    records: Iterable[StoredRecord], current: Collection[str] = (), others: Collection[str] = ()
) -> list[StoredRecord]:
    """Return one record of each state, newest first, without the leftovers.

    A state has several records if a change kept it and then lost a race or its process. All are true copies of the
    state as it was at that time, so the longest one has all that was appended. Of equally long ones, the one with a
    successor that exists names the operation that ended the state, else the one of a deletion. A tombstone goes before
    all, and one of a redaction that did not end after all. A record of a current state is a leftover.

    Args:
        records: records of any states.
        current: the ids of current states.
        others: the ids of further states that exist.
    """
    records = [each for each in records if each.record.id not in current]
    existing = {*(each.record.id for each in records), *current, *others}
    best: dict[str, StoredRecord] = {}
    for each in records:
        other = best.get(each.record.id)
        if other is None or rank(each, existing) > rank(other, existing):
            best[each.record.id] = each
    second = {each.data: each._replace(is_second=True) for each in records if _is_other_content(each, best)}
    return sorted([*best.values(), *second.values()], key=lambda each: each.key.name) if second else list(best.values())


def _is_other_content(stored: StoredRecord, best: Mapping[str, StoredRecord]) -> bool:
    """Whether a record has content that the best record of its state does not begin with.

    A storage that carries out a request twice may bring a state back after it ended. Then later changes start from it
    again. A content that was not read counts as a beginning.
    """
    other = best[stored.record.id]
    if stored.data is None or other.data is None or other.record.reason is not None or stored.record.reason is not None:
        return False
    return not other.data.startswith(stored.data)


def rank(stored: StoredRecord, existing: Container[object]) -> tuple[bool, bool, int, bool, bool]:
    """Order the records of one state: the true one has the highest rank."""
    record = stored.record
    is_tombstone, is_content = record.redacted_by is not None, record.reason is None
    return is_tombstone, is_content, record.size, record.next in existing, record.next is None
