"""`WriteLog`: the records of recent writes in an object's metadata, by which a writer finds a write without an answer.

A refused precondition proves nothing by itself: the refused request may repeat a request that took effect. So every
write carries a record ``id:sequence:until``, and every conditional write also carries the records of the state that it
replaces, the latest of each writer. A writer that finds its record has written. A writer that does not find it, in an
object that continues the state it wrote to, has not written, because every conditional write carries the records that
it found. Such states are a **chain**. It begins with a request that creates the object, or that has no condition. A
network may repeat that request after the object was deleted, and the chain begins again, without the later records.

A record is dropped after ``until``, in seconds of the store's clock, when its writer does not look for it any more.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from agent_memory.backend import Version
from agent_memory.runtime.fork import call_in_child
from agent_memory.runtime.queues import KeyedLocks

MOST_BYTES = 1_900
"""The most bytes of a write log, name included; S3 allows 2,048 for all user metadata of an object."""

_NAME = "agent-memory-writers"
_ORIGIN = "agent-memory-origin"
_TEXT = re.compile(r"(?P<chain>=?[0-9a-f]{14})(?P<entries>(?: [0-9a-f]{8}:[0-9a-f]{1,12}:[0-9a-f]{1,12})*)\Z")
_LATEST = 16**8 - 1
_chains = Random()  # noqa: S311 - no secret; the system's generator would wait for other threads at each call
call_in_child(_chains.seed)


class WriteRecord(NamedTuple):
    """One write: the writer's id, the write's number among that writer's, and until when the record is kept."""

    writer: str
    sequence: int
    until: int

    def __str__(self) -> str:
        return f"{self.writer}:{self.sequence:x}:{self.until:x}"

    @classmethod
    def parsed(cls, text: str) -> WriteRecord:
        """The inverse of `str`."""
        writer, sequence, until = text.split(":")
        return cls(writer, int(sequence, 16), int(until, 16))


class WriteLog(NamedTuple):
    """The records in one object, oldest first, and the chain that they belong to; and the origin of the object's state.

    The origin (`agent_memory.backend.KeepsOrigins`) is "" if there is none.
    """

    chain: str
    entries: tuple[WriteRecord, ...] = ()
    origin: str = ""

    @classmethod
    def new(cls, now: float, entries: tuple[WriteRecord, ...] = ()) -> WriteLog:
        """The log of an object that is created, or written without a condition: it begins a chain."""
        return cls(f"{int(now):08x}{_chains.getrandbits(24):06x}", entries)

    @classmethod
    def of(cls, metadata: Mapping[str, str], etag: str) -> WriteLog:
        """The log of an object that was read. An object of another program has its own chain, made from its ETag."""
        origin = metadata.get(_ORIGIN, "")
        if (match := _TEXT.match(metadata.get(_NAME, ""))) is None:
            return cls("=" + hashlib.sha256(etag.encode()).hexdigest()[:14], origin=origin)
        return cls(match["chain"], tuple(WriteRecord.parsed(text) for text in match["entries"].split()), origin)

    @property
    def began(self) -> float:
        """When the request was sent that began the chain, by its writer's estimate of the store's clock.

        Infinity if another program began it.
        """
        return math.inf if self.chain.startswith("=") else float(int(self.chain[:8], 16))

    def has(self, entry: WriteRecord) -> bool:
        """Whether a write is in the object, or in an earlier state that it was made from."""
        return any(entry[:2] == other[:2] for other in self.entries)

    def continues(self, earlier: WriteLog, now: float) -> bool:
        """Whether this is the log of the same state or of a later one of its chain, if the chain began only once."""
        latest = {entry.writer: entry.sequence for entry in self.entries}
        kept = (entry for entry in earlier.entries if entry.until > now)
        return self.chain == earlier.chain and all(entry.sequence <= latest.get(entry.writer, -1) for entry in kept)

    def stamped(self, entry: WriteRecord, now: float) -> WriteLog | None:
        """The log with one more record, which replaces its writer's last; None if the metadata have no room for it."""
        kept = tuple(other for other in self.entries if other.until > now and other.writer != entry.writer)
        table = WriteLog(self.chain, (*kept, entry), self.origin)
        size = sum(len(name) + len(value) for name, value in table.metadata.items())
        fits = not kept or size <= MOST_BYTES  # a single record always fits
        return table if fits else None

    @property
    def text(self) -> str:
        """The log as the metadata hold it."""
        return " ".join((self.chain, *map(str, self.entries)))

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata to write with the data."""
        return {_NAME: self.text, **({_ORIGIN: self.origin} if self.origin else {})}


@dataclass(frozen=True)
class TrackedVersion(Version):
    """A version with the object's write log; None if it is not known, as in a listing."""

    table: WriteLog | None = field(default=None, compare=False, repr=False)


class Writer:
    """The writer of one event loop: it issues records, and locks that allow one write at a time for each object.

    After a fork the child process is another writer.
    """

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self._id = secrets.token_hex(4)
        self._process = os.getpid()
        self._sequence = 0

    def entry(self, until: float) -> WriteRecord:
        """A new record, for one write and all its requests."""
        if self._process != os.getpid():
            self._id, self._process = secrets.token_hex(4), os.getpid()
        self._sequence += 1
        return WriteRecord(self._id, self._sequence, min(int(until) + 1, _LATEST))


ON_IO_LOOP = Writer()
"""The writer on fsspec's I/O loop."""
