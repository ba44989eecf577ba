"""Files with more than one name: refused, for the other name may lie outside; unless it is a temporary of ours."""

from __future__ import annotations

import os
from contextlib import suppress

from agent_memory.errors import FileOperationError
from agent_memory.key import Key
from agent_memory_local._files import is_temporary


def refuse_other_names(directory: int, key: Key, file: int, error: type[FileOperationError]) -> None:
    """Raise unless every other name of an open file is a temporary beside it, which is removed.

    Such a one is left by a creator that was killed after it gave the file its name; see `_files.Prepared.create`.
    """
    found = os.fstat(file)
    if found.st_nlink - _removed_temporaries(directory, found) > 1:
        allowed = "allow_hard_links=True allows to read it"
        raise error(f"the file has another name (a hard link), perhaps outside the tree; {allowed}", path=key.path)


def _removed_temporaries(directory: int, found: os.stat_result) -> int:
    with os.scandir(directory) as entries:
        ours = [e.name for e in entries if is_temporary(e.name) and e.inode() == found.st_ino]
    for name in ours:
        with suppress(OSError):  # somebody else was faster, or nothing may be removed here: it is ours all the same
            os.unlink(name, dir_fd=directory)
    return len(ours)
