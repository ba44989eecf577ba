"""Following the pages of a listing, which ends because its markers advance."""

from __future__ import annotations

from collections.abc import Hashable

from agent_memory.backend._helpers import named
from agent_memory.errors import ReadError, WriteError
from agent_memory.key import Key


class Markers:
    """Where the pages of one listing began.

    Args:
        prefix: what is listed.
        error: to raise.
    """

    def __init__(self, prefix: Key, error: type[ReadError | WriteError] = ReadError) -> None:
        self._prefix = prefix
        self._error = error
        self._seen: set[Hashable] = set()

    def go_on(self, marker: Hashable) -> None:
        """Note where the next page begins; raises the error if a page began there before: it would not end."""
        if marker in self._seen:
            raise self._error(f"{named(self._prefix)}: the storage's listing does not advance")
        self._seen.add(marker)
