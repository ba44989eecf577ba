"""Who wrote an object, kept in its own metadata, so that a writer whose answer was lost can find its write.

A refused precondition proves nothing by itself: the write that was refused may be a copy of one that took effect. So
every write carries an entry ``id:sequence:until``, one of each writer, and every conditional write carries the entries
it found on. Whoever finds its own entry has written; whoever does not, in an object of the same **chain**, has not,
for every write of the chain kept what it found. A chain begins with a write that looked at nothing, or that created.

Entries are dropped once ``until``, in seconds of the store's clock, is over: nobody looks for them any more.
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
"""Of the 2,048 that S3 allows for all metadata of the user, name included."""

_NAME = "agent-memory-writers"
_TEXT = re.compile(r"(?P<chain>=?[0-9a-f]{14})(?P<entries>(?: [0-9a-f]{8}:[0-9a-f]{1,12}:[0-9a-f]{1,12})*)\Z")
_LATEST = 16**8 - 1
_chains = Random()  # noqa: S311 - chains are told apart by it; of the system's own each would wait for the other threads
call_in_child(_chains.seed)


class WriteRecord(NamedTuple):
    """One write: the writer's id, its number among the writer's writes, and until when it is kept."""

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
    """The entries of one object, oldest first, and the chain they belong to."""

    chain: str
    entries: tuple[WriteRecord, ...] = ()

    @classmethod
    def new(cls, now: float, entries: tuple[WriteRecord, ...] = ()) -> WriteLog:
        """Of an object that is written without looking at what was there, or where nothing was."""
        return cls(f"{int(now):08x}{_chains.getrandbits(24):06x}", entries)

    @classmethod
    def of(cls, metadata: Mapping[str, str], etag: str) -> WriteLog:
        """Of an object as it was found; one that others wrote has a chain of its own, made of its ETag."""
        if (match := _TEXT.match(metadata.get(_NAME, ""))) is None:
            return cls("=" + hashlib.sha256(etag.encode()).hexdigest()[:14])
        return cls(match["chain"], tuple(WriteRecord.parsed(text) for text in match["entries"].split()))

    @property
    def began(self) -> float:
        """When the chain began, by the store's clock; infinitely late where somebody else began it."""
        return math.inf if self.chain.startswith("=") else float(int(self.chain[:8], 16))

    def has(self, entry: WriteRecord) -> bool:
        """Whether a write is in the object, or in one it was made of."""
        return any(entry[:2] == other[:2] for other in self.entries)

    def stamped(self, entry: WriteRecord, now: float) -> WriteLog | None:
        """With one more write, in the place of its writer's last; None if the metadata have no room for it."""
        kept = tuple(other for other in self.entries if other.until > now and other.writer != entry.writer)
        table = WriteLog(self.chain, (*kept, entry))
        fits = not kept or len(_NAME) + len(table.text) <= MOST_BYTES  # one alone always does
        return table if fits else None

    @property
    def text(self) -> str:
        """As the metadata hold it."""
        return " ".join((self.chain, *map(str, self.entries)))

    @property
    def metadata(self) -> dict[str, str]:
        """What to write beside the data."""
        return {_NAME: self.text}


@dataclass(frozen=True)
class TrackedVersion(Version):
    """A version that carries the object's writers along, where they are known: a listing does not tell them."""

    table: WriteLog | None = field(default=None, compare=False, repr=False)


class Writer:
    """Gives out entries, and turns, for it has one write under way per object: what writes on one event loop.

    After a fork the child is another writer.
    """

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self._id = secrets.token_hex(4)
        self._process = os.getpid()
        self._sequence = 0

    def entry(self, until: float) -> WriteRecord:
        """The entry of one write, however often it is sent."""
        if self._process != os.getpid():
            self._id, self._process = secrets.token_hex(4), os.getpid()
        self._sequence += 1
        return WriteRecord(self._id, self._sequence, min(int(until) + 1, _LATEST))


ON_IO_LOOP = Writer()
"""Who writes on fsspec's I/O loop."""
