r"""A file's text as a model sees it, and the text to store after a model changed it.

A model sees ``\n`` at the end of each line and no byte order mark. The file keeps its own line ends and its mark:

- An unchanged line and a changed line keep their ends. An added line takes the end of the line before it, at the top
  of the file that of the line after it.
- Only ``\n`` and ``\r\n`` end a line. A ``\r`` elsewhere is a character of its line.
- In a file without ``\r\n`` nothing is translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final

from agent_memory.errors import AgentMemoryError, InvalidPathError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import MARK, TAIL
from agent_memory.reading.reader import Reader

_MARK: Final = MARK.decode()
_LF, _CRLF = "\n", "\r\n"
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_MOST_ALIGNED: Final = 1000
"""The most changed lines that are compared one by one; the time grows with their square."""


class ModelText:
    """The text of one file for a model.

    Attributes:
        text: the text that the model sees.
        mark: the byte order mark; "" if there is none.
    """

    def __init__(self, stored: str) -> None:
        self.mark = _MARK if stored.startswith(_MARK) else ""
        self._body = stored.removeprefix(_MARK)
        self._is_translated = _CRLF in self._body
        self.text = self._body.replace(_CRLF, _LF)

    def given(self, text: str) -> str:
        """Return a text from the model with the line ends of `text`."""
        return text.replace(_CRLF, _LF) if self._is_translated else text

    def stored(self, text: str) -> str:
        """Return what to store if the model changed `text` to another text."""
        if not self._is_translated:
            return self.mark + text
        ends = [_CRLF if line.endswith("\r") else _LF for line in self._body.split(_LF)[:-1]]
        if _LF not in ends:
            return self.mark + text.replace(_LF, _CRLF)
        lines = text.split(_LF)
        return self.mark + "".join(map("".join, zip(lines, _aligned(self.text.split(_LF), lines, ends), strict=True)))


def _aligned(old: Sequence[str], new: Sequence[str], ends: Sequence[str]) -> list[str]:
    """Return the end of each new line; the last line has none."""
    known: dict[int, str] = {}
    for start, stop, new_start, new_stop in _blocks(old, new):
        pairs = zip(range(start, stop), range(new_start, new_stop), strict=False)
        known |= {number: ends[of_old] for of_old, number in pairs if of_old < len(ends)}
    end = known[min(known)] if known else ends[0]
    found = []
    for number in range(len(new) - 1):
        end = known.get(number, end)
        found.append(end)
    return [*found, ""]


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterable[tuple[int, int, int, int]]:
    """Yield the ranges of old and new lines that are equal or replace each other."""
    first = _equal(old, new)
    last = min(_equal(old[::-1], new[::-1]), min(len(old), len(new)) - first)
    stop, new_stop = len(old) - last, len(new) - last
    yield 0, first, 0, first
    if max(stop, new_stop) - first > _MOST_ALIGNED:
        yield first, stop, first, new_stop
    else:
        for _, i, j, k, n in SequenceMatcher(None, old[first:stop], new[first:new_stop]).get_opcodes():
            yield first + i, first + j, first + k, first + n
    yield stop, len(old), new_stop, len(new)


def _equal(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(old), len(new)))


def shown_part(data: bytes, start: int, limit: int) -> tuple[bytes, int]:
    r"""Return a part of a file as a model sees it, and how many bytes of the file it has.

    A part that is not UTF-8 is returned as it is. The second byte of a ``\r\n`` is never left for the next part.

    Args:
        data: the file's bytes from ``start`` on: ``limit`` of them and one more, fewer where the file ends.
        start: the offset of the part.
        limit: the most bytes to return.
    """
    part = data[: limit + 1] if data[limit - 1 : limit + 1] == b"\r\n" else data[:limit]
    if not is_text(part, start):
        return data[:limit], len(data[:limit])
    return (part if start else part.removeprefix(MARK)).replace(b"\r\n", b"\n"), len(part)


def is_text(part: bytes, start: int) -> bool:
    """Whether a part of a file is UTF-8; characters may be cut at both ends."""
    beginning = part[:3].lstrip(_CONTINUATION) if start else part[:3]
    try:
        (beginning + part[3:]).decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


async def overwriting(memory: AsyncAgentMemory, path: str, text: str) -> str:
    """Return what to store if a model replaces the whole text of a file; of a file that cannot be read, ``text``."""
    try:
        shown = ModelText(await memory.read(path))
    except InvalidPathError:
        raise
    except AgentMemoryError:
        return text
    return shown.stored(shown.given(text.removeprefix(shown.mark)))


async def appending(memory: AsyncAgentMemory, path: str, *texts: str) -> Sequence[str]:
    r"""Return texts that a model appends, with ``\r\n`` if the file's last line end is one.

    The last 64 KiB of the file decide. Texts for a file that cannot be read are returned as they are.
    """

    async def work(reader: Reader) -> bool:
        data = await reader.read_tail(TAIL)
        return data[: data.rfind(b"\n")].endswith(b"\r") if b"\n" in data else False

    try:
        is_crlf = await memory.scan(path, work)
    except InvalidPathError:
        raise
    except AgentMemoryError:
        is_crlf = False
    return [text.replace(_CRLF, _LF).replace(_LF, _CRLF) for text in texts] if is_crlf else texts
