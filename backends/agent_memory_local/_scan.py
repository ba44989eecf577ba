"""Listing by descriptors: each directory is opened below its parent, never by a path."""

from __future__ import annotations

import os

from agent_memory.backend import PageBuilder
from agent_memory.key import MAX_SEGMENTS, TEMPORARY_SUFFIX
from agent_memory_local._walk import from_disk, subdirectory


def scan(directory: int, builder: PageBuilder, recursive: bool, depth: int, above: str = "") -> None:
    """Give a builder every regular file below a directory ``depth`` segments down its tree.

    Directories are named only if not ``recursive``, and only if a file is somewhere below them. Links and
    special files count as skipped.
    """
    for entry in _entries(directory):
        name = above + from_disk(entry.name)
        if entry.is_dir(follow_symlinks=False):
            _directory(directory, entry.name, name, builder, recursive, depth)
        elif entry.is_file(follow_symlinks=False):
            _file(entry, name, builder)
        else:
            builder.skipped += 1


def _file(entry: os.DirEntry[str], name: str, builder: PageBuilder) -> None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    builder.file(name, found.st_size, found.st_mtime)


def _directory(parent: int, segment: str, name: str, builder: PageBuilder, recursive: bool, depth: int) -> None:
    if (descriptor := subdirectory(parent, segment)) is None:
        return
    try:
        if not recursive:
            if _holds_a_file(descriptor, depth + 1):
                builder.directory(name)
        elif depth + 1 < MAX_SEGMENTS:
            scan(descriptor, builder, recursive, depth + 1, name + "/")
        else:
            builder.skipped += 1
    finally:
        os.close(descriptor)


def _holds_a_file(directory: int, depth: int) -> bool:
    """Directories exist exactly while a file is below them: a writer's, not yet filled, is not listed."""
    for entry in _entries(directory):
        if entry.is_file(follow_symlinks=False):
            if not entry.name.endswith(TEMPORARY_SUFFIX):
                return True
        elif (
            entry.is_dir(follow_symlinks=False) and depth < MAX_SEGMENTS and _holds_below(directory, entry.name, depth)
        ):
            return True
    return False


def _holds_below(parent: int, segment: str, depth: int) -> bool:
    if (descriptor := subdirectory(parent, segment)) is None:
        return False
    try:
        return _holds_a_file(descriptor, depth + 1)
    finally:
        os.close(descriptor)


def _entries(directory: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []
