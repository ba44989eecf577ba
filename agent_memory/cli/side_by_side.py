"""Two texts beside each other, for the command diff."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_memory.cli.output import draw, printable

if TYPE_CHECKING:
    from rich.table import Table

_LINES_AROUND: Final = 3


class LinePair(NamedTuple):
    """A line of both texts; None where a text has none. The mark is as in a diff: " ", "-", "+" or "|"."""

    old: str | None
    mark: str
    new: str | None


def rows(old: str, new: str) -> Iterator[list[LinePair]]:
    """Yield the groups of lines in which two texts differ, with three equal lines around."""
    before, after = lines_of(old), lines_of(new)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_LINES_AROUND):
        found: list[LinePair] = []
        for kind, start, end, new_start, new_end in group:
            for left, right in itertools.zip_longest(before[start:end], after[new_start:new_end]):
                mark = " " if kind == "equal" else "+" if left is None else "-" if right is None else "|"
                found.append(LinePair(left, mark, right))
        yield found


def lines_of(text: str) -> list[str]:
    """The lines of a text, without their line feeds."""
    return text.removesuffix("\n").split("\n") if text else []


def show_side_by_side(old: str, new: str, titles: tuple[str, str]) -> None:
    """Print two texts beside each other, as wide as the terminal."""
    groups = list(rows(old, new))
    if groups:
        draw(_table(groups, titles))


def _table(groups: list[list[LinePair]], titles: tuple[str, str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, expand=True, padding=(0, 1))
    for title, ratio in ((titles[0], 1), ("", None), (titles[1], 1)):
        table.add_column(Text(printable(title)), ratio=ratio, overflow="fold")
    for number, group in enumerate(groups):
        if number:
            table.add_section()
        for row in group:
            style = {"-": "red", "+": "green", "|": "yellow"}.get(row.mark, "")
            cells = (row.old or "", row.mark, row.new or "")
            table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table
