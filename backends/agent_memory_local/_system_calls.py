"""Two system calls of Linux that Python does not have: ``openat2`` and ``renameat2``.

``openat2`` walks a whole path in one call, with flags that refuse every link and stay below the root. It is only a
shortcut. If it fails, the path is walked again component by component (`_walk`), which finds the exact error. Without
the call (before Linux 5.6, or in a sandbox that forbids it) every path is walked so. ``renameat2`` renames a file
without replacing another one.
"""

from __future__ import annotations

import ctypes
import errno
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
_NO_REPLACE = 1
_NOT_HERE = {errno.ENOSYS, errno.EINVAL}
"""The errors of an older kernel, or of a filesystem without support for flags."""
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_renameat2 = getattr(_libc, "renameat2", None)


def open_how(flags: int) -> bytes:
    """The kernel's ``struct open_how`` for these flags."""
    return struct.pack("QQQ", flags, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)


def find_openat2(directory: int) -> OpenBelow | None:
    """``openat2`` as a function, or None if it fails for the given open directory."""
    if not sys.platform.startswith("linux"):
        return None
    # Without argtypes, because converting by them costs more than opening one level. All numbers fit a C int.
    open_below: OpenBelow = partial(ctypes.CDLL(None).syscall, _OPENAT2)
    return open_below if _works(open_below, directory) else None


def _works(open_below: OpenBelow, directory: int) -> bool:
    descriptor = open_below(directory, b".", open_how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), HOW_SIZE)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def rename_to_free(source: str, target: str, *, source_directory: int, target_directory: int) -> None:
    """Rename a file to a name that the caller has just found free.

    The locks do not keep another program from taking the name in between; only ``renameat2`` detects that.

    Raises:
        FileExistsError: the name is taken.
        OSError: the rename failed.
    """
    if _renameat2 is not None:
        old, new = os.fsencode(source), os.fsencode(target)
        if _renameat2(source_directory, old, target_directory, new, _NO_REPLACE) == 0:
            return
        if (number := ctypes.get_errno()) not in _NOT_HERE:
            raise OSError(number, os.strerror(number))
    os.rename(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)
