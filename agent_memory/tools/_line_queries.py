"""What a search looks for in the lines of files: a text with or without regard to case, or a regular expression."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final, Protocol

from agent_memory.errors import BackendNotAvailableError, install_hint
from agent_memory.reading.prefilter import SearchPrefilter

_LONGEST_EXPRESSION: Final = 10_000


class LineQuery(Protocol):
    """Something to find in a line."""

    def finder(self, block: bytes) -> Callable[[int], int]:
        """A function that returns the next offset of a block, from a given one on, where a line may match; -1 if none.

        Every matching line contains such an offset, or begins at one.
        """
        ...

    def place(self, line: str) -> int:
        """The position of the first match in a line, -1 if there is none."""
        ...


def line_query(query: str, *, case_sensitive: bool, regex: bool) -> LineQuery:
    """Return the query of a search.

    Raises:
        BackendNotAvailableError: ``regex``, and its engine is not installed.
        ValueError: the query is empty, or not a valid regular expression.
    """
    if not isinstance(query, str) or not query:
        raise ValueError("query must be a text of one character or more")
    if regex:
        return Expression(query, case_sensitive=case_sensitive)
    return Text(query) if case_sensitive else TextIgnoringCase(query)


class TextIgnoringCase:
    """A text, found in a line whose lower case contains its lower case."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        self._prefilter = SearchPrefilter(self._text, json=False)

    def finder(self, block: bytes) -> Callable[[int], int]:
        return self._prefilter.finder(block)

    def place(self, line: str) -> int:
        lowered = line.lower()
        at = lowered.find(self._text)
        if at < 0 or len(lowered) == len(line):
            return at
        return bisect_right(range(len(line)), at, key=lambda end: len(line[:end].lower())) - 1  # U+0130 becomes two


class Text:
    """A text, found as it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        # A replaced byte is U+FFFD in a line, and a lone surrogate is in no line: neither is in the bytes.
        self._data = b"" if "\ufffd" in text else text.encode(errors="ignore")

    def finder(self, block: bytes) -> Callable[[int], int]:
        return _each_line(block) if not self._data else lambda at: block.find(self._data, at)

    def place(self, line: str) -> int:
        return line.find(self._text)


class Expression:
    """A regular expression of RE2, which takes linear time for every expression and every line."""

    def __init__(self, pattern: str, *, case_sensitive: bool) -> None:
        if len(pattern) > _LONGEST_EXPRESSION:
            raise ValueError(f"a regular expression can have at most {_LONGEST_EXPRESSION:,} characters")
        try:
            import re2
        except ImportError:
            raise BackendNotAvailableError(
                f"regular expressions need the package google-re2: {install_hint('search')}"
            ) from None
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = case_sensitive
        options.never_capture = True  # only the place of the whole match is used, and groups cost time
        try:
            self._pattern: Any = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise ValueError(f"query is not a regular expression that RE2 accepts: {_reason(error)}") from None

    def finder(self, block: bytes) -> Callable[[int], int]:
        return _each_line(block)

    def place(self, line: str) -> int:
        found = self._pattern.search(line)
        return found.start() if found else -1


def _each_line(block: bytes) -> Callable[[int], int]:
    return lambda at: at if at < len(block) else -1


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else "it is not valid Unicode"
