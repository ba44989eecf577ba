"""`Live`: the present state of a file, as an operation that is about to end it has read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from agent_memory.backend import ANY, KeepsOrigins, ReadWhen, Snapshot, refuse_larger_read
from agent_memory.core.flows import keeps_origins
from agent_memory.core.versions.origin import Origin
from agent_memory.errors import ConflictError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


async def read_with_origin(
    store: KeepsOrigins, run: Run, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY
) -> tuple[Snapshot, str | None]:
    """Read a file, or a range of it, with the origin of its state."""
    read = cast("Callable[..., Awaitable[tuple[Snapshot, str | None]]]", store.read_with_origin)
    return await run.call(read, key, start, end, when)


async def require_state(store: object, run: Run, key: Key, state: str) -> None:
    """Raise `ConflictError` unless a file has the state with an id; "" is a state without an origin."""
    if not keeps_origins(store):
        return
    _, text = await read_with_origin(store, run, key, 0, 0)
    found = Origin.parse(text)
    if (found.id if found else "") != state:
        raise ConflictError("the file changed since it was read; nothing was written", path=key.path)


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

    def whole(self, key: Key, limit: int) -> Snapshot:
        """Return the state as it was read; raises `FileTooLargeError` if it has more bytes than one read may have."""
        if self.is_large:
            refuse_larger_read(key, self.snapshot.size, limit)
        return self.snapshot

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
