"""Locks without lock files: one on the directory of a tree, and one on each file.

The locks, in the order in which a change takes them:

1. A **tree** is locked by ``flock`` on its directory: shared for a change of a file, exclusive for a move or delete of
   directories. Shared locks of several writers can overlap without end. So a writer that needs the exclusive lock
   announces it, by a read lock of the second kind on the directory, and no writer takes a new shared lock meanwhile.
2. A **file** is locked by an open-file-description lock (Linux since 3.15, macOS) on bytes far beyond any content:
   ``[_FAR + size, end)``, where ``size`` is the size of the file when it was locked. A reader never waits: a query of
   the lock returns the number of settled bytes, even in the middle of an append.

Every open file description has its own lock, so threads exclude each other as processes do, and the kernel releases
the locks of a killed process. A forked child shares the description, and closing it in one process does not release
its lock. So locks are released explicitly.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from agent_memory.backend._deadline import DEFAULT_SECONDS
from agent_memory.backend.helpers import Deadline, TryLater, current_deadline, may_try_later, translating
from agent_memory.errors import FileOperationError
from agent_memory.key import Key

_FAR = 1 << 62
_BUSY = {errno.EAGAIN, errno.EACCES}
_SHORTEST, _LONGEST = 0.0001, 0.01
_MOST_WALKS = 1000
T = TypeVar("T")


class Busy(Exception):
    """Another writer holds the lock; the message names the locked file or tree."""


class StalePath(Exception):
    """The path no longer leads to the opened file or directory; the caller must walk it again."""


class Failed(Exception):
    """The message says why a file cannot be used; `raised_as` makes it a `ReadError`, `WriteError` or `AppendError`."""


@contextmanager
def raised_as(key: Key, error: type[FileOperationError]) -> Iterator[None]:
    """Raise a `Failed` or an `OSError` of the block as ``error``; also a `Failed` that `TryLater` makes later."""
    with translating(key, error, OSError):
        try:
            yield
        except Failed as failed:
            raise error(str(failed), path=key.path) from None
        except TryLater as later:
            later.give_up = _give_up_as(key, error, later.give_up)
            raise


def _give_up_as(
    key: Key, error: type[FileOperationError], give_up: Callable[[Deadline], Exception]
) -> Callable[[Deadline], FileOperationError]:
    return lambda limit: error(str(give_up(limit)), path=key.path)


def retry_while_locked(attempt: Callable[[], T]) -> T:
    """Run a change, and retry it with back-off while a lock is held or the path is stale; a wait holds no lock.

    Raises:
        Failed: a lock was held until the deadline, by default `DEFAULT_SECONDS`.
        TryLater: a lock is held, and the caller can wait without this thread.
    """
    try:
        return attempt()
    except (Busy, StalePath):
        pass  # leave the handler first: an exception keeps the objects of its frames alive, and so their locks
    return _retry_until_deadline(attempt)


def _retry_until_deadline(attempt: Callable[[], T]) -> T:
    limit = current_deadline() or Deadline(DEFAULT_SECONDS, time.monotonic() + DEFAULT_SECONDS)
    delay, walks = _SHORTEST, 0
    while True:
        try:
            return attempt()
        except Busy as busy:
            what = str(busy)
        except StalePath:
            walks += 1
            if walks > _MOST_WALKS:
                raise Failed("its directory kept disappearing; nothing was written") from None
            continue
        give_up = partial(_timed_out, what)  # outside the handler: see `retry_while_locked`
        if may_try_later():
            raise TryLater(DEFAULT_SECONDS, give_up)
        if time.monotonic() > limit.at:
            raise give_up(limit)
        time.sleep(random.random() * delay)  # noqa: S311 - spreads retries
        delay = min(2 * delay, _LONGEST)


def _timed_out(what: str, limit: Deadline) -> Failed:
    waited = f"waited {limit.seconds:g} s for the lock of {what}, held by another writer"
    return Failed(f"{waited}; nothing was written")


def lock_tree(directory: int, kind: int = fcntl.LOCK_EX) -> None:
    """Lock a tree's open directory: ``LOCK_SH`` for a change of a file, ``LOCK_EX`` for a change of directories.

    Raises:
        Busy: another holder has a lock that excludes this one.
    """
    try:
        fcntl.flock(directory, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy("the directory tree") from None


def announce_exclusive(directory: int) -> None:
    """Announce that an exclusive lock is wanted, until the directory is closed; no new shared lock is taken then."""
    with suppress(OSError):  # a filesystem without such locks has no announcement
        fcntl.fcntl(directory, fcntl.F_OFD_SETLK, _request(fcntl.F_RDLCK, _FAR))


def is_exclusive_announced(directory: int) -> bool:
    """Whether a writer has announced the exclusive lock of a tree."""
    try:
        return fcntl.fcntl(directory, fcntl.F_OFD_GETLK, _ANNOUNCED_QUERY)[_TYPE] != _UNLOCKED
    except OSError:
        return False


def unlock_tree(directory: int) -> bool:
    """Release the lock of a tree; False if that failed, and closing the directory releases it."""
    try:
        fcntl.flock(directory, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


def lock_file(file: int) -> os.stat_result:
    """Lock a file that is open for reading and writing, and return its status.

    Raises:
        Busy: another writer holds the lock.
        StalePath: the file was replaced or deleted after it was opened.
    """
    _set_lock(file, _WHOLE)  # a lock without a size, which is not known yet: nothing is being written
    found = os.fstat(file)
    if found.st_nlink == 0:
        unlock_file(file)
        raise StalePath
    _set_lock(file, _request(fcntl.F_UNLCK, _FAR - 1, found.st_size + 1))
    return found


def lock_new_file(file: int, size: int) -> None:
    """Lock a new file, which will have ``size`` bytes, before it gets its name; raises `Busy`."""
    _set_lock(file, _request(fcntl.F_WRLCK, _FAR + size))


def _set_lock(file: int, lock: bytes) -> None:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except OSError as error:
        if error.errno in _BUSY:
            raise Busy("the file") from None
        raise


def unlock_file(file: int) -> None:
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
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _SIZE_QUERY)
    except OSError:
        return None  # a filesystem without such locks has no changes either: `lock_file` fails there
    if answer[_TYPE] == _UNLOCKED:
        return None
    start: int = _LAYOUT.unpack(answer)[_START] - _FAR
    return start if start >= 0 else None  # negative: a lock of another program


# In ``struct flock`` Linux has the type first, and macOS the offsets.
if sys.platform == "darwin":
    _LAYOUT, _START, _TYPE = struct.Struct("qqihh"), 0, slice(20, 22)

    def _request(kind: int, start: int, length: int = 0) -> bytes:
        return _LAYOUT.pack(start, length, 0, kind, os.SEEK_SET)

else:
    _LAYOUT, _START, _TYPE = struct.Struct("hhqqi4x"), 2, slice(0, 2)

    def _request(kind: int, start: int, length: int = 0) -> bytes:
        return _LAYOUT.pack(kind, os.SEEK_SET, start, length, 0)


_UNLOCKED = struct.pack("h", fcntl.F_UNLCK)
_WHOLE = _request(fcntl.F_WRLCK, _FAR - 1)
_FREE = _request(fcntl.F_UNLCK, _FAR - 1)
_SIZE_QUERY = _request(fcntl.F_RDLCK, _FAR - 1)
_ANNOUNCED_QUERY = _request(fcntl.F_WRLCK, _FAR)
