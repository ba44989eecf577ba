"""`with_reason`: why the system refused to change a file, where the error number alone says too little."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_IS_MOUNT: Final = "this file is a mount of its own: mount its directory instead (here it can only be appended to)"
_HAS_FLAG: Final = "the file has the attribute {}, which forbids this change: remove it with chattr"
_FLAGS: Final = {0x10: "immutable", 0x20: "append-only"}
_GET_FLAGS: Final = 0x80086601  # FS_IOC_GETFLAGS on 64-bit systems


@contextmanager
def with_reason(name: str, directory: int | None = None) -> Iterator[None]:
    """Give an `OSError` about a regular file the reason as its text, if the reason is found.

    Args:
        name: the file's path, or its name in ``directory``.
        directory: an open directory.
    """
    try:
        yield
    except OSError as error:
        if reason := _reason(error.errno, name, directory):
            raise type(error)(error.errno, reason) from error
        raise


def _reason(number: int | None, name: str, directory: int | None) -> str | None:
    if sys.platform == "linux" and number in (errno.EBUSY, errno.EPERM):
        with suppress(OSError, StopIteration), _opened(name, os.O_NOFOLLOW, directory) as file:
            if number == errno.EPERM:
                return _flag(file)
            with _opened(str(Path(name).parent), os.O_DIRECTORY, directory) as above:
                return _IS_MOUNT if _mount_of(file) != _mount_of(above) else None
    return None


@contextmanager
def _opened(name: str, flags: int, directory: int | None) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flag(file: int) -> str | None:
    import fcntl  # not on Windows

    flags = struct.unpack("i", fcntl.ioctl(file, _GET_FLAGS, bytes(4)))[0]
    return next((_HAS_FLAG.format(flag) for bit, flag in _FLAGS.items() if flags & bit), None)


def _mount_of(descriptor: int) -> str:
    """The system's number of the mount of an open file or directory."""
    with Path(f"/proc/self/fdinfo/{descriptor}").open(encoding="ascii") as facts:
        return next(line for line in facts if line.startswith("mnt_id:"))
