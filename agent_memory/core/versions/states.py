"""The states of a file, as its records and its present content tell them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import NamedTuple

from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import NONCE_LENGTH, Record
from agent_memory.key import Key


class FileVersion(NamedTuple):
    """One version of a file; `agent_memory.AgentMemory.read_version` returns its content.

    Attributes:
        id: names the version, in this file and under every later name of it; "" for a present file that was written
            while no versions were kept. A rename by a copy (S3) gives the present version another id.
        path: the file's name when the version ended; for the present one, its name now.
        made_by: the operation that made it; None if it was made without this package, or before versions were kept.
        ended_by: the operation that replaced or deleted it; None for the present version.
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


class Kept(NamedTuple):
    """A record in the storage.

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
    def version(self) -> str:
        """The id of the version."""
        return self.record.id + self.key.name[-NONCE_LENGTH:] if self.is_second else self.record.id


class Chain(NamedTuple):
    """The states of one file that are there, newest first.

    Attributes:
        live: the present state; None if the file is deleted.
        origin: the origin of the present state; None if it has none.
        kept: the records of the earlier states.
    """

    live: FileVersion | None
    origin: Origin | None
    kept: list[Kept]

    @property
    def versions(self) -> tuple[FileVersion, ...]:
        """All states."""
        return (*filter(None, [self.live]), *map(version_of, self.kept))


def real(kept: Iterable[Kept], live: Collection[str] = (), others: Collection[str] = ()) -> list[Kept]:
    """Leave out leftovers, and keep one record of each state, in the order newest first.

    A state has several records if a change kept it and then lost a race or its process. All are true copies of the
    state as it was at that time, so the longest one has all that was appended; of equal ones, the one with a successor
    that exists tells the operation that ended the state, else the one of a deletion. A tombstone goes before all, and
    one of a redaction that did not end after all. A record of a live state is a leftover. ``live`` are the ids of live
    states, ``others`` those of further states.
    """
    kept = [each for each in kept if each.record.id not in live]
    existing = {*(each.record.id for each in kept), *live, *others}
    best: dict[str, Kept] = {}
    for each in kept:
        other = best.get(each.record.id)
        if other is None or rank(each, existing) > rank(other, existing):
            best[each.record.id] = each
    second = {each.data: each._replace(is_second=True) for each in kept if _is_other_content(each, best)}
    return sorted([*best.values(), *second.values()], key=lambda each: each.key.name) if second else list(best.values())


def _is_other_content(kept: Kept, best: Mapping[str, Kept]) -> bool:
    """Whether a record has content that the best record of its state does not begin with.

    A storage that carries out a request twice may bring a state back after it ended: then it goes on in another way.
    Contents that were not read are taken for beginnings.
    """
    other = best[kept.record.id]
    if kept.data is None or other.data is None or other.record.reason is not None or kept.record.reason is not None:
        return False
    return not other.data.startswith(kept.data)


def rank(kept: Kept, existing: Container[object]) -> tuple[bool, bool, int, bool, bool]:
    """Which of several records of a state is the true one: that with the highest rank."""
    record = kept.record
    is_tombstone, is_content = record.redacted_by is not None, record.reason is None
    return is_tombstone, is_content, record.size, record.next in existing, record.next is None


def version_of(kept: Kept) -> FileVersion:
    """The version that a record describes."""
    record = kept.record
    return FileVersion(
        kept.version, record.path, record.made_by, record.ended_by, record.size, record.previous, record.number,
        record.redacted_by, record.reason, record.size - record.made_size,
    )  # fmt: skip
