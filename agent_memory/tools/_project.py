"""The directory of a project's memories: ``.claude/memories`` in its git work tree."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path
from typing import Final

_log = logging.getLogger("agent_memory")
_MEMORIES: Final = Path(".claude", "memories")
_TOP: Final = ("git", "rev-parse", "--show-toplevel")
_OF_A_HOOK: Final = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"})
"""Variables that git sets while it runs a hook: they make git report that repository for every directory."""
_SECONDS: Final = 10


def project_memories(start: str | os.PathLike[str]) -> tuple[Path, dict[str, object]]:
    """Find ``.claude/memories`` of the git work tree that contains a directory, else of the directory; create nothing.

    Returns:
        The path, and the storage options to open it with: a repository's content is not trusted, so no symbolic link
        below its work tree is followed.
    """
    directory = Path(start).resolve()
    project = _work_tree(directory) or directory
    return project / _MEMORIES, {"within": str(project)}


def _work_tree(directory: Path) -> Path | None:
    """The work tree that git reports; None if git fails, or reports one that does not contain the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        done = subprocess.run(  # noqa: S603 - the git on the user's PATH
            _TOP, cwd=directory, env=environment, capture_output=True, check=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):  # no git, no work tree, or one that git does not trust
        return None
    text = os.fsdecode(done.stdout.removesuffix(b"\n"))
    if not text:
        return None
    top = Path(text).resolve()
    if top != _repository(directory):
        _log.warning(
            "git reports a work tree that does not contain the repository; using the memories of the directory itself"
        )
        return None
    return top


def _repository(directory: Path) -> Path | None:
    """The nearest directory, from this one upwards, that contains ``.git`` on the disk.

    Git's own answer also follows ``core.worktree`` in the repository's configuration, which an archive can contain.
    """
    return next((above for above in (directory, *directory.parents) if os.path.lexists(above / ".git")), None)
