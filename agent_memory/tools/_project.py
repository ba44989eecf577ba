"""The directory of a project's memories: ``.claude/memories`` in its git work tree."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

_log = logging.getLogger("agent_memory")
_MEMORIES: Final = Path(".claude", "memories")
_TOP: Final = ("git", "rev-parse", "--show-toplevel")
_WORK_TREES: Final = ("git", "worktree", "list", "--porcelain")
_LISTED: Final = re.compile(rb"worktree (.*?)\n(HEAD [0-9a-f]+|bare)\n", re.DOTALL)
"""An entry of git's list of work trees: its path, which may contain line feeds, and "bare" for a bare repository."""
Worktrees: TypeAlias = Literal["own", "shared"]
"""Whether each work tree of a repository has memories of its own, or all have those of the main work tree."""


_OF_A_HOOK: Final = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"})
"""Variables that git sets while it runs a hook: they make git report that repository for every directory."""
_SECONDS: Final = 10


def project_memories(start: str | os.PathLike[str], worktrees: Worktrees) -> tuple[Path, dict[str, object]]:
    """Find ``.claude/memories`` of the git work tree that contains a directory, else of the directory; create nothing.

    With ``worktrees="shared"`` find those of the repository's main work tree.

    Returns:
        The path, and the storage options to open it with: a repository's content is not trusted, so no symbolic link
        below its work tree is followed.

    Raises:
        ValueError: ``worktrees`` is another value, or is "shared" and there is no main work tree.
    """
    if worktrees not in get_args(Worktrees):
        raise ValueError(f"worktrees must be 'own' or 'shared', not {worktrees!r}")
    directory = Path(start).resolve()
    project = _main_work_tree(directory) if worktrees == "shared" else _work_tree(directory) or directory
    return project / _MEMORIES, {"within": str(project)}


def _main_work_tree(directory: Path) -> Path:
    """The main work tree of the repository; git lists it first.

    The list is the main repository's own. A directory that only says that it belongs to that repository, such as an
    unpacked archive with a file ``.git``, is not in it.
    """
    listed = _LISTED.findall(_git(directory, _WORK_TREES) or b"")
    if not listed:
        raise ValueError("worktrees='shared' needs a git work tree, and git finds none here; use worktrees='own'")
    if listed[0][1] == b"bare":
        raise ValueError(
            "worktrees='shared' needs a main work tree, and this repository is bare; use worktrees='own', or open "
            "a directory of your choice with AgentMemory.open"
        )
    paths = [Path(os.fsdecode(path)).resolve() for path, _ in listed]
    if _work_tree(directory) not in paths or _repository(paths[0]) != paths[0]:
        raise ValueError("git does not list this directory as a work tree of its repository; use worktrees='own'")
    return paths[0]


def _git(directory: Path, command: tuple[str, ...]) -> bytes | None:
    """What git prints; None if it fails: no git, no such directory, no work tree, or one that git does not trust."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        done = subprocess.run(  # noqa: S603 - the git on the user's PATH
            command, cwd=directory, env=environment, capture_output=True, check=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _work_tree(directory: Path) -> Path | None:
    text = os.fsdecode((_git(directory, _TOP) or b"").removesuffix(b"\n"))
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
