"""The state of files outside a root, and its changes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

SECRET = "SECRET " * 1001


class Seen(NamedTuple):
    """The state of one name: every change of it, its content or the names below it changes one of these fields."""

    mode: int
    inode: int
    links: int
    size: int
    modified: int
    changed: int
    content: bytes


def state(directory: Path) -> dict[str, Seen]:
    """The state of a directory and of everything in it."""
    names = [directory]
    for above, directories, files in os.walk(directory):
        names += [Path(above, name) for name in (*directories, *files)]
    return {str(path.relative_to(directory)): _seen(path) for path in names}


def changes(before: dict[str, Seen], after: dict[str, Seen]) -> list[str]:
    """The names that were added, removed or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _seen(path: Path) -> Seen:
    found = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return Seen(
        found.st_mode, found.st_ino, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns, content
    )
