"""Options of plugins, which a configuration may give in any type."""

from __future__ import annotations


def require_whole(name: str, value: object, *, least: int) -> None:
    """Raise `ValueError` unless a value is a whole number, and not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = "not negative" if least == 0 else f"{least} or more"
        raise ValueError(f"{name} is a whole number, {kind}, not {value!r}")
