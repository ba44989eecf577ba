"""The parts that the adapters of agent frameworks share: views of a memory, ids as names, JSON lines and errors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any, Final, TypeAlias, TypeVar

from agent_memory._json import parse_json, refuse_constant, require_levels
from agent_memory.core.one_file import attempt_each, fails_alone, raise_failed
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.errors import (
    DISTRIBUTION,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    BackendNotAvailableError,
    FileAlreadyExistsError,
    InvalidContentError,
    InvalidPathError,
    ReadError,
    install_hint,
)
from agent_memory.key import decode_segment, encode_segment, segments
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.reading.lines import MARK, MAX_LINE, backwards, forwards
from agent_memory.reading.reader import Reader
from agent_memory.tools._each_file import LeftOut, each_file, reason_of

__all__ = [
    "AnyMemory",
    "Records",
    "append_records",
    "async_view",
    "attempt_each",
    "checked_bytes",
    "checked_id",
    "done_each",
    "each_file",
    "found_each",
    "from_json",
    "known_text",
    "mapped_errors",
    "raise_failed",
    "read_each",
    "record_line",
    "record_segment",
    "records",
    "remove",
    "segment_text",
    "step",
    "sync_facade",
    "sync_view",
    "to_json",
    "unusable",
    "warn_left_out",
    "without_mark",
]

_log = logging.getLogger("agent_memory")
_TEXTS: Final = ".texts"
"""The directory of the texts whose path segment contains only their digest."""
AnyMemory: TypeAlias = AgentMemory | AsyncAgentMemory
Item = TypeVar("Item")
T = TypeVar("T")
Parse: TypeAlias = Callable[[Any], T | None]
"""A record of a JSON value; None if the value is no record."""


def async_view(memory: AnyMemory) -> AsyncAgentMemory:
    """Return a memory for the async methods of an adapter.

    Raises:
        TypeError: ``memory`` is no memory.
    """
    return _checked(memory).as_async()


def sync_view(memory: AnyMemory) -> AsyncAgentMemory:
    """Return a memory whose methods never suspend, so that `step` runs the logic of an adapter's sync methods.

    Raises:
        TypeError: ``memory`` is no memory.
    """
    return sync_facade(_checked(memory).as_sync())


def _checked(memory: AnyMemory) -> AnyMemory:
    if not isinstance(memory, AgentMemory | AsyncAgentMemory):
        raise TypeError(f"an adapter takes an AgentMemory or an AsyncAgentMemory, not {type(memory).__name__}")
    return memory


def checked_id(name: str, text: str) -> str:
    """Return an id that a caller gave.

    Raises:
        TypeError: it is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text


def checked_bytes(content: bytes) -> bytes:
    """Return the content of a file of bytes.

    Raises:
        InvalidContentError: it is no bytes-like object.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidContentError(f"content must be bytes, not {type(content).__name__}")
    return bytes(content)


def unusable(framework: str, extra: str, error: ImportError) -> BackendNotAvailableError:
    """Return the error for a framework that is missing, or that does not have the names which an adapter imports.

    Args:
        framework: the framework's name on the package index.
        extra: the extra that installs it.
        error: the failed import.
    """
    try:
        found = metadata.version(framework)
    except metadata.PackageNotFoundError:
        return BackendNotAvailableError(f"{framework} is missing: {install_hint(extra)}")
    return BackendNotAvailableError(
        f"{framework} {found} does not fit this adapter, which needs {_bounds(framework)} ({error.msg}): "
        f"{install_hint(extra)}"
    )


def _bounds(framework: str) -> str:
    """The versions that this distribution allows, as written in its metadata."""
    requirements = (line.partition(";")[0].strip() for line in metadata.requires(DISTRIBUTION) or ())
    return next((each for each in requirements if each.startswith(framework)), framework)


def to_json(value: object) -> str:
    """Return a value as one line of JSON, without the line's end.

    Raises:
        InvalidContentError: the value is not JSON: another type, NaN, nested too deeply, or lone surrogates.
    """
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line.encode()
        require_levels(line)
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise InvalidContentError(f"the record cannot be stored as JSON: {type(error).__name__}") from None
    return line


def from_json(data: str | bytes) -> Any:
    """Return the value of a JSON text, which may begin with a byte order mark; None if it is damaged."""
    try:
        return parse_json(data, parse_constant=refuse_constant)
    except ValueError:  # UnicodeDecodeError is a ValueError
        return None


def without_mark(line: bytes) -> bytes:
    """Return a line without a byte order mark at its beginning."""
    return line.removeprefix(MARK)


async def append_records(memory: AsyncAgentMemory, path: str, values: Iterable[object]) -> WriteResult | None:
    """Append values to a file as JSON lines, in one append: all or none, with no others between them.

    Raises:
        InvalidContentError: a value is not JSON, or its line is longer than a read finds (16 MiB); nothing was written.
    """
    text = "".join(map(record_line, values))
    return await memory.append(path, text, separator="\n") if text else None


def record_line(value: object) -> str:
    """Return a value as a line of JSON, with its end of line; errors as `append_records`."""
    line = to_json(value)
    if len(line) > MAX_LINE // 4 and len(line.encode()) > MAX_LINE:  # a character has at most 4 bytes
        raise InvalidContentError(f"the record's line has more than {MAX_LINE:,} bytes")
    return f"{line}\n"


class Records(list[T]):
    """Records of a file, in order.

    Attributes:
        damaged: the number of lines without a record that were read; blank lines do not count.
    """

    damaged = 0

    def add(self, line: bytes, parse: Parse[T]) -> None:
        """Add the record of a line."""
        if not without_mark(line).strip():
            return
        record = parse(from_json(line))
        if record is None:
            self.damaged += 1
        else:
            self.append(record)


async def records(memory: AsyncAgentMemory, path: str, parse: Parse[T], count: int | None = None) -> Records[T] | None:
    """Return the records of a file of JSON lines; lines without a record are left out; None without a file.

    Args:
        memory: the memory of the file.
        path: the file.
        parse: makes a record from the value of a line.
        count: return the last ``count`` records, and read only the end of the file; None returns all.
    """
    if count is not None and count <= 0:
        return Records[T]()

    async def work(reader: Reader) -> Records[T]:
        found = Records[T]()
        async for lines in forwards(reader) if count is None else backwards(reader):
            found.damaged += bool(lines.too_long)
            rows = lines.data.split(b"\n")
            for line in rows if count is None else reversed(rows):
                if len(found) != count:
                    found.add(line, parse)
            if len(found) == count:
                break
        if count is not None:
            found.reverse()
        return found

    try:
        return await memory.scan(path, work)
    except AgentMemoryFileNotFoundError:
        return None


async def found_each(
    memory: AsyncAgentMemory,
    function: Callable[[Item], Awaitable[T]],
    items: Iterable[Item],
    path_of: Callable[[Item], str] = str,
) -> list[tuple[Item, T]]:
    """Call a function for each file, without files that are gone or, with a warning, that cannot be read."""
    left_out: list[LeftOut] = []
    found = await each_file(memory, function, items, left_out, path_of)
    warn_left_out(left_out)
    return found


async def remove(memory: AsyncAgentMemory, path: str) -> None:
    """Delete a file; a missing file is no error."""
    with suppress(AgentMemoryFileNotFoundError):
        await memory.delete(path)


async def read_each(memory: AsyncAgentMemory, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of files by path, without files that are gone or, with a warning, that cannot be read."""
    return dict(await found_each(memory, memory.read_bytes, paths))


async def done_each(
    memory: AsyncAgentMemory, function: Callable[[str], Awaitable[object]], paths: Iterable[str]
) -> None:
    """Call a function for each path, also after one failed; errors as `agent_memory.core.one_file.raise_failed`."""
    failed: dict[str, AgentMemoryError] = {}
    names = list(dict.fromkeys(paths))
    await attempt_each(memory._map, function, names, failed)
    raise_failed(failed, names)


def warn_left_out(left_out: Sequence[LeftOut]) -> None:
    """Log the number of the files that a call left out, and one of them."""
    if left_out:
        path, reason = min(left_out)
        _log.warning("%d files could not be read and are left out; one is %s: %s", len(left_out), path, reason)


async def record_segment(memory: AsyncAgentMemory, text: str, suffix: str = "") -> str:
    """Encode any text as `agent_memory.encode_segment` does; if its segment is hashed, store the text in the memory.

    The file is ``.texts/<SHA-256>``. It is created once, by one operation.

    Raises:
        InvalidContentError: a plugin changes the text, so its segment cannot be recorded.
    """
    segment = encode_segment(text, suffix)
    if digest := segments.hashed_digest(segment.removesuffix(suffix)):
        try:
            result = await memory.create(f"{_TEXTS}/{digest}", segments.to_bytes(text))
        except FileAlreadyExistsError as error:
            if error.taken_by != "file":  # else it was recorded before
                raise
        else:
            if result.sha256 != digest:
                raise InvalidContentError("a plugin changes this text, so its segment cannot be recorded")
    return segment


async def segment_text(memory: AsyncAgentMemory, segment: str, suffix: str = "") -> str:
    """Return the text of a segment that `agent_memory.encode_segment` or `record_segment` made.

    Raises:
        InvalidPathError: no text has this segment.
        AgentMemoryFileNotFoundError: the segment is hashed, and its text is not recorded in this tree.
    """
    try:
        return decode_segment(segment, suffix)
    except InvalidPathError as error:
        if error.rule != "hashed":
            raise
    digest = segments.hashed_digest(segment.removesuffix(suffix))
    data = await memory.read_bytes(f"{_TEXTS}/{digest}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise ReadError("the record of a segment's text has been changed", path=f"{_TEXTS}/{digest}")
    return segments.to_text(data)


async def known_text(memory: AsyncAgentMemory, segment: str, suffix: str = "") -> str | None:
    """Return the text of a segment.

    None if another program made the name, or, with a warning, if the record of the text cannot be read.
    """
    try:
        return await segment_text(memory, segment, suffix)
    except (InvalidPathError, AgentMemoryFileNotFoundError):
        return None
    except AgentMemoryError as error:
        if not fails_alone(error):
            raise
        warn_left_out([LeftOut(segment, reason_of(error))])
        return None


@contextmanager
def mapped_errors(table: Mapping[type[AgentMemoryError], Callable[[AgentMemoryError], Exception]]) -> Iterator[None]:
    """Raise the error that a framework expects instead of ours, which becomes its cause.

    Args:
        table: makes the framework's error from ours; the first entry whose type fits is used.
    """
    try:
        yield
    except AgentMemoryError as error:
        for kind, make in table.items():
            if isinstance(error, kind):
                raise make(error) from error
        raise
