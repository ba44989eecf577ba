"""Refusal of files with several hard links, because one may be outside the root; own temporary files are allowed."""

from __future__ import annotations

import os
from contextlib import suppress

from agent_memory.errors import FileOperationError
from agent_memory.key import Key
from agent_memory_local._files import is_temporary


def refuse_other_names(directory: int, key: Key, file: int, error: type[FileOperationError]) -> None:
    """Raise unless all other names of an open file are temporary names beside it; these are removed.

    A writer that was killed after it gave the file its name leaves such a name; see `_files.StagedFile.create`.
    """
    found = os.fstat(file)
    if found.st_nlink - _removed_temporaries(directory, found) > 1:
        allowed = "allow_hard_links=True allows reading it"
        raise error(f"the file has another name (a hard link), perhaps outside the tree; {allowed}", path=key.path)


def _removed_temporaries(directory: int, found: os.stat_result) -> int:
    with os.scandir(directory) as entries:
        ours = [e.name for e in entries if is_temporary(e.name) and e.inode() == found.st_ino]
    for name in ours:
        with suppress(OSError):  # already removed, or no permission: it counts as a temporary name in any case
            os.unlink(name, dir_fd=directory)
    return len(ours)
