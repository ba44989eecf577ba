"""`FileSystemManager`: creates Markdown files of a repository and appends to them, and does nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Final, Generic, Self

from agent_memory.backend import PRESENT
from agent_memory.core.sync_facade import step
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidPathError,
    ReadError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.tools._protected import EitherMemory, logic_view

_MARKDOWN: Final = (".md",)
_GIT: Final = frozenset({".git", "git~1"})  # `git~1` is the short name of `.git` on Windows
_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")  # HFS+ ignores them: it opens `.g\u200cit` as `.git`
_LONGEST = 1000  # characters; no tree has a longer name, and splitting a name of 50 MB is slow
_BLOCK = "\n\n"


class _Manager(Generic[EitherMemory]):
    _kind: type[EitherMemory]

    def __init__(self, memory: EitherMemory, *, suffixes: Collection[str] = _MARKDOWN) -> None:
        view = logic_view(self._kind, memory, history=False)
        if not suffixes or isinstance(suffixes, str) or not all(map(_is_ending, suffixes)):
            raise ValueError("suffixes must be a collection of file name endings, each with its dot")
        for suffix in suffixes:
            Key.tree().join(f"x{suffix}")  # refuses an ending that no name can have
        self._memory = view
        self._suffixes = tuple(suffix.lower() for suffix in suffixes)

    @classmethod
    def for_repository(cls, root: str | os.PathLike[str], *, suffixes: Collection[str] = _MARKDOWN) -> Self:
        """Open the manager of a repository on the local disk."""
        memory: Any = cls._kind.open(root)
        return cls(memory, suffixes=suffixes)

    async def _create(self, path: str, content: str) -> WriteResult:
        await self._permit(path)
        try:
            return await self._memory.create(path, content)
        except ReadError as error:  # an object store first looks for a directory of this name
            raise WriteError(str(error)) from error

    async def _append(self, path: str, content: str) -> WriteResult:
        await self._permit(path)
        block = _BLOCK + content if isinstance(content, str) else content  # `append` refuses content that is not text
        try:
            return await self._memory.append(path, block, when=PRESENT)
        except FileAlreadyExistsError as error:  # a directory, or a name below a file: no such file exists
            raise AgentMemoryFileNotFoundError("no such file", path=path) from error

    async def _permit(self, path: str) -> None:
        if not isinstance(path, str) or len(path) > _LONGEST:
            await self._memory.exists(path)  # refuses the path
        in_git = any(segment.translate(_JOINERS).lower() in _GIT for segment in path.split("/"))
        if in_git or not path.lower().endswith(self._suffixes):
            await self._memory.exists(path)  # first refuse an invalid name by the grammar's own rule, and report it
            if in_git:
                raise InvalidPathError(f"{path!a} is refused: files inside .git cannot be written", "git")
            allowed = ", ".join(self._suffixes)
            suggestion = path + self._suffixes[0]
            raise InvalidPathError(
                f"{path!a} is refused: names must end in {allowed}; try {suggestion!a}", "suffix", suggestion
            )


def _is_ending(suffix: object) -> bool:
    return isinstance(suffix, str) and suffix.startswith(".")


class FileSystemManager(_Manager[AgentMemory]):
    """Creates files below one root and appends to them; it cannot read, overwrite or delete.

    Args:
        memory: the tree, of any backend.
        suffixes: the allowed file name endings; upper and lower case are the same.

    Raises:
        ValueError: ``suffixes`` is empty, or holds an ending that no name can have.

    The errors are those of `agent_memory.errors`, with the base class `AgentMemoryError`. `InvalidPathError` refuses
    other endings (rule "suffix") and all names inside ``.git`` (rule "git"). `OperationDenied` refuses the names of a
    conversation (``history.jsonl``, ``cron/jobs.json``, ``jobs.json``).
    """

    _kind = AgentMemory

    def handle_create(self, path: str, content: str) -> WriteResult:
        """Create a file, and the directories above it, in one atomic step.

        Raises:
            PathTraversalError: the path leads outside the root.
            FileAlreadyExistsError: the file exists; it is unchanged.
            WriteError: the storage failed.
        """
        return step(self._create(path, content))

    def handle_append(self, path: str, content: str) -> WriteResult:
        """Append two newlines and the content to an existing file; the append itself checks that the file exists.

        Raises:
            PathTraversalError: the path leads outside the root.
            AgentMemoryFileNotFoundError: no such file; a `FileNotFoundError`.
            AppendError: the storage failed.
        """
        return step(self._append(path, content))


class AsyncFileSystemManager(_Manager[AsyncAgentMemory]):
    """`FileSystemManager` for async callers."""

    _kind = AsyncAgentMemory

    async def handle_create(self, path: str, content: str) -> WriteResult:
        """See `FileSystemManager.handle_create`."""
        return await self._create(path, content)

    async def handle_append(self, path: str, content: str) -> WriteResult:
        """See `FileSystemManager.handle_append`."""
        return await self._append(path, content)
