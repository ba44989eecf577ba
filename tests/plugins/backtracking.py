"""A backtracking matcher that counts its steps: a regular expression's cost without a clock.

It works like `re`, on the tree of `re`'s own parser: from each start, alternatives in their order, and repeats that are
greedy, lazy or possessive. A step is one tried character or assertion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_parser: Any = re._parser  # type: ignore[attr-defined]  # private; used only in tests


class Search(NamedTuple):
    """The result of `steps_of`: the number of steps, and the spans of the matches."""

    steps: int
    spans: list[tuple[int, int]]


class TooManyStepsError(Exception):
    """A search took more steps than allowed."""


def steps_of(pattern: re.Pattern[str], text: str, most: float = float("inf")) -> Search:
    """Find all matches of a pattern, like ``finditer``.

    Raises:
        TooManyStepsError: the search takes more steps than allowed.
    """
    matcher = _Matcher(text, most)
    tree = _parser.parse(pattern.pattern, pattern.flags)
    spans, at = [], 0
    while at <= len(text):
        end = next(matcher.sequence(tree.data, 0, at, tree.state.flags), None)
        if end is not None:
            spans.append((at, end))
        at = at + 1 if end is None or end == at else end
    return Search(matcher.steps, spans)


class _Matcher:
    def __init__(self, text: str, most: float) -> None:
        self._text = text
        self._most = most
        self._sets: dict[tuple[int, int, str], bool] = {}
        self.steps = 0

    def sequence(self, items: list[Any], index: int, at: int, flags: int) -> Iterator[int]:
        """The possible ends of a match of the items, in the order of the attempts."""
        if index == len(items):
            yield at
            return
        for end in self._one(items[index], at, flags):
            yield from self.sequence(items, index + 1, end, flags)

    def _one(self, item: Any, at: int, flags: int) -> Iterator[int]:  # noqa: C901 - one branch per kind of node
        kind, value = str(item[0]), item[1]
        self.steps += 1
        if self.steps > self._most:
            raise TooManyStepsError
        if kind == "SUBPATTERN":
            _, added, removed, inner = value
            yield from self.sequence(inner.data, 0, at, (flags | added) & ~removed)
        elif kind == "BRANCH":
            for inner in value[1]:
                yield from self.sequence(inner.data, 0, at, flags)
        elif kind in ("ASSERT", "ASSERT_NOT"):
            if self._looks(value, at, flags) == (kind == "ASSERT"):
                yield at
        elif kind == "AT":
            if str(value) != "AT_END_STRING" or at == len(self._text):
                assert str(value) == "AT_END_STRING", value
                yield at
        elif kind.endswith("REPEAT"):
            yield from self._repeat(kind, value, at, flags)
        elif at < len(self._text) and self._is(item, self._text[at], flags):
            yield at + 1

    def _looks(self, value: Any, at: int, flags: int) -> bool:
        direction, inner = value
        begin = at if direction > 0 else at - inner.getwidth()[0]
        return begin >= 0 and next(self.sequence(inner.data, 0, begin, flags), None) is not None

    def _repeat(self, kind: str, value: Any, at: int, flags: int) -> Iterator[int]:
        least, most, inner = value
        if kind == "MIN_REPEAT":
            yield from self._lazy(least, most, inner.data, at, flags)
            return
        ends = self._greedy(least, most, inner.data, at, flags)
        if kind == "POSSESSIVE_REPEAT":
            ends = iter([*ends][:1])
        yield from ends

    def _lazy(self, least: int, most: int, inner: list[Any], at: int, flags: int) -> Iterator[int]:
        done = 0
        while True:
            if done >= least:
                yield at
            end = next(self.sequence(inner, 0, at, flags), None) if done < most else None
            if end is None:
                return
            at, done = end, done + 1

    def _greedy(self, least: int, most: int, inner: list[Any], at: int, flags: int) -> Iterator[int]:
        """The ends of a repeat, longest first; a repeated group backtracks into each of its rounds."""
        rounds = [(at, self.sequence(inner, 0, at, flags))]
        while rounds:
            place, ends = rounds[-1]
            end = next(ends, None) if len(rounds) <= most else None
            if end is not None and end > place:
                rounds.append((end, self.sequence(inner, 0, end, flags)))
                continue
            rounds.pop()
            if len(rounds) >= least:
                yield place

    def _is(self, item: Any, character: str, flags: int) -> bool:
        """Whether a literal or a set matches a character, as `re` itself decides."""
        key = (id(item), flags, character)
        if key not in self._sets:
            compiler: Any = re._compiler  # type: ignore[attr-defined]
            state = _parser.State()
            state.flags, state.str = flags, ""
            pattern = compiler.compile(_parser.SubPattern(state, [item]), flags)
            self._sets[key] = pattern.match(character) is not None
        return self._sets[key]
