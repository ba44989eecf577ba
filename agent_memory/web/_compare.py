"""Two texts side by side, with the words that differ marked; bounded in lines and in work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from markupsafe import Markup

from agent_memory.web._text import shown

MOST_LINES: Final = 2000
"""The lines of each side that are compared, after those that both begin with."""
_AROUND: Final = 3
_LONGEST: Final = 2000
_MOST_TOKENS: Final = 300
_LEAST_RATIO: Final = 0.3
_MOST_STEPS: Final = 2_000_000
_TOKEN: Final = re.compile(r"\w+|\s+|[^\w\s]")

Block: TypeAlias = tuple[str, int, int, int, int]
"""What `difflib.SequenceMatcher` calls an opcode, of lines."""


class Side(NamedTuple):
    """A line of one side: its number, its text, and whether the other side lacks it."""

    number: int
    text: Markup
    differs: bool


class ComparedRow(NamedTuple):
    """A line of both sides; or ``equal`` lines that are not shown."""

    old: Side | None
    new: Side | None
    equal: int = 0


class Comparison(NamedTuple):
    """The rows, the numbers of lines that only one side has, and how many lines of each side were not compared."""

    rows: tuple[ComparedRow, ...]
    removed: int
    added: int
    old_left: int
    new_left: int


def compare(old: str, new: str) -> Comparison:
    """Compare two texts line by line."""
    before, after = old.split("\n"), new.split("\n")
    blocks, left = blocks_of(before, after)
    rows = tuple(_rows(_joined(blocks), before, after))
    changed = [block for block in blocks if block[0] != "equal"]
    return Comparison(rows, sum(b[2] - b[1] for b in changed), sum(b[4] - b[3] for b in changed), left[0], left[1])


def blocks_of(before: Sequence[str], after: Sequence[str]) -> tuple[list[Block], list[int]]:
    """Return the blocks of equal and of different lines, and how many lines of each side were not compared."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    middle = before[start : len(before) - end], after[start : len(after) - end]
    left = [max(0, len(lines) - MOST_LINES) for lines in middle]
    blocks: list[Block] = [("equal", 0, start, 0, start)]
    for tag, i, j, k, m in SequenceMatcher(None, middle[0][:MOST_LINES], middle[1][:MOST_LINES]).get_opcodes():
        blocks.append((tag, start + i, start + j, start + k, start + m))
    if not any(left):
        blocks.append(("equal", len(before) - end, len(before), len(after) - end, len(after)))
    return blocks, left


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts have in common at their beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without empty ones; equal blocks that follow each other are one."""
    found: list[Block] = []
    for tag, i, j, k, m in blocks:
        if found and tag == found[-1][0] == "equal":
            found[-1] = (tag, found[-1][1], j, found[-1][3], m)
        elif i < j or k < m:
            found.append((tag, i, j, k, m))
    return found


def _rows(blocks: Sequence[Block], before: Sequence[str], after: Sequence[str]) -> Iterator[ComparedRow]:
    steps = [_MOST_STEPS]
    for number, (tag, i, j, k, m) in enumerate(blocks):
        if tag == "equal":
            yield from _equal_rows(before, i, j, k, number == 0, number == len(blocks) - 1)
        else:
            for left, right in zip_longest(range(i, j), range(k, m)):
                yield _row(before, after, left, right, steps)


def _equal_rows(
    lines: Sequence[str], start: int, end: int, other: int, is_first: bool, is_last: bool
) -> Iterator[ComparedRow]:
    """The first and the last lines that both sides have, and the number of those between them."""
    head, tail = 0 if is_first else _AROUND, 0 if is_last else _AROUND
    hidden = end - start - head - tail
    numbers: list[int] = [*range(start, end)] if hidden <= 1 else [*range(start, start + head), *range(end - tail, end)]
    for number in numbers:
        if hidden > 1 and number == end - tail:
            yield ComparedRow(None, None, hidden)
        text = shown(lines[number][:_LONGEST])
        yield ComparedRow(Side(number + 1, text, False), Side(number - start + other + 1, text, False))
    if hidden > 1 and not tail:
        yield ComparedRow(None, None, hidden)


def _row(
    before: Sequence[str], after: Sequence[str], left: int | None, right: int | None, steps: list[int]
) -> ComparedRow:
    if left is None or right is None:
        old = None if left is None else Side(left + 1, shown(before[left][:_LONGEST]), True)
        new = None if right is None else Side(right + 1, shown(after[right][:_LONGEST]), True)
        return ComparedRow(old, new)
    old_text, new_text = _marked(before[left][:_LONGEST], after[right][:_LONGEST], steps)
    return ComparedRow(Side(left + 1, old_text, True), Side(right + 1, new_text, True))


def _marked(old: str, new: str, steps: list[int]) -> tuple[Markup, Markup]:
    """Two lines with the words marked that the other one lacks; unmarked if they are long or have nothing in common."""
    tokens: list[list[str]] = [_TOKEN.findall(text) for text in (old, new)]
    steps[0] -= len(tokens[0]) * len(tokens[1])
    if steps[0] < 0 or max(map(len, tokens)) > _MOST_TOKENS:
        return shown(old), shown(new)
    matcher = SequenceMatcher(None, tokens[0], tokens[1], autojunk=False)
    if matcher.quick_ratio() < _LEAST_RATIO:
        return shown(old), shown(new)
    found = Markup(""), Markup("")
    for tag, i, j, k, m in matcher.get_opcodes():
        old_piece, new_piece = shown("".join(tokens[0][i:j])), shown("".join(tokens[1][k:m]))
        if tag != "equal":
            old_piece = old_piece and Markup("<del>{}</del>").format(old_piece)
            new_piece = new_piece and Markup("<ins>{}</ins>").format(new_piece)
        found = found[0] + old_piece, found[1] + new_piece
    return found
