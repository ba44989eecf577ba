"""Listing of files by descriptors: each directory is opened below its parent, never by a path."""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress

from agent_memory.backend.helpers import PageBuilder
from agent_memory.key import MAX_SEGMENTS, TEMPORARY_SUFFIX
from agent_memory_local._files import is_temporary, sweep
from agent_memory_local._locks import close
from agent_memory_local._spelling import from_disk, on_disk
from agent_memory_local._walk import subdirectory


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
