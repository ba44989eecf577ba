"""Removal of directories without files, which are not listed and must not block a name."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.key import MAX_SEGMENTS, Key
from agent_memory_local._files import is_temporary, sweep
from agent_memory_local._locks import close
from agent_memory_local._spelling import on_disk
from agent_memory_local._walk import Walker, subdirectory

_IN_USE = {
    errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EBUSY,
}  # fmt: skip


def remove_empty(walker: Walker, segments: Sequence[str], key: Key) -> None:
    """Remove a directory and its parents, as long as they are empty or already gone; errors are ignored.

    A concurrent writer that finds its directory gone creates it again.
    """
    for depth in range(len(segments) - 1, -1, -1):
        try:
            parent = walker.directory(segments[:depth], key)
        except AgentMemoryFileNotFoundError:
            continue
        except (AgentMemoryError, OSError):
            return  # the caller's operation has succeeded anyway
        try:
            if not remove_if_empty(parent, on_disk(segments[depth])):
                return
        except OSError:
            return  # the directory stays: it is not listed and blocks no name
        finally:
            close(parent)


def remove_if_empty(parent: int, name: str, depth: int = MAX_SEGMENTS) -> bool:
    """Remove a directory that contains no files except temporary files of dead or failed writers.

    Return True if the name is free now, False if a file or directory with the name stays.

    Raises:
        OSError: the disk failed.
    """
    return _removed(parent, name) or (_emptied(parent, name, depth) and _removed(parent, name))


def _removed(parent: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EROFS:
            return not _is_there(parent, name)  # every name has this error, also a free one
        if error.errno in _IN_USE:
            return False
        raise
    return True


def _is_there(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _emptied(parent: int, name: str, depth: int) -> bool:
    directory = subdirectory(parent, name) if depth else None
    if directory is None:
        return False
    try:
        with os.scandir(directory) as entries:
            return all(_gone(directory, entry, depth) for entry in entries)
    finally:
        close(directory)


def _gone(directory: int, entry: os.DirEntry[str], depth: int) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return remove_if_empty(directory, entry.name, depth - 1)
    return is_temporary(entry.name) and sweep(directory, entry.name)
