"""Whole files in one open directory: created, replaced, appended to, so that a reader never sees a part."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import suppress

from agent_memory.errors import OutcomeUnknownError
from agent_memory.key import TEMPORARY_SUFFIX

FILE_MODE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.EPERM, errno.ENOSYS}


def create(directory: int, name: str, data: bytes, sync: bool) -> None:
    """Make a file with its content, or raise `FileExistsError`; it has one link and no other name, ever."""
    try:
        _link_nameless(directory, name, data, sync)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        _link_temporary(directory, name, data, sync)
    sync_directory(directory, sync)


def replace(directory: int, name: str, data: bytes, sync: bool) -> None:
    """Put a new file in the place of whatever file has the name."""
    temporary = _write_temporary(directory, data, sync)
    try:
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _remove(directory, temporary)
        raise
    sync_directory(directory, sync)


def append(file: int, data: bytes, sync: bool) -> int:
    """Append to an open file, all or nothing, and return its new size.

    Readers hold a shared lock on the file for the moment they read, so they see none of the append or all
    of it. The lock is given back before the bytes travel to the disk: no reader waits for that.
    """
    fcntl.flock(file, fcntl.LOCK_EX)
    size = os.fstat(file).st_size
    try:
        _write_all(file, data)
    except BaseException:
        os.ftruncate(file, size)
        raise
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
    if sync:
        _sync_or_unknown(file)
    return size + len(data)


def read_range(file: int, start: int, end: int) -> bytes:
    """The bytes ``[start:end]`` of an open file."""
    parts = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def sync_directory(directory: int, sync: bool) -> None:
    """Make a directory's names durable.

    Raises:
        OutcomeUnknownError: the disk refused; what was written is visible, but may not outlive a crash.
    """
    if sync:
        _sync_or_unknown(directory)


def _sync_or_unknown(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OutcomeUnknownError(f"written, but not proved durable: {error.strerror}") from error


def _link_nameless(directory: int, name: str, data: bytes, sync: bool) -> None:
    if not hasattr(os, "O_TMPFILE"):
        raise OSError(errno.ENOSYS, "no O_TMPFILE")
    flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
    file = os.open(f"/proc/self/fd/{directory}", flags, FILE_MODE)
    try:
        _fill(file, data, sync)
        os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(file)


def _link_temporary(directory: int, name: str, data: bytes, sync: bool) -> None:
    temporary = _write_temporary(directory, data, sync)
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    finally:
        os.unlink(temporary, dir_fd=directory)


def _write_temporary(directory: int, data: bytes, sync: bool) -> str:
    temporary = f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    file = os.open(temporary, _NEW, FILE_MODE, dir_fd=directory)
    try:
        _fill(file, data, sync)
    except BaseException:
        _remove(directory, temporary)
        raise
    finally:
        os.close(file)
    return temporary


def _remove(directory: int, temporary: str) -> None:
    with suppress(FileNotFoundError):  # an interrupt may come after it got its name
        os.unlink(temporary, dir_fd=directory)


def _fill(file: int, data: bytes, sync: bool) -> None:
    _write_all(file, data)
    if sync:
        os.fsync(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
