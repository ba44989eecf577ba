"""Files and directories as text for a model, and the model's two edits of a text. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from agent_memory.backend import Entry
from agent_memory.tools._strings import Strings
from agent_memory.tools.arguments import shown
from agent_memory.tools.results import ToolRefusal

MAX_LINES = 999_999
_WIDTH = 6
_SHORTEST_ROW = _WIDTH + 2
_DEPTH = 2
_AROUND = 2
_SHOWN = 1000
"""The most characters of a model's text in an answer."""


def numbered(lines: Iterable[str], first: int = 1) -> list[str]:
    """Prefix each line with its number, right-aligned in six columns, and a tab."""
    return [f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first)]


def file_view(text: str, view_range: Sequence[int] | None, limit: int, line_offset: int = 0) -> str:
    r"""The lines of a text, or of a range of it, cut at ``limit`` characters with a hint how to continue.

    Only ``\n`` ends a line, so the text after the last ``\n`` is a line too. A range is ``[start, end]``, both
    counted from 1 and included; ``-1`` is the end, and lines past the end are ignored. The first ``line_offset``
    characters of the first line are not shown.
    """
    lines = text.split("\n")
    start, end = _bounds(view_range, len(lines))
    if line_offset and start <= len(lines):
        lines[start - 1] = lines[start - 1][line_offset:]
    return _cut(lines, start, end, limit, line_offset)


def _cut(lines: list[str], start: int, end: int, limit: int, line_offset: int = 0) -> str:
    most = limit // _SHORTEST_ROW + 2  # more rows than this cannot fit
    rows, total = numbered(lines[start - 1 : min(end, start - 1 + most)], start), len(lines)
    count = _fitting(rows, limit)
    if count > end - start:
        return "\n".join(rows)
    if count:
        last = start + count - 1
        hint = f"lines {start}-{last} of {total} are shown; view the next with view_range [{last + 1}, -1]"
        return "\n".join([*rows[:count], f"[Cut at {limit:,} characters: {hint}]"])
    seen = limit - len(rows[0]) + len(lines[start - 1])
    rest = f"; view its rest with view_range [{start}, -1] and line_offset {line_offset + seen}" if seen > 0 else ""
    following = f"; view the next with view_range [{start + 1}, -1]" if start < total else ""
    return f"{rows[0][:limit]}\n[Cut at {limit:,} characters: line {start} of {total} is longer{rest}{following}]"


def snippet(text: str, position: int, limit: int) -> str:
    """The line at a position of a text, with two lines before and after it."""
    lines = text.split("\n")
    changed = text.count("\n", 0, position)
    first = max(0, changed - _AROUND)
    return _cut(lines, first + 1, min(len(lines), changed + _AROUND + 1), limit)


def replaced(text: str, old: str, new: str, path: str, strings: Strings) -> tuple[str, int]:
    """Replace the only occurrence of ``old``; returns the new text and the position of the replacement.

    Raises:
        ToolRefusal: ``old`` is empty, does not occur, or occurs more than once; overlapping occurrences count.
    """
    if not old:
        raise ToolRefusal(strings.empty)
    at = text.find(old)
    echo = old if len(old) <= _SHOWN else shown(old, _SHOWN)
    if at < 0:
        raise ToolRefusal(strings.absent.format(old_str=echo, path=path))
    if text.find(old, at + 1) >= 0:
        raise ToolRefusal(strings.duplicate.format(old_str=echo, lines=_occurrences(text, old)))
    return text[:at] + new + text[at + len(old) :], at


def inserted(text: str, line: int, addition: str, strings: Strings) -> str:
    """Insert lines after line ``line``, or at the beginning if it is 0; the result ends with a newline.

    Raises:
        ToolRefusal: ``line`` is negative, or the text has fewer lines.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolRefusal(strings.bad_line.format(line=line, lines=len(lines)))
    lines.insert(line, addition.rstrip("\n"))
    return "\n".join(lines) + "\n"


def _occurrences(text: str, part: str, most: int = 100) -> str:
    """The line numbers of the first ``most`` occurrences of a part; overlapping occurrences count."""
    found: list[str] = []
    line, seen = 1, 0
    position = text.find(part)
    while position >= 0 and len(found) < most:
        line, seen = line + text.count("\n", seen, position), position
        found.append(str(line))
        position = text.find(part, position + 1)
    return ", ".join(found) + (" and more" if position >= 0 else "")


def listing(path: str, below: int, entries: Iterable[Entry], view_range: Sequence[int] | None, limit: int) -> str:
    """A directory and its content up to two levels deep, with sizes; a directory's size is the sum of its files.

    Args:
        path: the directory, as the model writes it.
        below: how many leading segments of an entry's path are those of the directory.
        entries: every file below the directory.
        view_range: which names of a too long listing to show, counted from 1; ignored for other listings.
        limit: the most characters; a listing that is cut ends with a hint how to continue.
    """
    sizes: dict[tuple[str, ...], int] = defaultdict(int)
    directories: set[tuple[str, ...]] = set()
    for entry in entries:
        names = tuple(entry.path.split("/")[below:])
        if any(name.startswith(".") or name == "node_modules" for name in names):
            continue
        for depth in range(min(_DEPTH, len(names)) + 1):
            sizes[names[:depth]] += entry.size
            if depth < len(names):
                directories.add(names[:depth])
    rows = [f"{readable(sizes[()])}\t{path}"]
    rows += (
        f"{readable(sizes[names])}\t{path}/{'/'.join(names)}{'/' if names in directories else ''}"
        for names in sorted(sizes.keys() - {()})
    )
    return "\n".join(rows) if _fitting(rows, limit) == len(rows) else _cut_listing(rows, view_range, limit)


def _cut_listing(rows: list[str], view_range: Sequence[int] | None, limit: int) -> str:
    names = len(rows) - 1
    start, end = _bounds(view_range, names)
    wanted = rows[start : end + 1]
    fitting = wanted[: max(1, _fitting(wanted, limit - len(rows[0]) - 1))]
    last = start + len(fitting) - 1
    hint = f"names {start}-{last} of {names} are shown"
    if last < names:
        hint += f"; view the next with view_range [{last + 1}, -1], or view a directory below"
    return "\n".join([rows[0], *fitting, f"[Cut at {limit:,} characters: {hint}]"])


def _bounds(view_range: Sequence[int] | None, total: int) -> tuple[int, int]:
    if not view_range or len(view_range) != 2:
        return 1, total
    return max(1, view_range[0]), total if view_range[1] == -1 else max(0, min(total, view_range[1]))


def _fitting(rows: list[str], limit: int) -> int:
    """The number of rows that, joined by newlines, have at most ``limit`` characters."""
    sizes = accumulate((len(row) + 1 for row in rows), initial=-1)
    return sum(1 for _ in takewhile(lambda size: size <= limit, sizes)) - 1


def readable(size: int) -> str:
    """Format bytes as ``0B``, ``1023B``, ``2K``, ``1.5K``, ``1.1M``: an integer if exact, else one decimal."""
    unit = min((max(size, 1).bit_length() - 1) // 10, 3)
    scaled = size / 1024**unit
    return f"{scaled:.0f}{'BKMG'[unit]}" if scaled == int(scaled) else f"{scaled:.1f}{'BKMG'[unit]}"
