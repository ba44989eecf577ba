"""Lines of a file for one page, read in ranges: bounded memory, whatever the file holds."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent_memory.backend import ETag
from agent_memory.reading.reader import Reader
from agent_memory.tools._model_text import is_text

BLOCK: Final = 128 * 1024
"""The bytes of a page."""
MOST_LINES: Final = 1000
"""The lines of a page."""
LONGEST: Final = 4000
"""The bytes of a line that a page shows."""
_STEP: Final = 1024 * 1024
_BEFORE: Final = 5


class ShownLine(NamedTuple):
    """A line: its number, its first bytes, and how many bytes follow them."""

    number: int
    data: bytes
    rest: int

    @property
    def text(self) -> str:
        """The text of the first bytes; invalid bytes are replaced."""
        return self.data.decode(errors="ignore" if self.rest else "replace")


class LinesPage(NamedTuple):
    """The lines from a position in a file.

    Attributes:
        lines: the lines.
        start: the position of the first byte.
        end: the position after the last line.
        next_line: the number of the line at ``end``.
        size: the size of the file in bytes.
        etag: the etag of the state that was read.
        is_text: whether the bytes that were read are text in UTF-8.
        head: the first bytes.
    """

    lines: tuple[ShownLine, ...]
    start: int
    end: int
    next_line: int
    size: int
    etag: ETag | None
    is_text: bool
    head: bytes


async def lines_page(reader: Reader, at: int, number: int, longest: int = LONGEST) -> LinesPage:
    """Read the lines from a position on, where the line with a number begins."""
    data = await reader.read(at, at + BLOCK)
    lines: list[ShownLine] = []
    begin = 0
    while begin < len(data) and len(lines) < MOST_LINES:
        stop = data.find(b"\n", begin)
        after = stop + 1
        if stop < 0:
            if lines and at + len(data) < reader.size:
                break  # the next page begins with this line
            stop, after = await _line_end(reader, at, len(data))
        shown = data[begin : min(stop, begin + longest)]
        lines.append(ShownLine(number + len(lines), shown, stop - begin - len(shown)))
        begin = after
    has_text = b"\0" not in data and is_text(data, at)
    next_line = number + len(lines)
    return LinesPage(tuple(lines), at, at + begin, next_line, reader.size, reader.etag, has_text, data[:512])


async def _line_end(reader: Reader, start: int, at: int) -> tuple[int, int]:
    """Where the line that goes on at a position ends, and where the next line begins, both relative to ``start``."""
    while start + at < reader.size and (data := await reader.read(start + at, start + at + _STEP)):
        if (found := data.find(b"\n")) >= 0:
            return at + found, at + found + 1
        at += len(data)
    return at, at


async def position_of(reader: Reader, number: int) -> tuple[int, int]:
    """The position a few lines before the line with a number, and the number of the line there.

    A file with fewer lines has its last lines there. The whole file up to the line is read, in ranges.
    """
    wanted, line, at, ends = max(1, number - _BEFORE), 1, 0, False
    while data := await reader.read(at, at + _STEP):
        found = data.count(b"\n")
        if line + found >= wanted:
            begin = 0
            for _ in range(wanted - line):
                begin = data.find(b"\n", begin) + 1
            if at + begin < reader.size:
                return at + begin, wanted
        line += found
        at += len(data)
        ends = data.endswith(b"\n")
    last = line - ends
    return await position_of(reader, last) if last < number else (0, 1)
