"""Open files and directories: their permission bits and origins, appends, syncs, and sweeps of temporary files."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from typing import NamedTuple

from agent_memory.backend._host_files import ORIGIN_ATTRIBUTE
from agent_memory.errors import OutcomeUnknownError, UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory_local._locks import Busy, StalePath, close, lock_file

_EXISTING = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.ENOSYS}
_NO_ORIGIN = _NO_ATTRIBUTES | {errno.ENODATA, errno.EPERM, errno.EACCES}
"""The errors of a read of an attribute that is not there, or that this process may not read."""
_NO_FULL_SYNC = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}\Z")


def temporary_name() -> str:
    """A new temporary name; `is_temporary` recognises it."""
    return f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a name has the form of a temporary name."""
    return name.endswith(TEMPORARY_SUFFIX) and _TEMPORARY.match(name) is not None


def append(file: int, data: bytes, size: int) -> None:
    """Append to an open and locked file of ``size`` bytes: all of the data, or nothing.

    Raises:
        OutcomeUnknownError: a part was written and could not be removed again.
    """
    try:
        written = os.write(file, data)
        if written != len(data):
            write_all(file, memoryview(data)[written:])
    except BaseException as error:
        try:
            os.ftruncate(file, size)
        except OSError:
            raise OutcomeUnknownError("a part of the data was written and could not be removed again") from error
        raise


def read_range(file: int, start: int, end: int) -> bytes:
    """The bytes ``[start:end]`` of an open file."""
    parts = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def set_origin(file: int, origin: str) -> None:
    """Store an origin in an extended attribute of an open file.

    Raises:
        UnsupportedOperationError: the system or this filesystem has no extended attributes.
    """
    try:
        os.setxattr(file, ORIGIN_ATTRIBUTE, origin.encode("ascii"))
    except AttributeError:
        raise UnsupportedOperationError("Python has no extended attributes on this system") from None
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise
        raise UnsupportedOperationError("the filesystem has no extended attributes") from error


def origin_of(file: int) -> str | None:
    """The origin of an open file; None if it has none, or if this process may not read attributes."""
    try:
        return os.getxattr(file, ORIGIN_ATTRIBUTE).decode("ascii", errors="replace")
    except AttributeError:
        return None
    except OSError as error:
        if error.errno not in _NO_ORIGIN:
            raise
        return None


def sweep(directory: int, name: str) -> bool:
    """Remove a temporary file whose writer is dead; False if the writer is active or the removal failed."""
    try:
        file = os.open(name, _EXISTING, dir_fd=directory)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(lock_file(file).st_mode):
            return False
        os.unlink(name, dir_fd=directory)
    except (Busy, StalePath, OSError):
        return False
    finally:
        close(file)
    return True


def sync_file(file: int) -> None:
    """Sync an open file or directory to the disk; a failed sync is not retried, because a retry may succeed wrongly.

    On macOS ``fsync`` ends at the cache of the drive; ``F_FULLFSYNC`` does not, if the filesystem supports it.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(file)


def sync_written(descriptor: int, sync: bool) -> None:
    """Make a visible change durable: the names in a directory, or an append; does nothing unless ``sync``.

    Raises:
        OutcomeUnknownError: the sync failed; the change may not survive a crash.
    """
    if sync:
        try:
            sync_file(descriptor)
        except OSError as error:
            raise OutcomeUnknownError(
                f"the change was written, but the sync to disk failed: {error.strerror}"
            ) from error


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all bytes at the present offset of an open file."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


class NewModes(NamedTuple):
    """The permission bits of new files and directories; None: the bits of the system call, less the umask."""

    file: int | None = None
    directory: int | None = None

    @classmethod
    def of(cls, mode: object) -> NewModes:
        """Parse the option ``mode``: the bits of files as a number, or as octal digits; None for the default.

        Raises:
            ValueError: the bits do not let the owner read and write, or are more than ``0o666``.
        """
        if mode is None:
            return cls()
        bits = mode if isinstance(mode, int) else _octal(mode)
        if bits & 0o600 != 0o600 or bits & ~0o666:
            raise ValueError(
                f"mode must be the permission bits of files from 0600 to 0666, such as the text '0640', not {mode!r}"
            )
        return cls(bits, bits | (bits & 0o444) >> 2)


def _octal(mode: object) -> int:
    try:
        return int(str(mode), 8)
    except ValueError:
        return 0


def set_bits(file: int, bits: int) -> None:
    """Set the permission bits of an open new file or directory; the set-group-id bit of a directory stays."""
    found = stat.S_IMODE(os.fstat(file).st_mode)
    if (wanted := bits | found & stat.S_ISGID) != found:
        os.fchmod(file, wanted)
