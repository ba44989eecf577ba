"""A whole walk in one system call: Linux's ``openat2`` with flags that refuse every link and stay below the root.

The call is only a shortcut. If it fails, the path is walked again component by component (`_walk`), which finds the
exact error. Without the call (before Linux 5.6, or in a sandbox that forbids it) every path is walked so.
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
    """The system call as a function, or None if it fails for the given open directory."""
    if not sys.platform.startswith("linux"):
        return None
    # Without argtypes, because converting by them costs more than opening one level. All numbers fit a C int.
    open_below: OpenBelow = partial(ctypes.CDLL(None).syscall, _OPENAT2)
    return open_below if _works(open_below, directory) else None


def _works(open_below: OpenBelow, directory: int) -> bool:
    descriptor = open_below(directory, b".", how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), HOW_SIZE)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True
