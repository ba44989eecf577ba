"""Parsing of numbers and dates from a server, which may send any text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def posix_seconds(date: object) -> float | None:
    """The POSIX time of an HTTP date; None if the date is missing or cannot be parsed."""
    try:
        return parsedate_to_datetime(str(date)).timestamp()
    except (ArithmeticError, OSError, TypeError, ValueError):
        return None


def retry_after(headers: Mapping[str, object]) -> float:
    """The seconds in ``Retry-After``, finite and at least zero; a date counts relative to the server's clock."""
    asked = str(headers.get("retry-after", ""))
    try:
        seconds = float(asked)
    except ValueError:
        then, now = posix_seconds(asked), posix_seconds(headers.get("date"))
        seconds = 0.0 if then is None or now is None else then - now
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
