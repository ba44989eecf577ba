"""`rename_to_free`: rename a file without replacing another one, atomically where the system supports it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_NO_REPLACE = 1
_NOT_HERE = {errno.ENOSYS, errno.EINVAL}
"""The errors of an older kernel, or of a filesystem without support for flags."""
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_renameat2 = getattr(_libc, "renameat2", None)


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
