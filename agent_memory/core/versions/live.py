"""`Live`: the present state of a file, as an operation that is about to end it has read it."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.backend import Snapshot
from agent_memory.core.versions.origin import Origin


@dataclass(frozen=True)
class Live:
    """The present state of a file.

    Attributes:
        snapshot: as it was read; without data if ``is_large``.
        origin: its origin; a new one if the file was made or changed without this package.
        is_large: whether it has more bytes than one read may have.
    """

    snapshot: Snapshot
    origin: Origin
    is_large: bool = False

    @staticmethod
    def of(snapshot: Snapshot, text: str | None) -> Live:
        """Return the state that a whole read found."""
        found = Origin.parse(text)
        if found is None:
            return Live(snapshot, Origin.first(None, snapshot.size, None))
        if not found.is_of(snapshot.data):
            return Live(snapshot, found.next(None, snapshot.size, None))
        return Live(snapshot, found)

    @staticmethod
    def large(snapshot: Snapshot, text: str | None) -> Live:
        """Return the state that a read of no bytes found; its content is not compared with its origin."""
        found = Origin.parse(text) or Origin.first(None, snapshot.size, None)
        return Live(snapshot, found, is_large=True)
