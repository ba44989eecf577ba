"""Listing of files, and removal of directories without files, which are not listed and must not block a name.

Each directory is opened by a descriptor below its parent, never by a path.
"""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Sequence
from contextlib import suppress

from agent_memory.backend.helpers import PageBuilder
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.key import MAX_SEGMENTS, TEMPORARY_SUFFIX, Key
from agent_memory_local._files import is_temporary, sweep
from agent_memory_local._locks import close
from agent_memory_local._spelling import from_disk, on_disk
from agent_memory_local._walk import Walker, subdirectory

_SMALL = 4096
"""The most bytes of a directory that is searched for temporary files after each deletion: about a hundred names."""
_IN_USE = {
    errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EBUSY,
}  # fmt: skip


def scan(directory: int, builder: PageBuilder, recursive: bool, depth: int, above: str = "") -> None:
    """Add every regular file below a directory to a builder; ``depth``: the segments from the tree to the directory.

    Without ``recursive``, directories with a file below them are added, too. Symbolic links, special
    files and entries without permission count as skipped. Temporary files of dead writers are removed.
    """
    add = builder.file
    for entry in _entries(directory):
        segment = entry.name
        name = above + (segment if segment.isascii() else _as_key(directory, entry))
        if entry.is_file(follow_symlinks=False):
            if segment[0] == "." and is_temporary(segment):
                sweep(directory, segment)
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:  # the directory has read permission, but no search permission
                builder.skipped += 1
                continue
            add(name, found.st_size, found.st_mtime)
        elif entry.is_dir(follow_symlinks=False):
            _directory(directory, segment, name, builder, recursive, depth)
        else:
            builder.skipped += 1


def _as_key(directory: int, entry: os.DirEntry[str]) -> str:
    """A listed name in the form of keys (NFC), if the directory finds the entry by it; else the name as it is listed.

    Some filesystems store and list names in a decomposed form.
    """
    name = from_disk(entry.name)
    if unicodedata.is_normalized("NFC", name):
        return name
    with suppress(OSError, ValueError):
        nfc = unicodedata.normalize("NFC", name)
        there = os.stat(on_disk(nfc), dir_fd=directory, follow_symlinks=False)
        if there.st_ino == entry.inode():
            return nfc
    return name


def _directory(parent: int, segment: str, name: str, builder: PageBuilder, recursive: bool, depth: int) -> None:
    if (descriptor := _opened(parent, segment, builder)) is None:
        return
    try:
        if not recursive:
            if _holds_a_file(descriptor, depth + 1, builder):
                builder.directory(name)
        elif depth + 1 < MAX_SEGMENTS:
            scan(descriptor, builder, recursive, depth + 1, name + "/")
        else:
            builder.skipped += 1
    finally:
        close(descriptor)


def _opened(parent: int, segment: str, builder: PageBuilder) -> int | None:
    try:
        return subdirectory(parent, segment)
    except PermissionError:
        builder.skipped += 1
        return None


def _holds_a_file(directory: int, depth: int, builder: PageBuilder) -> bool:
    """Whether a directory has a file below it; a temporary file of a writer does not count."""
    for entry in _entries(directory):
        if entry.is_file(follow_symlinks=False):
            if not entry.name.endswith(TEMPORARY_SUFFIX):
                return True
        elif not entry.is_dir(follow_symlinks=False) or depth >= MAX_SEGMENTS:
            continue
        elif _holds_below(directory, entry.name, depth, builder):
            return True
    return False


def _holds_below(parent: int, segment: str, depth: int, builder: PageBuilder) -> bool:
    if (descriptor := _opened(parent, segment, builder)) is None:
        return False
    try:
        return _holds_a_file(descriptor, depth + 1, builder)
    finally:
        close(descriptor)


def _entries(directory: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []


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
            if not _removed_if_small(parent, on_disk(segments[depth])):
                return
        except OSError:
            return  # the directory stays: it is not listed and blocks no name
        finally:
            close(parent)


def _removed_if_small(parent: int, name: str) -> bool:
    """As `remove_if_empty`, but a large directory is not searched for temporary files: it has other files."""
    if _removed(parent, name):
        return True
    size = os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
    return size <= _SMALL and _emptied(parent, name, MAX_SEGMENTS) and _removed(parent, name)


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
