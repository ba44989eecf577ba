"""Where the audit log lies, and how lines get there: one file after another on disk, one object a batch over a network.

Everything goes through a backend and never through hooks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol, cast

from agent_memory import flows, tree_flows
from agent_memory.audit.record import head
from agent_memory.backend import AnyBackend, Backend, BlockingBackend
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory.key import Key
from agent_memory.lines import lines_at
from agent_memory.reader import Reader
from agent_memory.registry import open_backend
from agent_memory.runners import run_sync, step, sync_run

DIRECTORY: Final = "audit"
MAX_BYTES: Final = 64_000_000
"""The size at which a segment is followed by the next one."""
_TAIL = 64 * 1024
_DAILY = re.compile(r"(?P<base>\d{4}-\d\d-\d\d)(?:\.(?P<number>\d{1,9}))?\.jsonl\Z")
_BATCH = re.compile(r"(?P<base>\d{4}-\d\d-\d\d)/(?P<batch>\d{6}\.\d{6}-[0-9a-f]{16}-\d+)\.jsonl\Z")


@dataclass
class Batch:
    """Lines of one writer to be written together, from number ``seq`` on; ``doubtful``: they may be there already."""

    seconds: float
    writer: str
    seq: int
    data: bytes
    doubtful: bool = False


class Log(Protocol):
    """What a journal writes to."""

    def turned(self) -> bool:
        """Whether what is written next begins a segment; True once for each."""
        ...

    def last(self) -> bytes | None:
        """The last whole record of all, where it can be told at little cost."""
        ...

    def append(self, batch: Batch) -> None:
        """Write, durable to the level of the backend; a doubtful batch only if it is not there yet."""
        ...


class LogLocation(NamedTuple):
    """A log in a file and its successors, or, where ``name`` is None, below a root, by days."""

    backend: AnyBackend
    directory: Key
    name: str | None

    def segment(self, base: str, number: int) -> Key:
        """The key of a segment."""
        name = PurePosixPath(self.name or f"{base}.jsonl")
        return self.directory.join(f"{name.stem}{f'.{number}' if number else ''}{name.suffix}")

    def parts(self) -> list[Key]:
        """The keys of all segments and batches, in order; empty if there is no log."""
        store = cast(Backend, self.backend)
        listing = run_sync(
            self.backend,
            lambda run: tree_flows.list_all(store, run, self.directory, recursive=self.name is None),
        )
        found = [(place, entry.key) for entry in listing.entries if (place := self.place(entry.key))]
        return [key for _, key in sorted(found)]

    def blocks(self, part: Key) -> Iterator[bytes]:
        """Whole lines of a part, about a megabyte at once; a line beyond measure is cut."""
        run = sync_run(self.backend)
        reader, start = Reader(cast(Backend, self.backend), run, part), 0
        while found := step(lines_at(reader, start)):
            yield found.too_long or found.data
            start = found.end
            if start >= reader.size:
                return

    def name_of(self, part: Key) -> str:
        """How a part is called beside the others."""
        return part.relative_to(self.directory).path

    def place(self, key: Key) -> tuple[str, int, str] | None:
        """Where a part stands among the others."""
        text = self.name_of(key)
        if self.name is None:
            match = _DAILY.match(text) or _BATCH.match(text)
            groups = match.groupdict() if match else {}
            return (match["base"], int(groups.get("number") or 0), groups.get("batch") or "") if match else None
        name = PurePosixPath(self.name)
        numbered = re.fullmatch(rf"{re.escape(name.stem)}(?:\.(\d{{1,9}}))?{re.escape(name.suffix)}", text)
        return ("", int(numbered[1] or 0), "") if numbered else None


def log_at(target: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> LogLocation:
    """The log in a file, named as the key grammar allows, or below the root of a URL.

    Raises:
        InvalidPathError: the file's name.
        BackendNotAvailableError: no backend for the URL.
    """
    if isinstance(target, str) and "://" in target:
        return LogLocation(open_backend(target, storage_options), Key.internal(DIRECTORY), None)
    path = Path(target).expanduser()
    Key.tree().join(path.name)
    return LogLocation(open_backend(path.parent, storage_options), Key.tree(), path.name)


class SegmentedLog:
    """Lines appended in place, by any number of writers; past ``max_bytes`` each goes on to the next segment."""

    def __init__(self, location: LogLocation, max_bytes: int = MAX_BYTES) -> None:
        self._location = location
        self._store = cast(Backend, location.backend)
        self._max_bytes = max_bytes
        self._base: str | None = None
        self._number: int | None = None  # not looked up yet
        self._full = False

    def turned(self) -> bool:
        base = _day() if self._location.name is None else ""
        if base == self._base and not self._full:
            return False
        if base != self._base:
            self._base, self._number = base, None
        elif self._number is not None:
            self._number += 1
        self._full = False
        return True

    def last(self) -> bytes | None:
        for key in reversed(self._location.parts()):
            for line in reversed(self._tail(key).split(b"\n")):
                if (found := head(line)) and (found.whole or found.keyed):
                    return line
        return None

    def append(self, batch: Batch) -> None:
        base = self._base or ""
        if self._number is None:
            self._number = self._newest(base)
        key = self._location.segment(base, self._number)
        if batch.doubtful and batch.data in self._tail(key, len(batch.data) + _TAIL):
            return
        done = run_sync(
            self._location.backend, lambda run: flows.append(self._store, run, key, batch.data, separator=b"\n")
        )
        self._full = (done.size or 0) >= self._max_bytes

    def _newest(self, base: str) -> int:
        places = map(self._location.place, self._location.parts())
        return max((place[1] for place in places if place and place[0] == base), default=0)

    def _tail(self, key: Key, size: int = _TAIL) -> bytes:
        try:
            return run_sync(self._location.backend, lambda run: run.call(self._store.read, key, -size)).data
        except AgentMemoryFileNotFoundError:
            return b""


class BatchedLog:
    """Each batch an object of its own under a name in the order of time, created and never changed."""

    def __init__(self, location: LogLocation) -> None:
        self._location = location
        self._store = cast(Backend, location.backend)
        self._begun = False

    def turned(self) -> bool:
        begun, self._begun = self._begun, True
        return not begun

    def last(self) -> bytes | None:
        return None

    def append(self, batch: Batch) -> None:
        moment = datetime.fromtimestamp(batch.seconds, UTC)
        name = f"{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{batch.writer}-{batch.seq:012d}.jsonl"
        key = self._location.directory.join(name)
        try:
            run_sync(self._location.backend, lambda run: flows.create(self._store, run, key, batch.data))
        except FileAlreadyExistsError:
            if not batch.doubtful:
                raise


def open_log(location: LogLocation, max_bytes: int = MAX_BYTES) -> Log:
    """The way to write there: a blocking backend appends in place, another is a network away."""
    if isinstance(location.backend, BlockingBackend):
        return SegmentedLog(location, max_bytes)
    return BatchedLog(location)


def _day() -> str:
    return f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d}"
