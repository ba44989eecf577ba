"""`Descriptor`: an open file or directory that closes itself."""

from __future__ import annotations

import os
from collections.abc import Callable

from agent_memory_local import _locks


class Descriptor:
    """An open file or directory; closed with the last reference to it, so never under somebody at work in it."""

    __slots__ = ("_identity", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity: tuple[int, int] | None = None

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode."""
        if self._identity is None:
            found = os.fstat(self.number)
            self._identity = found.st_dev, found.st_ino
        return self._identity

    def close(self) -> None:
        """Close it now, for whoever holds the only reference and must not wait for it to be dropped."""
        number, self.number = self.number, -1
        _locks.close(number)

    def __del__(self, close: Callable[[int], None] = _locks.close) -> None:  # kept for when the module is gone
        if self.number >= 0:
            close(self.number)
