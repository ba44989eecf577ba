"""Where the audit log lies, and how lines get there: one file after another on disk, one object a batch over a network.

Everything goes through a backend and never through hooks.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol

from agent_memory.audit.record import head
from agent_memory.backend import BlockingBackend, Uncopied
from agent_memory.core import flows, tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, ReadError
from agent_memory.key import Key
from agent_memory.reading.lines import lines_at
from agent_memory.reading.reader import Reader
from agent_memory.registry import open_backend
from agent_memory.runtime.run import step

DIRECTORY: Final = "audit"
MAX_BYTES: Final = 64_000_000
"""The size at which a segment is followed by the next one."""
_TAIL = 64 * 1024
_IDENTITY = re.compile(rb"([0-9a-f]{32})\n?")
_DAILY = re.compile(r"(?P<base>\d{4}-\d\d-\d\d)(?:\.(?P<number>\d{1,9}))?\.jsonl\Z")
_BATCH = re.compile(
    r"(?P<base>\d{4}-\d\d-\d\d)/(?P<batch>\d{6}\.\d{6}-(?P<writer>[0-9a-f]{16})-(?P<seq>\d{12}))\.jsonl\Z"
)


@dataclass
class LogBatch:
    """Lines of one writer to be written together, from number ``seq`` on.

    ``doubtful``: they may be there already, under ``key`` where the log has chosen one.
    """

    seconds: float
    writer: str
    seq: int
    data: bytes
    doubtful: bool = False
    key: Key | None = None


class Log(Protocol):
    """What a journal writes to."""

    def turned(self) -> bool:
        """Whether what is written next begins a segment; True once for each."""
        ...

    def last(self) -> bytes | None:
        """The last whole record before what is written next, where it can be told at little cost."""
        ...

    def append(self, batch: LogBatch) -> None:
        """Write, durable to the level of the backend; a doubtful batch only if it is not there yet."""
        ...

    def identity(self) -> str:
        """What this log has and no other: the first writer makes it up."""
        ...


class LogPosition(NamedTuple):
    """Where a part of a log stands among the others: the day, where it has one, and its number or name."""

    base: str
    number: int = 0
    batch: str = ""


class LogLocation(NamedTuple):
    """A log in a file and its successors, or, where ``name`` is None, below a root, by days."""

    store: BlockingStore
    directory: Key
    name: str | None

    def segment(self, base: str, number: int) -> Key:
        """The key of a segment."""
        name = PurePosixPath(self.name or f"{base}.jsonl")
        return self.directory.join(f"{name.stem}{f'.{number}' if number else ''}{name.suffix}")

    def parts(self) -> list[Key]:
        """The keys of all segments and batches, in order; empty if there is no log."""
        return _in_order(self._listed())

    def readers(self) -> list[tuple[Key, Reader]]:
        """All parts as they are now, even if they are written meanwhile.

        A writer never goes back to an earlier part, so the later ones are looked at first: then whatever stands in one
        was preceded by what is found in those before it.
        """
        found = self._listed()
        if not isinstance(self.store.backend, BlockingBackend):
            parts = _in_order(found | self._listed_late(found))
            return [(part, self._reader(part)) for part in parts]
        opened = []
        for part in reversed(_in_order(found)):
            opened.append((part, self._reader(part)))
            step(opened[-1][1].read(0, 0))
        return opened[::-1]

    def is_keyed(self) -> bool | None:
        """Whether the hashes of the log's first record are keyed; None if there is no record."""
        for part in self._first_parts():
            for block in self.blocks(part):
                if first := next(filter(None, map(head, block.splitlines())), None):
                    return first.keyed
        return None

    def _first_parts(self) -> list[Key]:
        """The first part alone, where one request finds it; else all."""
        if self.name is None:
            page = self.store.list(self.directory, limit=1)
            if not page.entries or self.place(page.entries[0].key):
                return [entry.key for entry in page.entries]
        return self.parts()

    def blocks(self, part: Key, reader: Reader | None = None) -> Iterator[bytes]:
        """Whole lines of a part, about a megabyte at once; a line beyond measure is cut."""
        reader, start = reader or self._reader(part), 0
        while found := step(lines_at(reader, start)):
            yield found.too_long or found.data
            start = found.end
            if start >= reader.size:
                return

    def identity(self) -> str | None:
        """What this log has and no other, a random number in a file beside it; None if it has none yet.

        Raises:
            ReadError: the file holds something else.
        """
        key = self._identity_key()
        try:
            data = self.store.run(flows.read, key).data
        except AgentMemoryFileNotFoundError:
            return None
        if not (found := _IDENTITY.fullmatch(data)):
            raise ReadError("it is no identity of an audit log: 32 hexadecimal digits", path=key.path)
        return found[1].decode()

    def make_identity(self) -> str:
        """The same; made if there is none yet, by exactly one of many writers."""
        if found := self.identity():
            return found
        new = secrets.token_hex(16)
        try:
            self.store.run(flows.create, self._identity_key(), f"{new}\n".encode("ascii"))
        except FileAlreadyExistsError:
            if (made := self.identity()) is None:
                raise  # a file lies where the directory would be
            return made
        return new

    def _identity_key(self) -> Key:
        if self.name is None:
            return Key.internal(f"{DIRECTORY}.identity")
        return self.directory.join(f"{self.name}.identity")

    def _reader(self, part: Key) -> Reader:
        return self.store.reader(part)

    def _listed(self) -> dict[Key, LogPosition]:
        listing = self.store.run(tree_flows.list_all, self.directory, recursive=self.name is None)
        return {entry.key: place for entry in listing.entries if (place := self.place(entry.key))}

    def _listed_late(self, found: Iterable[Key]) -> dict[Key, LogPosition]:
        """Batches that were written behind the back of a listing, before later ones of their writers that it has."""
        latest: dict[str, int] = {}
        for key in found:
            if batch := _BATCH.match(self.name_of(key)):
                latest[batch["writer"]] = max(int(batch["seq"]), latest.get(batch["writer"], 0))
        return {
            key: place
            for key, place in self._listed().items()
            if (batch := _BATCH.match(self.name_of(key))) and int(batch["seq"]) < latest.get(batch["writer"], 0)
        }

    def name_of(self, part: Key) -> str:
        """How a part is called beside the others."""
        return part.relative_to(self.directory).path

    def place(self, key: Key) -> LogPosition | None:
        """Where a part stands among the others; None for what is no part."""
        text = self.name_of(key)
        if self.name is None:
            match = _DAILY.match(text) or _BATCH.match(text)
            groups = match.groupdict() if match else {}
            return (
                LogPosition(match["base"], int(groups.get("number") or 0), groups.get("batch") or "") if match else None
            )
        name = PurePosixPath(self.name)
        numbered = re.fullmatch(rf"{re.escape(name.stem)}(?:\.(\d{{1,9}}))?{re.escape(name.suffix)}", text)
        return LogPosition("", int(numbered[1] or 0)) if numbered else None


def _in_order(found: Mapping[Key, LogPosition]) -> list[Key]:
    return [key for key, _ in sorted(found.items(), key=itemgetter(1))]


def log_at(target: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> LogLocation:
    """The log in a file, named as the key grammar allows, or below the root of a URL.

    Raises:
        InvalidPathError: the file's name.
        BackendNotAvailableError: no backend for the URL.
        ValueError: a directory.
    """
    if isinstance(target, str) and "://" in target:
        return LogLocation(BlockingStore(open_backend(target, storage_options)), Key.internal(DIRECTORY), None)
    path = Path(target).expanduser()
    Key.tree().join(path.name)
    if path.is_dir():
        raise ValueError(
            f"{path.name!r} is a directory; an audit log is a file, or below the root of a URL (file://...)"
        )
    return LogLocation(BlockingStore(open_backend(path.parent, storage_options)), Key.tree(), path.name)


class SegmentedLog(Uncopied):
    """Lines appended in place, by any number of writers; past ``max_bytes`` each goes on to the next segment.

    A writer never goes back to an earlier segment, whatever the clock says, and what it says it has seen stands in no
    later one.
    """

    def __init__(self, location: LogLocation, max_bytes: int = MAX_BYTES) -> None:
        self._location = location
        self._max_bytes = max_bytes
        self._base: str | None = None
        self._least = 0
        self._key: Key | None = None  # of the segment that is written; not looked up yet
        self._number = 0
        self._full = False

    def identity(self) -> str:
        return self._location.make_identity()

    def turned(self) -> bool:
        base = "" if self._location.name is not None else max(_day(), self._base or "")
        if base == self._base and not self._full:
            return False
        self._least = 0 if base != self._base or self._key is None else self._number + 1
        self._base, self._key, self._full = base, None, False
        return True

    def last(self) -> bytes | None:
        parts = self._location.parts()
        self._chosen(parts)
        own = LogPosition(self._base or "", self._number)
        for key in reversed(parts):
            if (self._location.place(key) or own) <= own:
                for line in reversed(self._tail(key).split(b"\n")):
                    if (found := head(line)) and (found.whole or found.keyed):
                        return line
        return None

    def append(self, batch: LogBatch) -> None:
        key = batch.key = batch.key or self._key or self._chosen(self._location.parts())
        if batch.doubtful and batch.data in self._tail(key, len(batch.data) + _TAIL):
            return
        done = self._location.store.run(flows.append, key, batch.data, separator=b"\n")
        self._full = (done.size or 0) >= self._max_bytes

    def _chosen(self, parts: Iterable[Key]) -> Key:
        """The segment to be written: the newest of its day, and none that was full."""
        places = map(self._location.place, parts)
        newest = max((place.number for place in places if place and place.base == self._base), default=0)
        self._number = max(self._least, newest)
        self._key = self._location.segment(self._base or "", self._number)
        return self._key

    def _tail(self, key: Key, size: int = _TAIL) -> bytes:
        try:
            return self._location.store.read(key, -size).data
        except AgentMemoryFileNotFoundError:
            return b""


class BatchedLog(Uncopied):
    """Each batch an object of its own under a name in the order of time, created and never changed."""

    def __init__(self, location: LogLocation) -> None:
        self._location = location
        self._begun = False

    def identity(self) -> str:
        return self._location.make_identity()

    def turned(self) -> bool:
        begun, self._begun = self._begun, True
        return not begun

    def last(self) -> bytes | None:
        return None

    def append(self, batch: LogBatch) -> None:
        moment = datetime.fromtimestamp(batch.seconds, UTC)
        name = f"{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{batch.writer}-{batch.seq:012d}.jsonl"
        key = self._location.directory.join(name)
        try:
            self._location.store.run(flows.create, key, batch.data)
        except FileAlreadyExistsError:
            if not batch.doubtful:
                raise


def open_log(location: LogLocation, max_bytes: int = MAX_BYTES) -> Log:
    """The way to write there: a blocking backend appends in place, another is a network away."""
    if isinstance(location.store.backend, BlockingBackend):
        return SegmentedLog(location, max_bytes)
    return BatchedLog(location)


def _day() -> str:
    return f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d}"
