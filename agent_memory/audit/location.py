"""`LogLocation`: where an audit log is, and which parts it has.

All reads and writes go through a backend, never through hooks.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from agent_memory._json import parse_json
from agent_memory.audit.record import head
from agent_memory.backend import ABSENT, AnyBackend, BlockingBackend
from agent_memory.core import flows, tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.store_record import KnownStore
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, FileTooLargeError, ReadError
from agent_memory.key import Key
from agent_memory.reading.lines import Lines, backwards, lines_at
from agent_memory.reading.reader import Reader
from agent_memory.registry import open_backend
from agent_memory.runtime.run import step

DIRECTORY: Final = "audit"
_TAIL: Final = 64 * 1024
_BASE: Final = re.compile(r"([0-9]{6,9})\.jsonl")
_IDENTITY = (32, "not the identity of an audit log (32 hexadecimal digits)")
_DAILY = re.compile(r"(?P<base>\d{4}-\d\d-\d\d)(?:\.(?P<number>\d{1,9}))?\.jsonl\Z")
_BATCH = re.compile(
    r"(?P<base>\d{4}-\d\d-\d\d)/(?P<batch>\d{6}\.\d{6}-(?P<writer>[0-9a-f]{16})-(?P<seq>\d{12})-[0-9a-f]{8})\.jsonl\Z"
)
_MERGED = re.compile(r"(?P<base>\d{4}-\d\d-\d\d)/(?P<batch>(?P<hour>\d\d)\.merged\.(?P<count>\d{3,9}))\.jsonl\Z")
MERGED_MARK: Final = b'{"merged":['
"""How the first line of a part begins that was merged from batches: it has the names of the batches."""


class NoNumberError(ReadError):
    """A file with the name of a random number, such as the identity of a log, contains something else."""


class LogPosition(NamedTuple):
    """The sort key of a part of a log: its day, if it has one, and its number or batch name."""

    base: str
    number: int = 0
    batch: str = ""


class LogLocation(NamedTuple):
    """A log in a file and its numbered successors; or, if ``name`` is None, below a root with one part per day."""

    store: BlockingStore
    directory: Key
    name: str | None
    known: KnownStore

    @staticmethod
    def below(root: AnyBackend) -> LogLocation:
        """The location of the log in a store's own data."""
        return LogLocation(BlockingStore(root), Key.internal(DIRECTORY), None, KnownStore())

    def permit_write(self) -> None:
        """Name the log in the record of its store before a write; a log in a file belongs to no store.

        Raises:
            UnsupportedOperationError: this release is too old for the store.
            ReadError: the record of the store is damaged, or is that of another store.
        """
        if self.name is None:
            self.store.run(self.known.use, "audit")

    def segment(self, base: str, number: int) -> Key:
        """The key of a segment."""
        name = PurePosixPath(self.name or f"{base}.jsonl")
        return self.directory.join(f"{name.stem}{f'.{number}' if number else ''}{name.suffix}")

    def parts(self) -> list[Key]:
        """The keys of all segments and batches, in order; an empty list if there is no log."""
        return _in_order(self._listed())

    def readers(self) -> list[tuple[Key, Reader]]:
        """A consistent snapshot of all parts, even while writers append.

        Later parts are opened first. A writer never returns to an earlier part, so the earlier parts, which are opened
        afterwards, contain every record that precedes a record of a later part.
        """
        found = self._listed()
        if not isinstance(self.store.backend, BlockingBackend):
            found |= self._listed_late(found)
            merged = {name for part in self.merged(found) for name in self.merged_names(part)}
            return [(part, self._reader(part)) for part in _in_order(found) if self.name_of(part) not in merged]
        opened = []
        for part in reversed(_in_order(found)):
            opened.append((part, self._reader(part)))
            step(opened[-1][1].read(0, 0))
        return opened[::-1]

    def base_key(self, number: int) -> Key:
        """The key of a base: the first record of a log that was begun anew."""
        return self._bases().join(f"{number:06d}.jsonl")

    def base_numbers(self) -> list[int]:
        """The numbers of the bases, in their order."""
        listing = self.store.run(tree_flows.list_all, self._bases(), recursive=False)
        return sorted(int(found[1]) for entry in listing.entries if (found := _BASE.fullmatch(entry.key.name)))

    def base_record(self) -> bytes | None:
        """The line of the last record of the newest base; None if the log was never begun anew."""
        for number in reversed(self.base_numbers()):
            try:
                return self.store.read(self.base_key(number), -_TAIL).data.splitlines()[-1]
            except (AgentMemoryFileNotFoundError, IndexError):
                continue
        return None

    def _bases(self) -> Key:
        return Key.internal("audit.bases") if self.name is None else self.directory.join(f"{self.name}.bases")

    def is_keyed(self) -> bool | None:
        """Whether the hash of the log's first record is keyed; None if there is no record."""
        if line := self.base_record():
            found = head(line)
            return found.keyed if found else None
        for part in self._first_parts():
            for block in self.blocks(part):
                if first := next(filter(None, map(head, block.splitlines())), None):
                    return first.keyed
        return None

    def _first_parts(self) -> list[Key]:
        """Only the first part if one request can find it, else all parts."""
        if self.name is None:
            page = self.store.list(self.directory, limit=1)
            if page.entries and self.place(page.entries[0].key):
                return [page.entries[0].key]
            if not page.entries and page.next is None:
                return []
        return self.parts()

    def blocks(self, part: Key, reader: Reader | None = None, start: int = 0) -> Iterator[bytes]:
        """Yield whole lines of a part in blocks of about one megabyte; a line that is too long is cut."""
        reader = reader or self._reader(part)
        while found := step(lines_at(reader, start)):
            yield found.too_long or found.data
            start = found.end
            if start >= reader.size:
                return

    def blocks_from_end(self, reader: Reader) -> Iterator[bytes]:
        """Yield whole lines of a part in blocks, the last block first; a line that is too long is cut."""
        lines = backwards(reader, reader.size if reader.etag else None)

        async def next_lines() -> Lines | None:
            return await anext(lines, None)

        while found := step(next_lines()):
            yield found.too_long or found.data

    def identity(self) -> str | None:
        """The unique identity of this log, a random number in a file beside it; None if there is no such file yet.

        Raises:
            ReadError: the file does not contain an identity.
        """
        return self.number(self.identity_key(), *_IDENTITY)

    def make_identity(self) -> str:
        """The identity of this log, created if there is none yet; of several writers, exactly one creates it."""
        return self.make_number(self.identity_key(), *_IDENTITY)

    def number(self, key: Key, digits: int, refusal: str) -> str | None:
        """The random number in a file, in hexadecimal; None if there is no such file.

        Raises:
            NoNumberError: the file has other content; the message is ``refusal``.
        """
        try:
            text = self.store.run(flows.read, key).data.decode("ascii", errors="replace")
        except AgentMemoryFileNotFoundError:
            return None
        except FileTooLargeError:
            text = ""
        if not re.fullmatch(rf"[0-9a-f]{{{digits}}}\n?", text):
            raise NoNumberError(refusal, path=key.path)
        return text.removesuffix("\n")

    def make_number(self, key: Key, digits: int, refusal: str) -> str:
        """The random number in a file, created if there is none yet; of several writers, exactly one creates it."""
        self.permit_write()
        if found := self.number(key, digits, refusal):
            return found
        new = secrets.token_hex(digits // 2)
        try:
            self.store.run(flows.write, key, f"{new}\n".encode("ascii"), ABSENT)
        except FileAlreadyExistsError:
            if (made := self.number(key, digits, refusal)) is None:
                raise  # a file has the name of the directory, or the number was deleted since
            return made
        return new

    def identity_key(self) -> Key:
        """The key of the identity."""
        if self.name is None:
            return Key.internal(f"{DIRECTORY}.identity")
        return self.directory.join(f"{self.name}.identity")

    def _reader(self, part: Key) -> Reader:
        return self.store.reader(part)

    def _listed(self) -> dict[Key, LogPosition]:
        listing = self.store.run(tree_flows.list_all, self.directory, recursive=self.name is None)
        return {entry.key: place for entry in listing.entries if (place := self.place(entry.key))}

    def _listed_late(self, found: Iterable[Key]) -> dict[Key, LogPosition]:
        """What a first listing missed: earlier batches of its writers, and parts that were merged meanwhile."""
        latest: dict[str, int] = {}
        for key in found:
            if batch := _BATCH.match(self.name_of(key)):
                latest[batch["writer"]] = max(int(batch["seq"]), latest.get(batch["writer"], 0))
        return {
            key: place
            for key, place in self._listed().items()
            if _MERGED.match(self.name_of(key))
            or ((batch := _BATCH.match(self.name_of(key))) and int(batch["seq"]) < latest.get(batch["writer"], 0))
        }

    def merged(self, found: Iterable[Key]) -> list[Key]:
        """The merged parts of those hours that have batches too."""
        names = {self.name_of(key): key for key in found}
        hours = {name[:13] for name in names if _BATCH.match(name)}
        return [key for name, key in names.items() if _MERGED.match(name) and name[:13] in hours]

    def is_batch(self, part: Key) -> bool:
        """Whether a part is a batch: an object that a writer created."""
        return _BATCH.match(self.name_of(part)) is not None

    def merged_count(self, part: Key) -> int | None:
        """The number of a merged part in its hour; None for other parts."""
        found = _MERGED.match(self.name_of(part))
        return int(found["count"]) if found else None

    def merged_names(self, part: Key) -> list[str]:
        """The names of the batches in a merged part."""
        lines = step(lines_at(self._reader(part), 0))
        first = lines.data.partition(b"\n")[0] if lines else b""
        try:
            return [f"{self.name_of(part)[:11]}{name}" for name in parse_json(first)["merged"]]
        except (ValueError, TypeError, KeyError):
            return []  # the verification reports the line

    def name_of(self, part: Key) -> str:
        """The path of a part relative to the directory of the log."""
        return part.relative_to(self.directory).path

    def place(self, key: Key) -> LogPosition | None:
        """The position of a part among the others; None if the key is not a part of the log."""
        text = self.name_of(key)
        if self.name is None:
            if merged := _MERGED.match(text):  # in the order of their numbers, before the batches of the hour
                return LogPosition(merged["base"], 0, f"{merged['hour']}.merged.{merged['count']:0>9}")
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
    """Locate the log in a file, whose name must follow the key grammar, or below the root of a URL.

    Raises:
        InvalidPathError: the key grammar does not allow the name of the file.
        BackendNotAvailableError: there is no backend for the URL.
        ValueError: the path is a directory.
    """
    if isinstance(target, str) and "://" in target:
        return LogLocation.below(open_backend(target, storage_options))
    path = Path(target).expanduser()
    Key.tree().join(path.name)
    if path.is_dir():
        raise ValueError(
            f"{path.name!r} is a directory; the target of an audit log must be a file or the URL of a root (file://...)"
        )
    return LogLocation(BlockingStore(open_backend(path.parent, storage_options)), Key.tree(), path.name, KnownStore())
