"""Locks without lock files: one on the tree's directory, one on the file itself.

A **tree** is locked by ``flock`` on its directory: shared by whoever changes a file, exclusively by whoever moves
or deletes directories. A **file** is locked by an open-file-description lock (Linux since 3.15, macOS) on bytes far
beyond any content: ``[_FAR + size, end)``, where ``size`` is what the file had when the lock was taken. So a reader
need not wait: it asks who holds the lock, and is told how many bytes are settled, even in the middle of an append.
Shared locks of a tree overlap, so who wants the exclusive one might wait for ever: it asks for it by a lock of the
second kind, for reading, on the directory, and who is about to share the tree holds back while there is one.

Every open file description has its own lock, so threads exclude each other as processes do, and the kernel frees
what a killed holder held. Both are given back by hand: a forked child shares the description, so closing would not.
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
"""How long a change waits for others before it gives up, unless its caller set a deadline."""

_FAR = 1 << 62
_BUSY = {errno.EAGAIN, errno.EACCES}
_SHORTEST, _LONGEST = 0.0001, 0.01
_MOST_WALKS = 1000
T = TypeVar("T")


class Busy(Exception):
    """Somebody else holds a lock; its message says of what."""


class StalePath(Exception):
    """What was opened is not what the name leads to any more: walk again."""


def retry_while_locked(key: Key, error: type[FileOperationError], attempt: Callable[[], T]) -> T:
    """Run a change that holds no lock while it waits: again when somebody else was faster.

    Raises:
        FileOperationError: of the type ``error``, when a lock stays taken for `LOCK_SECONDS`.
        TryLater: a lock is taken, and the caller can wait without this thread.
    """
    try:
        return attempt()
    except (Busy, StalePath):
        pass  # leave the handler first: an exception keeps alive what its frames hold
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
    """Lock a tree's open directory: shared for a change of a file, else for a change of directories.

    Raises:
        Busy: somebody holds a lock that excludes this one.
    """
    try:
        fcntl.flock(directory, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy("the directory tree") from None


def ask_for_tree(directory: int) -> None:
    """Tell who is about to share a tree's lock that somebody waits for all of it; until the directory is closed."""
    with suppress(OSError):  # a filesystem without such locks: then without asking
        fcntl.fcntl(directory, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _FAR))


def is_asked_for(directory: int) -> bool:
    """Whether somebody waits for all of a tree."""
    try:
        return fcntl.fcntl(directory, fcntl.F_OFD_GETLK, _ASK_ALL)[_TYPE] != _UNLOCKED
    except OSError:
        return False


def leave_tree(directory: int) -> None:
    """Give a tree's lock back; if that fails, closing the directory does."""
    try:  # `contextlib.suppress` would cost as much as the call
        fcntl.flock(directory, fcntl.LOCK_UN)
    except OSError:
        return


def take_file(file: int) -> os.stat_result:
    """Lock a file open for reading and writing, and return what it is now.

    Raises:
        Busy: somebody else holds the lock.
        StalePath: the file was replaced or deleted since it was opened.
    """
    _set_lock(file, _WHOLE)  # which says nothing of a size: nobody writes, and none is known yet
    found = os.fstat(file)
    if found.st_nlink == 0:
        leave_file(file)
        raise StalePath
    _set_lock(file, _lock(fcntl.F_UNLCK, _FAR - 1, found.st_size + 1))
    return found


def take_new_file(file: int, size: int) -> None:
    """Lock a file that is to have ``size`` bytes, before it has its name; raises `Busy`."""
    _set_lock(file, _lock(fcntl.F_WRLCK, _FAR + size))


def _set_lock(file: int, lock: bytes) -> None:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except OSError as error:
        if error.errno in _BUSY:
            raise Busy("the file") from None
        raise


def leave_file(file: int) -> None:
    """Give a file's lock back; if that fails, closing the file does."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FREE)
    except OSError:
        return


def close(descriptor: int) -> None:
    """Close a file or directory; its failure undoes nothing, and what had to be durable was synced before."""
    try:
        os.close(descriptor)
    except OSError:
        return


def settled_size(file: int) -> int | None:
    """How many bytes of an open file are settled, if somebody is changing it; None if nobody is."""
    try:
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _ASK)
    except OSError:
        return None  # a filesystem without such locks: nothing is changed there, see `take_file`
    if answer[_TYPE] == _UNLOCKED:
        return None
    start: int = _LAYOUT.unpack(answer)[_START] - _FAR
    return start if start >= 0 else None  # another program's lock


# struct flock: Linux has the type first, macOS the offsets.
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
