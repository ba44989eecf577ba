"""Stored text in a page: as text, whatever it contains."""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from markupsafe import Markup, escape

from agent_memory.key.quoting import UNPRINTABLE, printable

DELETING: Final = ("delete", "delete_tree")
"""The operations by which a version ends in a deletion."""
_STEPS: Final = ((60, "second"), (60, "minute"), (24, "hour"), (30, "day"), (12, "month"), (0, "year"))
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000
_MOST_SHOWN: Final = 10**18
_TEN: Final = 10
_RIGHT_TO_LEFT: Final = re.compile(
    r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_PLAIN: Final = re.compile(r"[\w./-]*", re.ASCII)


ROOT: Final[ContextVar[str]] = ContextVar("agent_memory_web_root", default="")
"""The path below which the pages of this request are, without a slash at its end."""


def shown(text: object) -> Markup:
    """Text for the content of an element: invisible characters are marked, and text from right to left stays apart."""
    text = str(text)
    if text.isprintable() and text.isascii():  # fast, as most names are
        return escape(text)
    safe = UNPRINTABLE.sub(_marked, str(escape(text)))
    return Markup(f"<bdi>{safe}</bdi>" if _RIGHT_TO_LEFT.search(text) else safe)  # noqa: S704 - escaped before


def _marked(found: re.Match[str]) -> str:
    return f'<span class="odd">{ascii(found[0])[1:-1]}</span>'


def plain(text: object) -> str:
    """Text for an attribute or a title, on one line; the template escapes it."""
    return printable(" ".join(str(text).split()))


def marked(text: str, query: str) -> Markup:
    """Text in which each place of a query is marked, ignoring case."""
    pieces = re.split(f"({re.escape(query)})", text, flags=re.IGNORECASE) if query else [text]
    return Markup("").join(
        Markup("<mark>{}</mark>").format(shown(piece)) if number % 2 else shown(piece)
        for number, piece in enumerate(pieces)
    )


def when(seconds: float | None) -> Markup:
    """A time as the distance from now, with the exact time in UTC beside it."""
    if seconds is None:
        return Markup("")
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # another program may have stored any number
        return Markup('<span class="muted">no time</span>')
    day, _, clock = moment.isoformat(timespec="seconds").partition("T")
    words, exact = distance(time.time() - seconds), f"{day} {clock[:8]}"
    return Markup(  # noqa: S704 - only digits and words
        f'<time datetime="{day}T{clock}"><span>{words}</span> <small>{exact}</small></time>'
    )


def distance(seconds: float) -> str:
    """Seconds in words: ``3 minutes ago``."""
    number, ahead = abs(seconds), seconds < 0
    for step, unit in _STEPS:
        if not step or number < step:
            count = int(number)
            if unit == "second" and count < _TEN:
                return "now"
            words = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"in {words}" if ahead else f"{words} ago"
        number /= step
    raise AssertionError


def size(number: float) -> str:
    """A number of bytes: ``1,234 bytes``, ``1.2 MB``."""
    if number >= _MOST_SHOWN:  # another program may have stored any number
        return f"{_MOST_SHOWN // _THOUSAND**4:,} {_UNITS[-1]} or more"
    if number < _THOUSAND * _TEN:
        return f"{int(number):,} byte{'' if number == 1 else 's'}"
    for unit in _UNITS[1:-1]:
        number /= _THOUSAND
        if number < _THOUSAND:
            return f"{number:.1f} {unit}"
    return f"{number / _THOUSAND:,.1f} {_UNITS[-1]}"


def quoted(path: str) -> str:
    """A path for an address; slashes stay."""
    return path if _PLAIN.fullmatch(path) else quote(path, errors="surrogatepass")


def url(*parts: str, **query: object) -> str:
    """The path of a page: its parts, and a query of the values that are not None or empty."""
    path = "/".join((ROOT.get(), *map(quoted, parts)))
    if not query:
        return path
    pairs = [
        f"{name.rstrip('_')}={quote(str(value), safe='')}" for name, value in query.items() if value not in (None, "")
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path
