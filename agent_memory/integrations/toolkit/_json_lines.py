"""JSON lines: values as lines of a file, and the records of a file with a count of its damaged lines."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from agent_memory._json import parse_json, refuse_constant, require_levels
from agent_memory.errors import AgentMemoryFileNotFoundError, InvalidContentError
from agent_memory.memory import AsyncAgentMemory, WriteResult
from agent_memory.reading.lines import MARK, MAX_LINE, backwards, forwards
from agent_memory.reading.reader import Reader

T = TypeVar("T")
Parse: TypeAlias = Callable[[Any], T | None]
"""A record of a JSON value; None if the value is no record."""


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
        size: the size of the file in bytes when it was first read.
        ends: for each record the offset after its line; empty if only the last records were asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.damaged = self.size = 0
        self.ends: list[int] = []

    def add(self, line: bytes, parse: Parse[T]) -> bool:
        """Add the record of a line; return whether it holds one."""
        if not without_mark(line).strip():
            return False
        record = parse(from_json(line))
        if record is None:
            self.damaged += 1
        else:
            self.append(record)
        return record is not None


async def records(
    memory: AsyncAgentMemory, path: str, parse: Parse[T], count: int | None = None, *, start: int = 0
) -> Records[T] | None:
    """Return the records of a file of JSON lines; lines without a record are left out; None without a file.

    The file is read in blocks; what is held at once is the records and a block or a line, of at most 16 MiB.

    Args:
        memory: the memory of the file.
        path: the file.
        parse: makes a record from the value of a line.
        count: return the last ``count`` records, and read only the end of the file; None returns all.
        start: where to begin, without ``count``: the offset of a line.
    """
    if count is not None and count <= 0:
        return Records[T]()

    async def work(reader: Reader) -> Records[T]:
        found = Records[T]()
        await (_add_all(found, reader, parse, start) if count is None else _add_last(found, reader, parse, count))
        found.size = reader.size
        return found

    try:
        return await memory.scan(path, work)
    except AgentMemoryFileNotFoundError:
        return None


async def _add_all(found: Records[T], reader: Reader, parse: Parse[T], start: int) -> None:
    async for lines in forwards(reader, start):
        found.damaged += bool(lines.too_long)
        end = lines.start
        for line in io.BytesIO(lines.data):
            end += len(line)
            if found.add(line, parse):
                found.ends.append(end)


async def _add_last(found: Records[T], reader: Reader, parse: Parse[T], count: int) -> None:
    async for lines in backwards(reader):
        found.damaged += bool(lines.too_long)
        for line in reversed(lines.data.split(b"\n")):
            if len(found) < count:
                found.add(line, parse)
        if len(found) == count:
            break
    found.reverse()
