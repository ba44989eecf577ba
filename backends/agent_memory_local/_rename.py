"""`rename_to_free`: gives a file a name that nothing has, in one system call where the system can say so."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_NO_REPLACE = 1
_NOT_HERE = {errno.ENOSYS, errno.EINVAL}
"""Of an older kernel, or a filesystem that knows no flags."""
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_renameat2 = getattr(_libc, "renameat2", None)


def rename_to_free(source: str, target: str, *, source_directory: int, target_directory: int) -> None:
    """Rename a file whose new name was just seen to be free.

    Another program that takes the name in between, with a lock of ours held, is seen by ``renameat2`` alone.

    Raises:
        FileExistsError: the name is taken.
        OSError: the disk failed.
    """
    if _renameat2 is not None:
        old, new = os.fsencode(source), os.fsencode(target)
        if _renameat2(source_directory, old, target_directory, new, _NO_REPLACE) == 0:
            return
        if (number := ctypes.get_errno()) not in _NOT_HERE:
            raise OSError(number, os.strerror(number))
    os.rename(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)
