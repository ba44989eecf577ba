"""Small pictures as inline SVG, each described in words for people who do not see it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from agent_memory.key.quoting import counted
from agent_memory.web._text import size

_WIDTH: Final = 640
_HEIGHT: Final = 72
_SMALL: Final = (136, 24)


def days(counts: Mapping[date, int], number: int, *, small: bool = False, most: int = 1) -> Markup:
    """The changes of each of the last days as bars; the highest stands for at least ``most`` changes."""
    today = datetime.now(UTC).date()
    wanted = [today - timedelta(days=ago) for ago in range(number - 1, -1, -1)]
    width, height = _SMALL if small else (_WIDTH, _HEIGHT)
    step, most = width / number, max([most, *(counts.get(day, 0) for day in wanted)])
    bars = Markup("").join(
        _bar(number * step, height, step, counts.get(day, 0), most, day) for number, day in enumerate(wanted)
    )
    drawn = _picture(width, height, _words(counts, wanted), bars)
    return drawn if small else drawn + _ends(f"{wanted[0]:%-d %B}", "today")


def _bar(x: float, height: float, step: float, count: int, most: int, day: date) -> Markup:
    tall = max(2.0, (height - 2) * count / most) if count else 1.0
    place = Markup('x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"').format(x, height - tall, step * 0.75, tall)
    return Markup('<rect class="{}" {}><title>{}</title></rect>').format(
        "bar-of-day" if count else "no-day", place, f"{day}: {counted(count, 'change')}"
    )


def _ends(first: str, last: str) -> Markup:
    """The texts below both ends of a picture."""
    return Markup('<div class="ends"><span>{}</span><span>{}</span></div>').format(first, last)


def _words(counts: Mapping[date, int], wanted: Sequence[date]) -> str:
    total = sum(counts.get(day, 0) for day in wanted)
    if not total:
        return f"No change in the last {len(wanted)} days."
    busiest = max(wanted, key=lambda day: counts.get(day, 0))
    return (
        f"{counted(total, 'change')} in the last {len(wanted)} days, most of them, {counts[busiest]:,}, on {busiest}."
    )


def sizes(points: Sequence[tuple[float, int]]) -> Markup:
    """The size of a file over time as a line until now: POSIX seconds and bytes, the oldest first."""
    if len(points) < 2:
        return Markup("")
    first, now = points[0][0], max(time.time(), points[-1][0])
    most, span = max(1, *(bytes_ for _, bytes_ in points)), max(now - first, 1e-9)
    places = [(_WIDTH * (at - first) / span, _HEIGHT - (_HEIGHT - 4) * bytes_ / most) for at, bytes_ in points]
    corners = [places[0]]
    for (_, before), (x, y) in pairwise([*places, (_WIDTH, places[-1][1])]):
        corners += [(x, before), (x, y)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    drawn = Markup('<polygon class="below" points="0,{1} {0} {2},{1}"/><polyline class="curve" points="{0}"/>').format(
        line, _HEIGHT, _WIDTH
    )
    day = f"{datetime.fromtimestamp(first, UTC):%-d %B %Y}"
    words = f"The size of the file: {size(points[0][1])} at first, {size(most)} at most, {size(points[-1][1])} now."
    return _picture(_WIDTH, _HEIGHT, words, drawn) + _ends(day, f"now {size(points[-1][1])}")


def _picture(width: float, height: float, words: str, content: Markup) -> Markup:
    return Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        width, height, words, content
    )
