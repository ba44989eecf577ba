"""The bar chart of `lost_updates.py --svg`: how many lines each subject kept, on local disk and on S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple, Protocol

OURS = "agent-memory, append"


class Kept(Protocol):
    """What a round found of the added lines."""

    @property
    def kept(self) -> int: ...
    @property
    def refused(self) -> int: ...


class Group(NamedTuple):
    """The bars below one label: the names of its subjects on local disk and on S3, "" for none."""

    label: str
    disk: str
    s3: str


GROUPS = (
    Group(OURS, "agent-memory, `append`", "agent-memory, `append`, on S3"),
    Group("Claude's local memory tool, insert", "Claude's local memory tool, insert", ""),
    Group("deepagents, FilesystemBackend", "deepagents, `FilesystemBackend`", ""),
    Group("Strands, session managers", "Strands, `FileSessionManager`", "Strands, `S3SessionManager`"),
    Group("Strands, FileMemoryStore", "Strands, `FileMemoryStore`", "Strands, `FileMemoryStore` on `S3Storage`"),
    Group("fsspec, read and write again", "fsspec, `pipe_file`", "s3fs, `pipe_file`"),
    Group("Python, open(path, 'a')", "Python, `open`", ""),
    Group("A loop of conditional writes by hand", "", "botocore, `If-Match`"),
)
_WIDTH, _LEFT, _TRACK, _BAR, _STEP = 400, 38, 200, 12, 17
_STYLE = """
    svg { --paper: #fff; --ink: #16181d; --muted: #5b616e; --track: #eceef1; --other: #8a919e; --ours: #0b6b57; }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #101214; --ink: #e3e6ea; --muted: #9aa2ad; --track: #24282d; --other: #7d8591; --ours: #4fd1ae; }
    }
    text { font: 12.5px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: var(--muted); }
    .label, .title { font-size: 13.5px; fill: var(--ink); }
    .title, .of-ours { font-weight: 600; }
    .paper { fill: var(--paper); }
    .track { fill: var(--track); }
    .other { fill: var(--other); }
    .ours { fill: var(--ours); }
    .most { opacity: 0.45; }
"""


def chart(counts: Mapping[str, Sequence[Kept]], lines: int, footer: Sequence[str]) -> str:
    """The chart as SVG, in light colours or, where the reader prefers them, in dark ones.

    Args:
        counts: the rounds of each subject, by its name; a group without any is left out.
        lines: how many lines were added.
        footer: the lines of text below the bars.
    """
    parts: list[str] = []
    told: list[str] = []
    y = 44  # of the next text
    for group in GROUPS:
        bars = [(place, counts[name]) for place, name in (("disk", group.disk), ("S3", group.s3)) if name in counts]
        if not bars:
            continue
        kind = "ours" if group.label == OURS else "other"
        parts.append(f'<text class="label{" of-ours" * (kind == "ours")}" x="0" y="{y}">{escape(group.label)}</text>')
        y += 8
        for place, rounds in bars:
            parts += _bar(place, rounds, kind, lines, y)
            told.append(f"{group.label}, {place}: {_value(rounds)}")
            y += _STEP
        y += 20
    for line in footer:
        parts.append(f'<text x="0" y="{y}">{escape(line)}</text>')
        y += 17
    title = f"Lines kept of {lines}, when processes append at once"
    body = "\n  ".join([f'<text class="title" x="0" y="18">{title}</text>', *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {_WIDTH + 16} {y}" width="{_WIDTH + 16}" '
        f'height="{y}" role="img" aria-labelledby="title desc">\n'
        f'  <title id="title">{title}</title>\n  <desc id="desc">{escape("; ".join(told))}.</desc>\n'
        f"  <style>{_STYLE}  </style>\n"
        f'  <rect class="paper" x="-8" width="{_WIDTH + 16}" height="{y}"/>\n  {body}\n</svg>\n'
    )


def span(values: Sequence[float], form: str = "d") -> str:
    """The least and the most of the rounds, or one number if they are equal."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least}\N{EN DASH}{most}"


def _value(rounds: Sequence[Kept]) -> str:
    refused = [each.refused for each in rounds]
    return span([each.kept for each in rounds]) + (f", {span(refused)} refused" if any(refused) else "")


def _bar(place: str, rounds: Sequence[Kept], kind: str, lines: int, y: int) -> Iterator[str]:
    """A track as long as all lines; on it the most in a paler colour, and the least."""
    counts = [each.kept for each in rounds]
    yield f'<text x="0" y="{y + _BAR - 2}">{place}</text>'
    for name, kept in (("track", lines), (f"{kind} most", max(counts)), (kind, min(counts))):
        width = f"{_TRACK * kept / lines:g}"
        yield f'<rect class="{name}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" rx="1"/>'
    yield f'<text x="{_LEFT + _TRACK + 6}" y="{y + _BAR - 2}">{_value(rounds)}</text>'
