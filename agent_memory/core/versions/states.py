"""The state of a file as it is now, and an earlier state as a record describes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent_memory.backend import ANY, Backend, ETag, ReadWhen, Snapshot
from agent_memory.backend.helpers import refuse_larger_read
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import Name, Record
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file; `agent_memory.memory.FileVersions.read` returns its content.

    Attributes:
        id: names the version of this file; "" for a current file that was written while no versions were kept.
        path: the file's name when the version ended; for the current one, its name now.
        made_by: the operation that made it; None if another program made it, or if no versions were kept then.
        ended_by: the operation that replaced or deleted it; None for the current version.
        size: the content's size in bytes, with what was appended; 0 if it was redacted.
        previous: the id of the version that it replaced; None for the first one.
        number: the number of changes since the file was created, appends not counted.
        redacted_by: the operation that erased its content; None if the content is there.
        reason: the reason of the redaction. If ``redacted_by`` is None, the redaction did not end: call it again.
        appended_bytes: how many bytes of the content were appended after ``made_by``; the audit log tells by which
            operations.
        unverified: whether a current file is too large for one call, so that another program may have changed it since
            ``made_by``.
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
    unverified: bool = False


class Cursor(NamedTuple):
    """The last version of a page.

    Attributes:
        id: the id of the version; "" for a current file without one.
        path: the name under which it ended, because copies share their ids; None if it is not known.
    """

    id: str
    path: str | None

    def rest(self, versions: Sequence[FileVersion]) -> Sequence[FileVersion] | None:
        """Return the versions that follow this one; None if it is not among them."""
        ids = [each.id for each in versions]
        return versions[ids.index(self.id) + 1 :] if self.id in ids else None


@dataclass(frozen=True)
class CurrentFile:
    """The current state of a file.

    Attributes:
        key: the file.
        snapshot: the state as it was read: whole, or without data.
        origin: the stored origin; `Origin.unknown` if there is none.
        modified: the time of the last change in a listing, in POSIX seconds; infinite if no listing was read.
    """

    key: Key
    snapshot: Snapshot
    origin: Origin
    modified: float = math.inf

    @property
    def state(self) -> Origin:
        """The origin of the content: another program may have changed it since the stored origin."""
        size, data = self.snapshot.size, self.snapshot.data
        if not self.origin.id or (self.origin.is_of(data) if self.is_whole else size >= self.origin.size):
            return self.origin
        content = data if self.is_whole else self.snapshot.etag.token.encode()
        return self.origin.changed_by_another_program(size, content)

    @property
    def version(self) -> FileVersion:
        """The state as a version; without an origin its id is ""."""
        origin, size = self.state, self.snapshot.size
        return FileVersion(
            origin.id, self.key.path, origin.by, None, size, origin.previous, origin.number,
            appended_bytes=max(0, size - origin.size), unverified=bool(origin.id) and not self.is_whole,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return self.snapshot.size

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
        """Return it with the origin of its content; a new one if it has none."""
        return replace(self, origin=self.state if self.origin.id else Origin.first(None, self.snapshot.size, None))


async def read_current(
    store: Backend, run: Run, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY
) -> CurrentFile:
    """Read a file, or a range of it, with the origin of its state; the store keeps origins."""
    snapshot = await run.call(store.read, key, start, end, when)
    return CurrentFile(key, snapshot, Origin.parse(snapshot.origin) or Origin.unknown(snapshot.size))


async def current_file(store: Backend, run: Run, key: Key, whole: bool = False) -> CurrentFile | None:
    """Return the current state of a file; None if there is no file.

    ``whole``: with its content, unless it is too large for one call.
    """
    try:
        if store.keeps_origins:
            if whole:
                with suppress(FileTooLargeError):
                    return await read_current(store, run, key)
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
    """An earlier state of a file: a record as it is stored.

    Attributes:
        record: its facts; the time of `Record.ended_by` is the storage's.
        name: the parts of its name.
        key: its name in the storage.
        data: its content, if that was read with the facts.
        claimed: the time at which the state ended, by the clock of the writer; of a tombstone as in the record.
        is_second: whether another content of the same state is shown with the state's id.
    """

    record: Record
    name: Name
    key: Key
    data: bytes | None
    claimed: float
    is_second: bool = False

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return self.record.size

    @property
    def version_id(self) -> str:
        """The id of the version."""
        return self.name.version_id if self.is_second else self.record.id

    @property
    def version(self) -> FileVersion:
        """The version that the record describes."""
        record = self.record
        return FileVersion(
            self.version_id, record.path, record.made_by, record.ended_by, record.size, record.previous, record.number,
            record.redacted_by, record.reason, record.size - record.made_size,
        )  # fmt: skip


class FileStates(NamedTuple):
    """The states of one file that the store has: the current one, and the earlier ones, newest first."""

    current: CurrentFile | None
    records: list[StoredRecord]

    @property
    def versions(self) -> tuple[FileVersion, ...]:
        """All states."""
        current = () if self.current is None else (self.current.version,)
        return (*current, *(each.version for each in self.records))
