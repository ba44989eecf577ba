"""Files of the host that configure something: read without waiting, and only up to a size."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from typing import Final

MOST_BYTES: Final = 5_000_000
"""The most bytes of a configuration."""


def open_host_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading; never waits for the other end of a pipe.

    Raises:
        OSError: the file cannot be opened, or is a directory, a pipe, a socket or a device; ``strerror`` says which.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def read_host_file(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        OSError: as `open_host_file`, or the file has more bytes; ``strerror`` is the reason.
    """
    with open_host_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than the {most:,} bytes that are allowed here", os.fspath(path))
    return data
