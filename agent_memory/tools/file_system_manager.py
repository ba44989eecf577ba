"""`FileSystemManager`: creates and appends to the Markdown files of a repository, and nothing else (seed 002)."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final, Self

from agent_memory.backend import Uncopied
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidPathError,
    ReadError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.tools._protected import for_tools

_MARKDOWN: Final = (".md",)
_GIT: Final = frozenset({".git", "git~1"})  # the second is its short name on Windows
_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")  # HFS+ does not see them: to it `.g\u200cit` is git's
_LONGEST = 1000  # no tree has a name of more characters, and 50 MB need not be looked through
_BLOCK = "\n\n"


class _Manager(Uncopied):
    def __init__(self, memory: AsyncAgentMemory, suffixes: Collection[str]) -> None:
        if not suffixes or isinstance(suffixes, str) or not all(map(_is_ending, suffixes)):
            raise ValueError("suffixes is a collection of file name endings, each with its dot")
        for suffix in suffixes:
            Key.tree().join(f"x{suffix}")  # which refuses what no name ends in
        self._memory = memory
        self._suffixes = tuple(suffix.lower() for suffix in suffixes)

    async def create(self, path: str, content: str) -> WriteResult:
        await self._permit(path)
        try:
            return await self._memory.create(path, content)
        except ReadError as error:  # an object store looks for directories first
            raise WriteError(str(error)) from error

    async def append(self, path: str, content: str) -> WriteResult:
        await self._permit(path)
        block = _BLOCK + content if isinstance(content, str) else content  # what is no text is refused below
        try:
            return await self._memory.append(path, block, must_exist=True)
        except FileAlreadyExistsError as error:  # a directory, or a name below a file: in either case no file
            raise AgentMemoryFileNotFoundError("no such file", path=path) from error

    async def _permit(self, path: str) -> None:
        if not isinstance(path, str) or len(path) > _LONGEST:
            await self._memory.exists(path)  # refuses it
        in_git = any(segment.translate(_JOINERS).lower() in _GIT for segment in path.split("/"))
        if in_git or not path.lower().endswith(self._suffixes):
            await self._memory.exists(path)  # a name that no tree has is refused as what it is, and reported
            if in_git:
                raise InvalidPathError(f"{path!a} is refused: git's own directory is not written to", "git")
            allowed = ", ".join(self._suffixes)
            suggestion = path + self._suffixes[0]
            raise InvalidPathError(
                f"{path!a} is refused: names end in {allowed}; try {suggestion!a}", "suffix", suggestion
            )


def _is_ending(suffix: object) -> bool:
    return isinstance(suffix, str) and suffix.startswith(".")


class FileSystemManager(Uncopied):
    """Creates and appends to files below one root; nothing is read, overwritten or deleted.

    Args:
        memory: the tree, any backend's.
        suffixes: what names may end in, in any case.

    Raises:
        ValueError: no suffixes, or one that no name can end in.

    The seed's error names are `agent_memory.errors`'; its base class is `AgentMemoryError`. Beside them
    `InvalidPathError` with the rule "suffix" or "git" refuses other endings and anything inside ``.git``, and
    `OperationDenied` the names of a conversation (``history.jsonl``, ``cron/jobs.json``, ``jobs.json``).
    """

    def __init__(self, memory: AgentMemory, *, suffixes: Collection[str] = _MARKDOWN) -> None:
        self._manager = _Manager(sync_facade(for_tools(AgentMemory, memory, history=False)), suffixes)

    @classmethod
    def for_repository(cls, root: str | os.PathLike[str], *, suffixes: Collection[str] = _MARKDOWN) -> Self:
        """The manager of a repository on disk."""
        return cls(AgentMemory.open(root), suffixes=suffixes)

    def handle_create(self, path: str, content: str) -> WriteResult:
        """Create a file, and the directories above it, in one atomic step.

        Raises:
            PathTraversalError: the path leads outside the root.
            FileAlreadyExistsError: the file exists; it is unchanged.
            WriteError: the storage failed.
        """
        return step(self._manager.create(path, content))

    def handle_append(self, path: str, content: str) -> WriteResult:
        """Append two newlines and the content to a file that exists, decided in the append itself.

        Raises:
            PathTraversalError: the path leads outside the root.
            AgentMemoryFileNotFoundError: no such file; a `FileNotFoundError`.
            AppendError: the storage failed.
        """
        return step(self._manager.append(path, content))


class AsyncFileSystemManager(Uncopied):
    """`FileSystemManager` for async callers."""

    def __init__(self, memory: AsyncAgentMemory, *, suffixes: Collection[str] = _MARKDOWN) -> None:
        self._manager = _Manager(for_tools(AsyncAgentMemory, memory, history=False), suffixes)

    @classmethod
    def for_repository(cls, root: str | os.PathLike[str], *, suffixes: Collection[str] = _MARKDOWN) -> Self:
        """The manager of a repository on disk."""
        return cls(AsyncAgentMemory.open(root), suffixes=suffixes)

    async def handle_create(self, path: str, content: str) -> WriteResult:
        return await self._manager.create(path, content)

    async def handle_append(self, path: str, content: str) -> WriteResult:
        return await self._manager.append(path, content)
