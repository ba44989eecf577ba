"""`Descriptor`: an open file or directory that closes itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from agent_memory.backend import Uncopied
from agent_memory_local import _locks

_Identity = tuple[int, int]


class Descriptor(Uncopied):
    """An open file or directory; closed with the last reference to it, so never under a thread that works in it.

    A program may close numbers that are not its own (``os.closerange``), and the next file it opens gets the number.
    So the device and inode are recorded, and another file is neither used nor closed. Not seen: a number that another
    thread closes and opens between this look and the use, and a second opening of the very same file.
    """

    __slots__ = ("identity", "number")

    def __init__(self, number: int) -> None:
        self.identity: _Identity | None = None
        self.number = number
        self.identity = _identity(number)

    def is_open(self) -> bool:
        """Whether the number still is this file, and the file still has a name; else it is to be opened again."""
        try:
            found = os.fstat(self.number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            found = None
        if found is None or (found.st_dev, found.st_ino) != self.identity:
            self.number = -1  # lost: the next opening of this very file may get it
            return False
        return found.st_nlink > 0

    def close(self) -> None:
        """Close it now, for a holder of the only reference that must not wait until it is dropped."""
        number, self.number = self.number, -1
        _close(number, self.identity)

    def __del__(self) -> None:
        if getattr(self, "number", -1) >= 0:
            _close(self.number, self.identity)


class LockedDescriptor(Descriptor):
    """One that locks are taken by: a lock lasts as long as any copy of it, so a fork's child closes its copy."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        super().__init__(number)
        _locked[number] = self.identity


_locked: dict[int, _Identity | None] = {}


def _close_in_child() -> None:
    for number, identity in list(_locked.items()):
        _close(number, identity)


os.register_at_fork(after_in_child=_close_in_child)


def _identity(number: int, fstat: Callable[[int], os.stat_result] = os.fstat) -> _Identity:
    found = fstat(number)
    return found.st_dev, found.st_ino


# The default arguments are kept for when the modules are gone.
def _close(
    number: int,
    identity: _Identity | None,
    identity_of: Callable[[int], _Identity] = _identity,
    close: Callable[[int], None] = _locks.close,
    locked: dict[int, _Identity | None] = _locked,
) -> None:
    locked.pop(number, None)
    try:
        if identity is None or identity_of(number) == identity:
            close(number)
    except OSError:
        return
