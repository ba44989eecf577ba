"""`Markers`: detects a listing whose pages never end."""

from __future__ import annotations

from collections.abc import Hashable

from agent_memory.errors import ReadError, WriteError
from agent_memory.key import Key


class Markers:
    """The start markers of one listing's pages.

    Args:
        prefix: the listed prefix, for the message.
        error: the class of the error to raise.
    """

    def __init__(self, prefix: Key, error: type[ReadError | WriteError] = ReadError) -> None:
        self._prefix = prefix
        self._error = error
        self._seen: set[Hashable] = set()

    def go_on(self, marker: Hashable) -> None:
        """Record the start of the next page; raise ``error`` if an earlier page had the same start."""
        if marker in self._seen:
            raise self._error("the storage's listing does not advance", path=self._prefix.path)
        self._seen.add(marker)
