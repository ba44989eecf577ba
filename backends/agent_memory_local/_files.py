"""Files in one open directory: staged without their final name, renamed in one step, appended to, synced.

A writer holds the lock of its staged file until the file is complete. So a sweep removes only files of dead writers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from contextlib import suppress
from typing import Final

from agent_memory.backend._attributes import ORIGIN_ATTRIBUTE, keep_attributes
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import OutcomeUnknownError, UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory_local._descriptor import Descriptor, LockedDescriptor
from agent_memory_local._locks import Busy, StalePath, close, lock_file, lock_new_file, unlock_file
from agent_memory_local._modes import set_bits

FILE_MODE = 0o600
_EXISTING = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.EPERM, errno.ENOSYS}
_OWN_FILES = "/proc/self/fd"
"""The directory through which an unnamed file gets a name; some containers do not have it."""
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.ENOSYS}
_NO_ORIGIN = _NO_ATTRIBUTES | {errno.ENODATA, errno.EPERM, errno.EACCES}
"""The errors of a read of an attribute that is not there, or that this process may not read."""
_IGNORE_FILE: Final = ".gitignore"
_IGNORE_ALL: Final = b"*\n"
_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FULL_SYNC = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}


_TEMPORARY = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}\Z")


def _temporary_name() -> str:
    return f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a name has the form of a temporary name of `StagedFile`."""
    return name.endswith(TEMPORARY_SUFFIX) and _TEMPORARY.match(name) is not None


class StagedFile(Uncopied):
    """A new file of ``size`` bytes in a directory, without its final name.

    It has no name if it is ``nameless`` and the system supports that; else it has a temporary name, which `close`
    removes.
    """

    def __init__(self, directory: Descriptor, size: int, *, nameless: bool) -> None:
        self.size: Final = size
        self._directory = directory
        self._temporary: str | None = None
        try:
            file = (_nameless(directory.number) if nameless else None) or self._named()
            self._file = LockedDescriptor(file)
            lock_new_file(file, size)
        except BaseException as error:
            self.close()
            if isinstance(error, Busy):
                raise StalePath from None  # a sweep found the file before it was locked
            raise

    @property
    def state(self) -> os.stat_result:
        """The present status of the file."""
        return os.fstat(self._file.number)

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        _write_all(self._file.number, data)

    def set_origin(self, origin: str | None) -> None:
        """Store the origin of the file's state with it; see `agent_memory.backend.Backend.keeps_origins`."""
        if origin is not None:
            set_origin(self._file.number, origin)

    def sync(self) -> None:
        """Sync the content to disk."""
        sync_file(self._file.number)

    def create(self, name: str, directory: int, bits: int | None) -> None:
        """Give the file a free name, or raise `FileExistsError`; ``bits``: permissions other than the default."""
        if bits is not None:
            set_bits(self._file.number, bits)
        self._link(name, directory)

    def _link(self, name: str, directory: int) -> None:
        if self._temporary is None:
            os.link(f"{_OWN_FILES}/{self._file.number}", name, dst_dir_fd=directory, follow_symlinks=True)
        else:
            here = self._directory.number
            os.link(self._temporary, name, src_dir_fd=here, dst_dir_fd=directory, follow_symlinks=False)
            self._remove_temporary()

    def replace(self, name: str, directory: int, old: int) -> None:
        """Give the file its name and the attributes of the open file ``old``, which has the name now."""
        keep_attributes(old, self._file.number)
        if self._temporary is None:
            self._replace_nameless(name, directory)
        else:
            os.replace(self._temporary, name, src_dir_fd=self._directory.number, dst_dir_fd=directory)
            self._temporary = None

    def _replace_nameless(self, name: str, directory: int) -> None:
        temporary = _temporary_name()  # `link` cannot replace a file, so link first and then rename
        self._link(temporary, directory)
        try:
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    def close(self) -> None:
        """Remove the temporary name, if the file still has one, and release the lock of the file."""
        try:
            if self._temporary is not None:
                self._remove_temporary()
        finally:
            if hasattr(self, "_file"):
                unlock_file(self._file.number)
                del self._file

    def _remove_temporary(self) -> None:
        assert self._temporary  # noqa: S101
        with suppress(OSError):  # already removed, or a sweep will remove it
            os.unlink(self._temporary, dir_fd=self._directory.number)
        self._temporary = None

    def _named(self) -> int:
        self._temporary = _temporary_name()
        return os.open(self._temporary, _NEW, FILE_MODE, dir_fd=self._directory.number)


def _nameless(directory: int) -> int | None:
    if not hasattr(os, "O_TMPFILE") or not os.path.exists(_OWN_FILES):
        return None
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, FILE_MODE, dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return None


def make_ignore_file(directory: Descriptor, sync: bool, bits: int | None) -> None:
    """Let git ignore all files in a directory; an existing ``.gitignore`` stays as it is."""
    if os.access(_IGNORE_FILE, os.F_OK, dir_fd=directory.number):
        return
    try:
        _create_ignore_file(directory, sync, bits)
    except OSError as error:
        if error.errno not in _NOT_PERMITTED:  # else the write of the caller's file raises the error, if it fails too
            raise


def _create_ignore_file(directory: Descriptor, sync: bool, bits: int | None) -> None:
    new = StagedFile(directory, len(_IGNORE_ALL), nameless=True)
    try:
        new.write(_IGNORE_ALL)
        if sync:
            new.sync()
        with suppress(FileExistsError):  # another process created it first
            new.create(_IGNORE_FILE, directory.number, bits)
        if sync:
            sync_file(directory.number)
    finally:
        new.close()


def append(file: int, data: bytes, size: int) -> None:
    """Append to an open and locked file of ``size`` bytes: all of the data, or nothing.

    Raises:
        OutcomeUnknownError: a part was written and could not be removed again.
    """
    try:
        written = os.write(file, data)
        if written != len(data):
            _write_all(file, memoryview(data)[written:])
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


def _write_all(file: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
