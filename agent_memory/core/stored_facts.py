"""Checks of the facts that this package stores as JSON: other programs, and other releases, may have written them.

Each check returns its value with its type, or raises `ValueError`. A reader leaves out a file that fails a check, so
that calls on other files still work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from agent_memory._json import parse_json
from agent_memory.errors import InvalidPathError
from agent_memory.key import Key

MOST_COUNT: Final = 10**10 - 1
"""The maximum of a number of changes and of a size: the name of a record has ten digits for it."""
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999: other times have no calendar date. A host whose clock is wrong may write any of these."""
_DIGITS: Final = frozenset("0123456789abcdef")
T = TypeVar("T")


def fields_of(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object in which no name occurs twice."""
    found = parse_json(data, object_pairs_hook=_without_doubles)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def optional(check: Callable[[object], T], value: object) -> T | None:
    """None, or the checked value."""
    return None if value is None else check(value)


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def count(value: object) -> int:
    """A number of changes, of files or of bytes."""
    if type(value) is not int or not 0 <= value < MOST_COUNT:
        raise ValueError("not a count")
    return value


def seconds(value: object) -> float:
    """A finite time in POSIX seconds, which may lie before 1970."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ValueError("not a time")
    return float(value)


def moment(value: object) -> float:
    """A time that has a calendar date."""
    found = seconds(value)
    if not _FIRST_SECOND <= found <= _LAST_SECOND:
        raise ValueError("not a time with a date")
    return found


def hexadecimal(length: int) -> Callable[[object], str]:
    """A check for a text of ``length`` hexadecimal digits."""

    def check(value: object) -> str:
        if not isinstance(value, str) or len(value) != length or not set(value) <= _DIGITS:
            raise ValueError("not a hexadecimal text of the right length")
        return value

    return check


def path(value: object) -> str:
    """The path of a file or directory in a tree."""
    try:
        found = Key.tree().join(text(value)).path
    except InvalidPathError:
        raise ValueError("not a path") from None
    if found != value:
        raise ValueError("not a path as it is stored")
    return found
