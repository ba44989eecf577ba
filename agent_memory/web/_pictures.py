"""Small pictures as inline SVG, each described in words for people who do not see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from agent_memory.web._text import counted, size

_WIDTH: Final = 600
_HEIGHT: Final = 90
_SMALL: Final = (120, 22)


def days(counts: Mapping[date, int], number: int, *, small: bool = False) -> Markup:
    """The changes of each of the last days as bars."""
    today = datetime.now(UTC).date()
    wanted = [today - timedelta(days=ago) for ago in range(number - 1, -1, -1)]
    width, height = _SMALL if small else (_WIDTH, _HEIGHT)
    step, most = width / number, max([1, *(counts.get(day, 0) for day in wanted)])
    bars = Markup("").join(
        _bar(number * step, height, step, counts.get(day, 0), most, day) for number, day in enumerate(wanted)
    )
    return _picture(width, height, _words(counts, wanted), bars)


def _bar(x: float, height: float, step: float, count: int, most: int, day: date) -> Markup:
    tall = max(2.0, height * count / most) if count else 1.0
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(
        "bar-of-day" if count else "no-day", x, height - tall, step * 0.75, tall, f"{day}: {counted(count, 'change')}"
    )


def _words(counts: Mapping[date, int], wanted: Sequence[date]) -> str:
    total = sum(counts.get(day, 0) for day in wanted)
    if not total:
        return f"No change in the last {len(wanted)} days."
    busiest = max(wanted, key=lambda day: counts.get(day, 0))
    return (
        f"{counted(total, 'change')} in the last {len(wanted)} days, most of them, {counts[busiest]:,}, on {busiest}."
    )


def sizes(points: Sequence[tuple[float, int]]) -> Markup:
    """The size of a file over time as a line: POSIX seconds and bytes, the oldest first."""
    if len(points) < 2:
        return Markup("")
    (first, _), (last, now) = points[0], points[-1]
    most, span = max(1, *(bytes_ for _, bytes_ in points)), max(last - first, 1e-9)
    places = [(_WIDTH * (time - first) / span, _HEIGHT - 4 - (_HEIGHT - 8) * bytes_ / most) for time, bytes_ in points]
    corners = [f"{places[0][0]:.1f},{places[0][1]:.1f}"]
    for (_, before), (x, y) in pairwise(places):
        corners += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
    words = f"The size of the file: {size(points[0][1])} at first, {size(most)} at most, {size(now)} at last."
    return _picture(_WIDTH, _HEIGHT, words, Markup('<polyline class="curve" points="{}"/>').format(" ".join(corners)))


def _picture(width: float, height: float, words: str, content: Markup) -> Markup:
    return Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        width, height, words, content
    )
