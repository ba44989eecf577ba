"""Where a project keeps its memories: seed 003's decisions D1 and D2."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_MEMORIES: Final = Path(".claude", "memories")
_GIT: Final = ("git", "rev-parse", "--show-toplevel")


_OF_A_HOOK: Final = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"})
"""What git sets while it runs a hook: it would answer for that repository, whatever the directory."""
_SECONDS: Final = 10


def project_memories(start: str | os.PathLike[str]) -> Path:
    """``.claude/memories`` of the git work tree that a directory lies in, else of the directory; creates nothing."""
    directory = Path(start).resolve()
    return (_work_tree(directory) or directory) / _MEMORIES


def _work_tree(directory: Path) -> Path | None:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        done = subprocess.run(  # noqa: S603 - git as the user has it
            _GIT, cwd=directory, env=environment, capture_output=True, check=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, no such directory, no work tree, or one that git does not trust
    top = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return Path(top) if top else None
