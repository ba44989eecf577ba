"""Patterns of paths: ``*``, ``?`` and ``[...]`` within a segment, as in `fnmatch`, and ``**`` for any segments."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TypeAlias

Segments: TypeAlias = tuple[str, ...]


def segments(pattern: str) -> Segments:
    """The segments of a pattern or a path."""
    return tuple(pattern.split("/"))


def matches(pattern: Segments, path: Segments) -> bool:
    """Whether a path matches a pattern."""
    return len(pattern) in _reached(pattern, path)


def reaches_below(pattern: Segments, directory: Segments) -> bool:
    """Whether a file below a directory could have a path that matches."""
    return any(place < len(pattern) for place in _reached(pattern, directory))


def _reached(pattern: Segments, path: Segments) -> set[int]:
    """The numbers of segments of a pattern that a path can match, as several because of ``**``."""
    places = _past_any(pattern, {0})
    for segment in path:
        places = _past_any(pattern, {next_ for place in places for next_ in _next(pattern, place, segment)})
    return places


def _past_any(pattern: Segments, places: set[int]) -> set[int]:
    for place, segment in enumerate(pattern):
        if segment == "**" and place in places:
            places.add(place + 1)
    return places


def _next(pattern: Segments, place: int, segment: str) -> Iterator[int]:
    if place < len(pattern):
        if pattern[place] == "**":
            yield place
        elif fnmatchcase(segment, pattern[place]):
            yield place + 1
