"""`WriteLog`: the records of recent writes in an object's metadata, by which a writer finds a write without an answer.

A refused precondition alone proves nothing: the refused request may repeat a request that took effect. So every write
carries a record ``slot:sequence:nonce:until``, and every conditional write also carries the records of the state that
it replaces. A write that finds its own record, with the nonce, has taken effect. If an object continues the state that
a write replaces, and does not have the record of the write, the write has not taken effect, because every conditional
write carries the records that it found. Such states are a **chain**. A chain begins with a request that creates the
object, or that has no condition. A network may repeat that request after the object was deleted, and the chain begins
again, without the later records.

Processes that were restored from one image of a memory have the same slot and sequence, and cannot detect that. So the
nonce is new for each write, from the kernel. In its slot a writer replaces only the record of a write that this process
itself finished. Any other record is dropped after ``until``, in seconds of the store's clock. After that time no write
searches for it.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent_memory.backend import ETag
from agent_memory.object_store.late_requests import FormerName, LateRequests
from agent_memory.runtime.queues import KeyedLocks

MOST_BYTES = 1_900
"""The most bytes of a write log, name included; S3 allows 2,048 for all user metadata of an object."""
MOST_FINISHED = 4_096
"""The most finished writes that a writer remembers; the record of a forgotten write stays until its time is over."""

WRITERS = "agent-memory-writers"
"""The name of the log in the metadata."""
_ORIGIN = "agent-memory-origin"
_FORMER_NAMES = "agent-memory-former-names"
_RECORD = "[0-9a-f]{8}:[0-9a-f]{1,12}:[0-9a-f]{8}:[0-9a-f]{1,12}"
_TEXT = re.compile(rf"(?P<chain>=?[0-9a-f]{{14}})(?P<records>(?: {_RECORD})*)\Z")
_LATEST = 16**8 - 1


class WriteId(NamedTuple):
    """The identity of one write: the writer's slot, the number of the write in that slot, and a nonce.

    Only the nonce differs from the writes of a restored image of the same process.
    """

    slot: str
    sequence: int
    nonce: str


class WriteRecord(NamedTuple):
    """The record of one write; it is kept ``until`` a time in POSIX seconds of the store's clock."""

    id: WriteId
    until: int

    def __str__(self) -> str:
        return f"{self.id.slot}:{self.id.sequence:x}:{self.id.nonce}:{self.until:x}"

    @classmethod
    def parsed(cls, text: str) -> WriteRecord:
        """The inverse of `str`."""
        slot, sequence, nonce, until = text.split(":")
        return cls(WriteId(slot, int(sequence, 16), nonce), int(until, 16))

    def is_kept_by(self, other: WriteRecord) -> bool:
        """Whether another record is equal to this one, or belongs to a later write in its slot."""
        return other.id == self.id or (other.id.slot == self.id.slot and other.id.sequence > self.id.sequence)


class WriteLog(NamedTuple):
    """The metadata of one object: its chain, the records, oldest first, and the origin of its state.

    The origin (`agent_memory.backend.Backend.keeps_origins`) is "" if there is none. Only a copy has former names.
    """

    chain: str
    records: tuple[WriteRecord, ...] = ()
    origin: str = ""
    former_names: tuple[FormerName, ...] = ()

    @classmethod
    def new(cls, now: float, records: tuple[WriteRecord, ...] = ()) -> WriteLog:
        """Return the log that begins a chain: of an object that is created, or written without a condition."""
        return cls(f"{int(now):08x}{secrets.token_hex(3)}", records)

    @classmethod
    def of(cls, metadata: Mapping[str, str], etag: str) -> WriteLog:
        """Return the log of an object that was read; an object of another program has a chain made from its ETag."""
        origin, former = metadata.get(_ORIGIN, ""), FormerName.parse(metadata.get(_FORMER_NAMES, ""))
        if (match := _TEXT.match(metadata.get(WRITERS, ""))) is None:
            return cls("=" + hashlib.sha256(etag.encode()).hexdigest()[:14], (), origin, former)
        return cls(match["chain"], tuple(WriteRecord.parsed(text) for text in match["records"].split()), origin, former)

    @property
    def began(self) -> float:
        """The time when the first request of the chain was sent, by its writer's estimate of the store's clock.

        Infinity if another program began the chain.
        """
        return math.inf if self.chain.startswith("=") else float(int(self.chain[:8], 16))

    def has(self, record: WriteRecord) -> bool:
        """Whether the object contains a write, or was made from a state that contains it."""
        return any(record.id == other.id for other in self.records)

    def continues(self, earlier: WriteLog, now: float) -> bool:
        """Whether this log belongs to the same state, or to a later one of its chain, if the chain began only once."""
        kept = (record for record in earlier.records if record.until > now)
        return self.chain == earlier.chain and all(any(map(record.is_kept_by, self.records)) for record in kept)

    def with_record(self, record: WriteRecord, now: float, finished: Container[WriteId] = ()) -> WriteLog | None:
        """The log with one more record; None if the metadata have no room for it.

        Args:
            record: the record. It replaces the records in its slot whose writes are ``finished``.
            now: the store's clock.
            finished: the writes that this process finished.
        """
        kept = tuple(
            other
            for other in self.records
            if other.until > now and not (other.id.slot == record.id.slot and other.id in finished)
        )
        former = tuple(name for name in self.former_names if name.until > now)
        log = WriteLog(self.chain, (*kept, record), self.origin, former)
        fits = not kept or log.size <= MOST_BYTES  # a single record always fits
        return log if fits else None

    def with_own_name(self, names: Sequence[FormerName]) -> WriteLog:
        """The log with the former names of the object's own name in place of its earlier ones, if they have room.

        They are in place of earlier ones, because those of many processes would leave no room for the records.
        """
        own = {former.name for former in names}
        log = self._replace(former_names=(*(each for each in self.former_names if each.name not in own), *names))
        return log if log.size <= MOST_BYTES else self

    @property
    def size(self) -> int:
        """The bytes of the metadata."""
        return sum(len(name) + len(value) for name, value in self.metadata.items())

    @property
    def text(self) -> str:
        """The log as the metadata hold it."""
        return " ".join((self.chain, *map(str, self.records)))

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata to write with the data."""
        optional = {_ORIGIN: self.origin, _FORMER_NAMES: FormerName.to_text(self.former_names)}
        return {WRITERS: self.text, **{name: text for name, text in optional.items() if text}}


def origin_in(metadata: Mapping[str, str]) -> str | None:
    """The origin in the metadata of an object; None if it has none."""
    return metadata.get(_ORIGIN) or None


@dataclass(frozen=True, eq=False)
class TrackedETag(ETag):
    """An etag with the object's write log, which is None if it is not known, as in a listing."""

    log: WriteLog | None = field(default=None, repr=False)


class Writer:
    """The writer of one event loop: it makes records, and locks that allow one write at a time for each object.

    A restored image of this process is another writer with the same slot. A record of an unknown write in the own slot
    shows that, and the next write gets a new slot. Until then the nonces differ, so nothing is lost.

    The writer also remembers the requests that may still arrive late (`LateRequests`).
    """

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self.late_requests = LateRequests()
        self._finished: OrderedDict[WriteId, None] = OrderedDict()
        self._begin_slot()

    def _begin_slot(self) -> None:
        self._slot = secrets.token_hex(4)
        self._sequence = 0
        self._is_slot_shared = False

    def new_record(self, until: float) -> WriteRecord:
        """Make the record of one write, for all its requests."""
        if self._is_slot_shared:
            self._begin_slot()
        self._sequence += 1
        return WriteRecord(WriteId(self._slot, self._sequence, secrets.token_hex(4)), min(int(until) + 1, _LATEST))

    def with_record(self, log: WriteLog, record: WriteRecord, now: float) -> WriteLog | None:
        """Return `WriteLog.with_record`, which replaces the records of the writes that this process finished."""
        others = (other.id for other in log.records if other.until > now and other.id.slot == record.id.slot)
        self._is_slot_shared |= any(other not in self._finished for other in others)
        return log.with_record(record, now, self._finished)

    def finish(self, record: WriteRecord) -> None:
        """Note that a write has ended, so that a later record may replace its record."""
        self._finished[record.id] = None
        if len(self._finished) > MOST_FINISHED:
            self._finished.popitem(last=False)


ON_IO_LOOP = Writer()
"""The writer on fsspec's I/O loop."""
