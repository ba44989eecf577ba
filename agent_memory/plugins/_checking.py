"""Checks of plugin options: a configuration can contain values of any type."""

from __future__ import annotations


def require_whole(name: str, value: object, *, least: int) -> None:
    """Raise `ValueError` unless a value is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
