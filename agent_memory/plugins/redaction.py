"""A filter that masks, refuses or reports likely credentials before they are written.

It finds credentials of a known form: keys and tokens of services, private keys, passwords in URLs. It does not search
by entropy or by keyword alone: in notes, such matches are mostly ordinary words.
"""

from __future__ import annotations

import bisect
import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count, takewhile
from typing import Final, Literal, NamedTuple, get_args

from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Plugin, hookimpl
from agent_memory.plugins._secrets import KINDS, Found, known_secrets, matches

Action = Literal["mask", "refuse", "report"]
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrtbf\"\\/]))")
# Each run of backslashes is read once.
_DEEP_ESCAPE: Final = re.compile(r"\\(?<!\\\\)\\*+(?:u([0-9a-fA-F]{4})|([nrtbf\"/]?))")
_ESCAPED: Final = {"n": "\n", "r": "\n", "t": "\t", "b": " ", "f": " ", '"': '"', "/": "/"}
_CODE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_LEVELS: Final = 2
"""The number of levels of JSON in JSON that are decoded exactly; below them a run of backslashes counts as one."""
_FILLING: Final = "\ufffc"
LONGEST: Final = 512
"""The most characters of a secret that a custom pattern finds; the pattern sees at least as many from its start."""
_log = logging.getLogger("agent_memory")


class RedactionPlugin(Plugin):
    """Searches for secrets in every content before it is written; for an append, only in the appended content.

    It does not find a secret that is split over two appends, or that is in a moved or copied file. Bytes that are not
    UTF-8 stay as they are; the rest is searched as text. Messages name the kind of a secret, never the secret.

    The search for known forms takes time linear in the length of any text. A custom pattern is matched in overlapping
    windows of twice `LONGEST` characters, so that a pattern of quadratic time cannot block the process; a pattern of
    exponential time still can. A custom pattern finds secrets of at most `LONGEST` characters, lookahead included. If a
    match reaches the end of its window, "mask" refuses the content instead of masking a part of the secret.

    Args:
        action: "mask" writes ``[redacted: KIND]`` instead, "refuse" raises `OperationDenied`, "report" logs a warning.
        patterns: custom regular expressions of secrets, by kind; if a pattern has a group ``secret``, only that group
            is the secret.
        ignore: the kinds that are allowed, spelled as in the messages.

    Raises:
        ValueError: the action is unknown, a pattern is not a regular expression or matches the empty text, or a kind
            is unknown.
    """

    def __init__(
        self, action: Action = "mask", *, patterns: dict[str, str] | None = None, ignore: Collection[str] = ()
    ) -> None:
        if action not in get_args(Action):
            raise ValueError(f"action must be one of {', '.join(get_args(Action))}, not {action!r}")
        self._action = action
        self._own = list(_compiled({} if patterns is None else patterns))
        self._kinds = sorted({*KINDS, *(kind for kind, _ in self._own)})
        if isinstance(ignore, str) or not all(isinstance(kind, str) for kind in ignore):
            raise ValueError("ignore must be a list of kinds")
        if unknown := set(ignore) - set(self._kinds):
            raise ValueError(f"ignore has unknown kinds: {unknown}; the known kinds are {', '.join(self._kinds)}")
        self._ignored = frozenset(ignore)
        self._mark = re.compile(rf"\[redacted: (?:{'|'.join(map(re.escape, self._kinds))})\]")

    @hookimpl
    def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes | None:
        """Mask, refuse or report the secrets in the content."""
        text = content.decode(errors="surrogateescape")
        found = self._secrets_in(text)
        if not found:
            return None
        kinds = ", ".join(sorted({each.kind for each in found}))
        if self._action == "refuse":
            raise OperationDenied(f"the content seems to contain a secret: {kinds}", path=operation.path)
        if self._action == "report":
            _log.warning("secrets agent=%s path=%s kinds=%s", operation.agent or "-", ascii(operation.path), kinds)
            return None
        masked = _replaced(text, ((start, end, f"[redacted: {kind}]") for start, end, kind in found))
        return masked.encode(errors="surrogateescape")

    def count_secrets(self, content: bytes) -> Counter[str]:
        """Count the secrets in a content by kind; of secrets that overlap, the first counts."""
        counts, end = Counter[str](), 0
        for found in self._secrets_in(content.decode(errors="surrogateescape")):
            counts[found.kind] += found.start >= end
            end = max(end, found.end)
        return +counts

    def _secrets_in(self, text: str) -> list[Found]:
        marks = [match.span() for match in self._mark.finditer(text)]
        return sorted(
            each
            for each in self._found_in(text, marks)
            if each.kind not in self._ignored and each.start < each.end and not _covered(marks, each)
        )

    def _found_in(self, text: str, marks: Sequence[tuple[int, int]]) -> Iterator[Found]:
        """The secrets in a text, and in the decoded JSON strings inside it.

        The text is also searched with each mark replaced by filler characters, to find a secret with a masked part.
        """
        above = set(self._found(text))
        yield from above
        plain = _replaced(text, ((start, end, _FILLING * (end - start)) for start, end in marks))
        decoded: list[_Decoded] = []
        if plain != text:
            above = set(self._found(plain))
            yield from above
        while "\\" in plain and len(decoded) <= _LEVELS:
            decoded.append(_Decoded(plain, deep=len(decoded) == _LEVELS))
            if decoded[-1].text == plain:
                return
            plain = decoded[-1].text
            here = set(self._found(plain))
            for found in {decoded[-1].in_source(each) for each in here} - above:
                for level in reversed(decoded[:-1]):
                    found = level.in_source(found)
                yield found
            above = here

    def _found(self, text: str) -> Iterator[Found]:
        yield from known_secrets(text)
        for kind, pattern in self._own:
            for window in _windows(text, pattern):
                if window.is_cut and self._action == "mask" and kind not in self._ignored:
                    raise OperationDenied(f"a match of the pattern {kind!r} may have more than {LONGEST} characters")
                yield from matches(kind, window.found)


class _Decoded:
    """A text in which each escape of a JSON string is replaced by its character.

    Most texts contain no secret, so the positions of the escapes are computed only when a secret is found.
    """

    def __init__(self, source: str, *, deep: bool = False) -> None:
        self._source = source
        self._escapes = _DEEP_ESCAPE if deep else _ESCAPE
        self.text = _DEEP_ESCAPE.sub(_meaning, source) if deep else unescaped(source)

    def in_source(self, found: Found) -> Found:
        """The position of a secret in the source, extended to whole escapes."""
        start, end, kind = found
        places, ends = self._places
        if before := bisect.bisect_left(places, start):
            start += ends[before - 1] - places[before - 1] - 1
        if before := bisect.bisect_left(places, end):
            end += ends[before - 1] - places[before - 1] - 1
        return Found(start, end, kind)

    @cached_property
    def _places(self) -> tuple[array[int], array[int]]:
        """The positions of decoded characters in the text, and the ends of their escapes in the source."""
        places, ends, removed = array("q"), array("q"), 0
        for escape in self._escapes.finditer(self._source):
            start, end = escape.span()
            places.append(start - removed)
            ends.append(end)
            removed += end - start - 1
        return places, ends


def unescaped(text: str) -> str:
    """Decode each escape of a JSON string once, in a few passes over the text instead of one step per escape."""
    backslash = next(mark for mark in map(chr, count(0xE000)) if mark not in text)
    text = text.replace("\\\\", backslash)
    for letter, meaning in _ESCAPED.items():
        text = text.replace(f"\\{letter}", meaning)
    return _CODE.sub(lambda code: chr(int(code[1], 16)), text).replace(backslash, "\\")


def _meaning(escape: re.Match[str]) -> str:
    code, letter = escape.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, "\\")


class _Window(NamedTuple):
    """The matches of a pattern in a window, and whether the last one may continue after the window."""

    found: Sequence[re.Match[str]]
    is_cut: bool


def _windows(text: str, pattern: re.Pattern[str]) -> Iterator[_Window]:
    """Match a pattern in windows that overlap by half; a window never begins inside a match of the previous one."""
    at, last = 0, False
    while not last:
        end = min(at + 2 * LONGEST, len(text))
        last = end == len(text)
        begins = range(at, end + 1 if last else at + LONGEST)
        found = list(takewhile(lambda match: match.start() in begins, pattern.finditer(text, at, end)))  # noqa: B023
        yield _Window(found, not last and any(match.end() == end for match in found))
        at = max(begins.stop, found[-1].end() if found else 0)


def _compiled(patterns: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    if not isinstance(patterns, dict) or not all(map(_is_kind, patterns)):
        raise ValueError("patterns must be a table of regular expressions by kind; a kind is one line without ']'")
    for kind, text in patterns.items():
        if not isinstance(text, str):
            raise ValueError(f"the pattern of {kind!r} must be a regular expression, not a {type(text).__name__}")
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise ValueError(f"the pattern of {kind!r} is not a regular expression: {error}") from None
        if pattern.fullmatch(""):
            raise ValueError(f"the pattern of {kind!r} matches the empty text; it must match at least one character")
        yield kind, pattern


def _is_kind(kind: object) -> bool:
    return isinstance(kind, str) and bool(kind) and "]" not in kind and "\n" not in kind


def _covered(marks: Sequence[tuple[int, int]], found: Found) -> bool:
    """Whether a match consists only of marks of an earlier redaction."""
    at, place = found.start, bisect.bisect_right(marks, (found.start, math.inf)) - 1
    while at < found.end and 0 <= place < len(marks) and marks[place][0] <= at < marks[place][1]:
        at, place = marks[place][1], place + 1
    return at >= found.end


def _replaced(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Replace spans of a text, which are in the order of their starts; of overlapping spans the first is replaced."""
    parts: list[str] = []
    at = 0
    for start, end, replacement in spans:
        if start >= at:
            parts += text[at:start], replacement
        at = max(at, end)
    return "".join((*parts, text[at:]))
