"""Locks without lock files: one on the directory of a tree, and one on each file.

A **tree** is locked by ``flock`` on its directory: shared for a change of a file, exclusive for a move or delete of
directories. A **file** is locked by an open-file-description lock (Linux since 3.15, macOS) on bytes far beyond any
content: ``[_FAR + size, end)``, where ``size`` is the size of the file when the lock was taken. A reader therefore need
not wait: a query of the lock returns the number of settled bytes, even in the middle of an append. Shared locks of a
tree can overlap without end, so a writer that needs the exclusive lock announces it by a read lock of the second kind
on the directory; new shared holders stand back while there is one.

Every open file description has its own lock, so threads exclude each other as processes do, and the kernel releases
the locks of a killed process. Locks are released explicitly: a forked child shares the description, so closing it in
one process would not release its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from agent_memory.backend import Deadline, TryLater, current_deadline, may_try_later
from agent_memory.errors import FileOperationError
from agent_memory.key import Key

LOCK_SECONDS = 60.0
"""The longest time in seconds that a change waits for a lock, unless the caller set a deadline."""

_FAR = 1 << 62
_BUSY = {errno.EAGAIN, errno.EACCES}
_SHORTEST, _LONGEST = 0.0001, 0.01
_MOST_WALKS = 1000
T = TypeVar("T")


class Busy(Exception):
    """Another holder has the lock; the message names the locked thing."""


class StalePath(Exception):
    """The path no longer leads to the opened file or directory; the caller must walk it again."""


def retry_while_locked(key: Key, error: type[FileOperationError], attempt: Callable[[], T]) -> T:
    """Run a change, and retry it with back-off while a lock is taken or the path is stale; a wait holds no lock.

    Raises:
        FileOperationError: of the type ``error``: a lock was taken until the deadline, by default `LOCK_SECONDS`.
        TryLater: a lock is taken, and the caller can wait without this thread.
    """
    try:
        return attempt()
    except (Busy, StalePath):
        pass  # leave the handler first: an exception keeps the objects of its frames alive, and so their locks
    return _again_and_again(key, error, attempt)


def _again_and_again(key: Key, error: type[FileOperationError], attempt: Callable[[], T]) -> T:
    limit = current_deadline() or Deadline(LOCK_SECONDS, time.monotonic() + LOCK_SECONDS)
    delay, walks = _SHORTEST, 0
    while True:
        try:
            return attempt()
        except Busy as busy:
            what = str(busy)
        except StalePath:
            walks += 1
            if walks > _MOST_WALKS:
                raise error("its directory kept disappearing; nothing was written", path=key.path) from None
            continue
        give_up = partial(_too_late, key, error, what)  # outside the handler: see `retry_while_locked`
        if may_try_later():
            raise TryLater(LOCK_SECONDS, give_up)
        if time.monotonic() > limit.at:
            raise give_up(limit)
        time.sleep(random.random() * delay)  # noqa: S311 - spreads retries
        delay = min(2 * delay, _LONGEST)


def _too_late(key: Key, error: type[FileOperationError], what: str, limit: Deadline) -> FileOperationError:
    waited = f"waited {limit.seconds:g} s for the lock of {what}, held by another writer"
    return error(f"{waited}; nothing was written", path=key.path)


def take_tree(directory: int, kind: int = fcntl.LOCK_EX) -> None:
    """Lock a tree's open directory: ``LOCK_SH`` for a change of a file, ``LOCK_EX`` for a change of directories.

    Raises:
        Busy: another holder has a lock that excludes this one.
    """
    try:
        fcntl.flock(directory, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy("the directory tree") from None


def ask_for_tree(directory: int) -> None:
    """Announce, until the directory is closed, that an exclusive lock is wanted: new shared holders stand back."""
    with suppress(OSError):  # the filesystem has no such locks: then there is no announcement
        fcntl.fcntl(directory, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _FAR))


def is_asked_for(directory: int) -> bool:
    """Whether a writer waits for the exclusive lock of a tree."""
    try:
        return fcntl.fcntl(directory, fcntl.F_OFD_GETLK, _ASK_ALL)[_TYPE] != _UNLOCKED
    except OSError:
        return False


def leave_tree(directory: int) -> bool:
    """Release the lock of a tree, and return whether that succeeded; if not, closing the directory releases it."""
    try:
        fcntl.flock(directory, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


def take_file(file: int) -> os.stat_result:
    """Lock a file open for reading and writing, and return its status.

    Raises:
        Busy: another writer holds the lock.
        StalePath: the file was replaced or deleted after it was opened.
    """
    _set_lock(file, _WHOLE)  # a lock without a size: nothing is being written, and the size is not known yet
    found = os.fstat(file)
    if found.st_nlink == 0:
        leave_file(file)
        raise StalePath
    _set_lock(file, _lock(fcntl.F_UNLCK, _FAR - 1, found.st_size + 1))
    return found


def take_new_file(file: int, size: int) -> None:
    """Lock a new file of a future ``size`` in bytes, before it gets its name; raises `Busy`."""
    _set_lock(file, _lock(fcntl.F_WRLCK, _FAR + size))


def _set_lock(file: int, lock: bytes) -> None:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except OSError as error:
        if error.errno in _BUSY:
            raise Busy("the file") from None
        raise


def leave_file(file: int) -> None:
    """Release the lock of a file; if that fails, closing the file releases it."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FREE)
    except OSError:
        return


def close(descriptor: int) -> None:
    """Close a file or directory and ignore errors: everything that must be durable was synced before."""
    try:
        os.close(descriptor)
    except OSError:
        return


def settled_size(file: int) -> int | None:
    """The number of settled bytes of an open file while a writer changes it; None if no writer does."""
    try:
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _ASK)
    except OSError:
        return None  # the filesystem has no such locks, and so no changes: `take_file` fails there
    if answer[_TYPE] == _UNLOCKED:
        return None
    start: int = _LAYOUT.unpack(answer)[_START] - _FAR
    return start if start >= 0 else None  # negative: a lock of another program


# struct flock: on Linux the type is first, on macOS the offsets are.
if sys.platform == "darwin":
    _LAYOUT, _START, _TYPE = struct.Struct("qqihh"), 0, slice(20, 22)

    def _lock(kind: int, start: int, length: int = 0) -> bytes:
        return _LAYOUT.pack(start, length, 0, kind, os.SEEK_SET)

else:
    _LAYOUT, _START, _TYPE = struct.Struct("hhqqi4x"), 2, slice(0, 2)

    def _lock(kind: int, start: int, length: int = 0) -> bytes:
        return _LAYOUT.pack(kind, os.SEEK_SET, start, length, 0)


_UNLOCKED = struct.pack("h", fcntl.F_UNLCK)
_WHOLE = _lock(fcntl.F_WRLCK, _FAR - 1)
_FREE = _lock(fcntl.F_UNLCK, _FAR - 1)
_ASK = _lock(fcntl.F_RDLCK, _FAR - 1)
_ASK_ALL = _lock(fcntl.F_WRLCK, _FAR)
