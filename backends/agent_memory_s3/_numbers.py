"""Numbers and dates that a server sends, which may be anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def posix_seconds(date: object) -> float | None:
    """The time of an HTTP date; None if there is none, or none that can be read."""
    try:
        return parsedate_to_datetime(str(date)).timestamp()
    except (ArithmeticError, OSError, TypeError, ValueError):
        return None


def retry_after(headers: Mapping[str, object]) -> float:
    """The seconds that an answer asks to wait, by its own clock if it names a date: finite, and none below zero."""
    asked = str(headers.get("retry-after", ""))
    try:
        seconds = float(asked)
    except ValueError:
        then, now = posix_seconds(asked), posix_seconds(headers.get("date"))
        seconds = 0.0 if then is None or now is None else then - now
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
