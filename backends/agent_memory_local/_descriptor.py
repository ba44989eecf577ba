"""`Descriptor`: an open file or directory that closes itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import ClassVar
from weakref import ref

from agent_memory.backend import Uncopied

_locked: dict[int, ref[Descriptor]] = {}


class Descriptor(Uncopied):
    """An open file or directory; closed with the last reference to it, so never under a thread that works in it.

    A program may close numbers that are not its own (``os.closerange``), and the next file it opens gets the number.
    So the device and inode are recorded, and another file is neither used nor closed. Not seen: a number that another
    thread closes and opens between this look and the use, and a second opening of the very same file.
    """

    __slots__ = ("__weakref__", "identity", "number")
    locks: ClassVar[bool] = False

    def __init__(self, number: int) -> None:
        self.identity: tuple[int, int] | None = None
        self.number = number
        found = os.fstat(number)
        self.identity = found.st_dev, found.st_ino
        if self.locks:
            _locked[number] = ref(self)

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
        self.__del__()
        self.number = -1

    def __del__(
        self,
        fstat: Callable[[int], os.stat_result] = os.fstat,  # kept for when the modules are gone
        close: Callable[[int], None] = os.close,
        locked: dict[int, ref[Descriptor]] = _locked,
    ) -> None:
        try:  # no call of another function: an interrupt at its beginning would leave the number open
            locked.pop(self.number, None)
            found = fstat(self.number)
            if self.identity is None or (found.st_dev, found.st_ino) == self.identity:
                close(self.number)
        except (AttributeError, OSError):
            return  # it was never opened, or is closed; what had to be durable was synced before
        except BaseException:
            self.__del__()  # an interrupt came between; what is closed by now is not this file any more
            raise


class LockedDescriptor(Descriptor):
    """One that locks are taken by: a lock lasts as long as any copy of it, so a fork's child closes its copy."""

    __slots__ = ()
    locks = True


def _close_in_child() -> None:
    for descriptor in list(_locked.values()):
        if (held := descriptor()) is not None:
            held.close()


os.register_at_fork(after_in_child=_close_in_child)
