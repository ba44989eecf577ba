"""`Descriptor`: an open file or directory that is closed with its last reference."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import ClassVar, Final
from weakref import ref

from agent_memory.backend.helpers import Uncopied

LOST: Final = frozenset({errno.ESTALE, errno.ENOTCONN, errno.ENODEV, errno.EIO})
"""The errors of a file or directory whose server, daemon or volume is gone."""
_locked: dict[int, ref[Descriptor]] = {}


class Descriptor(Uncopied):
    """An open file or directory; closed with its last reference, and so never while a thread uses it.

    A program may close descriptors that it does not own (``os.closerange``), and the next file that it opens gets the
    number. So the device and inode are recorded, and another file is neither used nor closed. Two cases are not
    detected: another thread reuses the number between the check and the use, or opens the same file under it.
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
        """Whether the number still belongs to this file, and the file still has a name; if not, open the path again."""
        try:
            found = os.fstat(self.number)
        except OSError as error:
            if error.errno in LOST:
                return False
            if error.errno != errno.EBADF:
                raise
            found = None
        if found is None or (found.st_dev, found.st_ino) != self.identity:
            self.number = -1  # give up the number: the next opening of the same file may get it
            return False
        return found.st_nlink > 0

    def close(self) -> None:
        """Close the file now; only the holder of the only reference may call this."""
        self.__del__()
        self.number = -1

    def __del__(
        self,
        fstat: Callable[[int], os.stat_result] = os.fstat,  # as defaults, because modules are gone at interpreter exit
        close: Callable[[int], None] = os.close,
        locked: dict[int, ref[Descriptor]] = _locked,
    ) -> None:
        try:  # calls no other Python function: an interrupt at its start would leave the number open
            locked.pop(self.number, None)
            found = fstat(self.number)
            if self.identity is None or (found.st_dev, found.st_ino) == self.identity:
                close(self.number)
        except (AttributeError, OSError):
            return  # never opened, or already closed; everything that must be durable was synced before
        except BaseException:
            self.__del__()  # after an interrupt; a number that was closed before it no longer belongs to this file
            raise


class LockedDescriptor(Descriptor):
    """A descriptor with locks: a lock lasts as long as any copy of it, so a forked child closes its copy."""

    __slots__ = ()
    locks = True


def _close_in_child() -> None:
    for descriptor in list(_locked.values()):
        if (held := descriptor()) is not None:
            held.close()


os.register_at_fork(after_in_child=_close_in_child)
