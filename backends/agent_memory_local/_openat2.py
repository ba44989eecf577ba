"""A whole walk in one system call: Linux's ``openat2``, told to refuse every link and never to leave the root.

Only a shortcut. Whatever it does not open is walked again component by component (`_walk`), which says why; where
the kernel does not have it (before 5.6) or a sandbox forbids it, the walk is all there is.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from functools import partial

_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
HOW_SIZE = 24
OpenBelow = Callable[[int, bytes, bytes, int], int]
"""``(directory, path, how, HOW_SIZE)`` -> a descriptor, or a negative number."""


def how(flags: int) -> bytes:
    """The kernel's ``struct open_how`` for these flags."""
    return struct.pack("QQQ", flags, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)


def find(directory: int) -> OpenBelow | None:
    """The call, or None if it does not work here, tried on an open directory."""
    if not sys.platform.startswith("linux"):
        return None
    # No argtypes: converting by them costs more than the walk of a level. All numbers here fit a C int.
    open_below: OpenBelow = partial(ctypes.CDLL(None).syscall, _OPENAT2)
    return open_below if _works(open_below, directory) else None


def _works(open_below: OpenBelow, directory: int) -> bool:
    descriptor = open_below(directory, b".", how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), HOW_SIZE)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True
