r"""Whole lines of a file, forwards and backwards, in blocks of bounded size.

A line ends at ``\n``; the last line may end with the file. Lines longer than `MAX_LINE` are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from agent_memory.errors import FileTooLargeError
from agent_memory.reading.reader import Reader

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that some editors put at the beginning of a file; it is part of no line."""
MAX_LINE: Final = 16 * 1024 * 1024
"""The most bytes of a line that are held in memory."""
BLOCK: Final = 1024 * 1024
"""Bytes of one read forwards."""
TAIL: Final = 64 * 1024
"""Bytes of the first read backwards; each next read is twice as large, up to `BLOCK`."""


class Lines(NamedTuple):
    """Whole lines of a file.

    ``start`` is the offset of the first line; ``end`` is the offset after the last one. ``raw`` is the block that was
    read: it begins at ``start`` and may go past ``end``. If a line was skipped, ``raw`` is empty and ``too_long`` is
    the beginning of that line.
    """

    start: int
    end: int
    raw: bytes
    too_long: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes of the lines; a copy if ``raw`` goes past ``end``."""
        return self.raw[: self.end - self.start]


async def forwards(reader: Reader, start: int = 0, block: int = BLOCK) -> AsyncIterator[Lines]:
    """Yield all lines from the line that begins at ``start``, in order."""
    found = await lines_at(reader, start, block)
    while found:
        yield found
        found = await lines_at(reader, found.end, block) if found.end < reader.size else None


async def lines_at(reader: Reader, start: int, block: int = BLOCK) -> Lines | None:
    """The next lines from ``start``, at least one; None at the end of the file."""
    size = block
    while True:
        data = await reader.read(start, start + size)
        if not data:
            return None
        at_end = start + len(data) >= reader.size
        if whole := len(data) if at_end else data.rfind(b"\n") + 1:
            return Lines(start, start + whole, data)
        if size > MAX_LINE:
            return Lines(start, await _next_line(reader, start + len(data)), b"", data[:BLOCK])
        size = min(2 * size, MAX_LINE + block)


async def _next_line(reader: Reader, start: int) -> int:
    while data := await reader.read(start, start + BLOCK):
        if at := data.find(b"\n") + 1:
            return start + at
        start += len(data)
    return start


async def backwards(reader: Reader, end: int | None = None, block: int = TAIL) -> AsyncIterator[Lines]:
    """Yield all lines before ``end``, the last first; a line begins at ``end``, None is the end of the file."""
    size = block
    while end is None or end > 0:
        found = await _lines_before(reader, end, size)
        if found is None:
            return
        yield found
        end = found.start
        size = min(2 * size, BLOCK)


async def last_lines(reader: Reader, count: int, most: int) -> bytes:
    """Return the last ``count`` lines of a file.

    Raises:
        FileTooLargeError: they have more than ``most`` bytes, or one of them has more than `MAX_LINE`.
    """
    found: list[bytes] = []
    async for lines in backwards(reader):
        if lines.too_long:
            raise FileTooLargeError(f"a line has more than {MAX_LINE:,} bytes; scan() can read it")
        data, seen = _cut_to_last(lines.data, count)
        found.append(data)
        count -= seen
        most -= len(data)
        if most < 0:
            raise FileTooLargeError("these lines have more bytes than the limit for one call; ask for fewer lines")
        if not count:
            break
    return b"".join(reversed(found))


def _cut_to_last(data: bytes, count: int) -> tuple[bytes, int]:
    """The last lines of a block, at most ``count``, and their number."""
    start, seen = len(data), 0
    while start and seen < count:
        start = data.rfind(b"\n", 0, start - 1) + 1
        seen += 1
    return data[start:], seen


async def _lines_before(reader: Reader, end: int | None, size: int) -> Lines | None:
    while True:
        data = await (reader.read_tail(size) if end is None else reader.read(max(0, end - size), end))
        end = reader.size if end is None else end
        start = end - len(data)
        if not data:
            return None
        cut = data.find(b"\n") + 1 if start else 0
        if not start or 0 < cut < len(data):
            return Lines(start + cut, end, data[cut:])
        if size > MAX_LINE:
            begin = await _line_start(reader, start)
            return Lines(begin, end, b"", (await reader.read(begin, begin + TAIL)))
        size = min(2 * size, MAX_LINE + BLOCK)


async def _line_start(reader: Reader, end: int) -> int:
    while end:
        start = max(0, end - BLOCK)
        if at := (await reader.read(start, end)).rfind(b"\n") + 1:
            return start + at
        end = start
    return 0
