"""Patterns of paths: ``*``, ``?`` and ``[...]`` within a segment, as in `fnmatch`, and ``**`` for any segments.

`require_possible` checks whether a pattern can match any path: the literal parts must follow the grammar of keys. Each
wildcard is replaced by a letter that no rule refuses, and the result is parsed as a `Key`. So there is only one
grammar. Only literal parts are checked: a pattern that passes may still match no path, for example ``[cC]on``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from string import ascii_letters, digits
from typing import Final, NoReturn, TypeAlias

from agent_memory.errors import InvalidPathError
from agent_memory.key import Key
from agent_memory.key._grammar import RULES, character_rule

Segments: TypeAlias = tuple[str, ...]

MAX_PATTERN: Final = 1000
"""The maximum characters of a pattern: paths are shorter, and a pattern of 50 MB takes minutes to compile."""
# As in fnmatch: a class without its closing bracket is literal text.
_WILDCARD: Final = re.compile(r"\*|\?|\[(?:![^/]|[^!/])[^\]/]*\]")
_SHORT: Final = "q"
# Not in device names, no hexadecimal digits, and no accent combines with them.
_LETTERS: Final = "\u00feq\u00f0\u0111\u0127\u014b"
_OTHER_LETTERS: Final = "".join(map(chr, range(0x4E00, 0x5200)))  # more than a pattern can contain
_TOO_LONG: Final = frozenset({"too-long", "too-deep", "segment-too-long"})
_SHOWN: Final = 80
_NO_NAME: Final = "untitled"  # the suggestion if no part of the name is valid


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


def require_possible(pattern: object, *, of_names: bool = False, called: str = "a pattern") -> None:
    """Refuse a pattern that matches no path, whatever is stored.

    Args:
        pattern: ``*``, ``?`` and ``[...]`` as in `fnmatch`; a segment ``**`` matches any number of segments.
        of_names: whether the pattern is matched only with the last segment of a path.
        called: the name of the option, for messages.

    Raises:
        ValueError: the pattern is not a str, is too long or matches no path; the message has the rule, and a similar
            pattern that can match.
    """
    if not isinstance(pattern, str):
        raise ValueError(f"{called} must be a string, not {pattern!r}")
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"{called} can have at most {MAX_PATTERN:,} characters")
    example = _Example(pattern)
    above = Key.tree().join("x") if of_names else Key.tree()
    try:
        key = above.join(example.text)
    except InvalidPathError as error:
        if error.rule not in _TOO_LONG or not _fits(above, example.shortest):
            _refuse(pattern, RULES[error.rule], example.pattern_of(error.suggestion))
        return
    if (path := key.relative_to(above).path) != example.text:
        _refuse(pattern, "a pattern must not contain an empty segment or '.'", example.pattern_of(path))


class _Example:
    """A path that the pattern matches, if its literal parts are valid: a letter stands for each wildcard."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._letter = next(each for each in chain(_LETTERS, _OTHER_LETTERS) if each not in pattern)
        self._wildcards: list[str] = []
        self.text = _WILDCARD.sub(self._stand_in, pattern)

    @property
    def shortest(self) -> str:
        """The path that results if each wildcard matches as little as possible."""
        segments = [_WILDCARD.sub(_least, segment) or _SHORT for segment in self._pattern.split("/") if segment != "**"]
        return "/".join(segments) or _SHORT

    def pattern_of(self, suggestion: str) -> str | None:
        """Return the pattern for a path similar to the example; None if the wildcards are not all left in it."""
        if suggestion.count(self._letter) != len(self._wildcards):
            return None
        wildcards = iter(self._wildcards)
        return "".join(next(wildcards) if each == self._letter else each for each in suggestion)

    def _stand_in(self, wildcard: re.Match[str]) -> str:
        if wildcard[0][0] == "[":
            members = _members(wildcard[0])
            if not members:
                _refuse(self._pattern, f"{wildcard[0]!a} matches no character", None)
            if len(members) == 1 or not members[0].isalnum():
                return members[0]
        self._wildcards.append(wildcard[0])
        return self._letter


def _least(wildcard: re.Match[str]) -> str:
    if wildcard[0][0] == "[":
        return _members(wildcard[0])[0]
    return "" if wildcard[0] == "*" else _SHORT


def _members(of_class: str) -> list[str]:
    """Return characters that a class matches and keys allow, letters first; if there are none, one other match."""
    candidates = dict.fromkeys(chain(ascii_letters, digits, of_class[1:-1]))
    matched = [each for each in candidates if each != "/" and fnmatchcase(each, of_class)]
    allowed = [each for each in matched if character_rule(f"1{each}1") is None]  # no mark composes with a digit
    return sorted(allowed, key=lambda each: (not each.isalnum(), each in " .~")) or matched[:1]


def _fits(above: Key, text: str) -> bool:
    try:
        above.join(text)
    except InvalidPathError:
        return False
    return True


def _refuse(pattern: str, rule: str, suggestion: str | None) -> NoReturn:
    shown = ascii(pattern[:_SHOWN]) + ("..." if len(pattern) > _SHOWN else "")
    advice = f"; try {suggestion!a}" if suggestion and suggestion != _NO_NAME and len(suggestion) <= _SHOWN else ""
    raise ValueError(f"{shown} matches no path: {rule}{advice}")
