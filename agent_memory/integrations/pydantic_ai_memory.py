"""A memory as the store of Pydantic AI's `Memory`. Needs ``pip install 'agent-memory-files[pydantic-ai-harness]'``."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    OutcomeUnknownError,
    UnsupportedOperationError,
)
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelText,
    async_view,
    checked_id,
    mapped_errors,
    read_each,
    refusal,
    unusable,
)

try:
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.workspaces import WorkspaceError
    from pydantic_ai_harness.memory import (
        InMemoryStore,
        MemoryConflictError,
        MemoryFile,
        MemoryMutation,
        MemoryOperation,
        MemoryOperationConflictError,
        MemorySearchResult,
        MemoryStore,
        SearchableMemoryStore,
    )

    from agent_memory.integrations.pydantic_ai import DIRECTORY_FILE
except ImportError as error:
    raise unusable("pydantic-ai-harness", "pydantic-ai-harness", error) from error

__all__ = ["AgentMemoryMemoryStore"]

_SEGMENT: Final = re.compile(r"(?!\.\Z)(?!.*\.\.)[\w.-]{1,200}", re.ASCII)
"""A segment of a path, by the rules of the harness."""
_READ_AT_ONCE: Final = 64


class _RefusedPathError(ModelRetry, ValueError):
    """The storage refuses a path that the harness allows; a tool asks the model for another name."""


def _refused(error: AgentMemoryError) -> Exception:
    """The error of a path, without the path: a model must not see the namespace."""
    return _RefusedPathError(refusal(error))


_ERRORS: Final[Mapping[type[AgentMemoryError], Callable[[AgentMemoryError], Exception]]] = {
    InvalidPathError: _refused,
    FileAlreadyExistsError: _refused,
    UnsupportedOperationError: lambda error: WorkspaceError(str(error)),
}


class AgentMemoryMemoryStore(MemoryStore, SearchableMemoryStore):
    """The files of `Memory`: the path of each file is its path in the memory, and its version the SHA-256 of its text.

    A write or a deletion is one edit of one file. With an operation it is made once, whichever process repeats it, for
    one day. Its idempotency key is the SHA-256 of the operation's id, which may have
    any length. All stores of one agent share the ids. A file has no ``operation_id`` and no metadata.

    Args:
        memory: the tree that holds the files.

    A path that the memory refuses and the harness allows (``con.md``, or a name below a file) is a `ValueError` that is
    also a `ModelRetry`. A change that the storage does not support is a `WorkspaceError`: by obstore on S3, the
    deletion of a file.

    Raises:
        TypeError: ``memory`` is no memory.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = async_view(memory)

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        """See `MemoryStore.read`."""
        _check(path)
        if max_chars <= 0:
            raise ValueError("max_chars must be positive")
        try:
            with mapped_errors(_ERRORS):
                text = await self._memory.read(path)
        except AgentMemoryFileNotFoundError:
            return None
        shown = ModelText(text).text
        return MemoryFile(shown[:max_chars], _sha256(text), operation_id=None, truncated=len(shown) > max_chars)

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        """See `MemoryStore.get_operation`."""
        try:
            found = await self._memory.once(_sha256(operation.id), of=_sha256(operation.fingerprint)).result()
        except ConflictError as error:
            raise _reused(operation) from error
        except OutcomeUnknownError:  # the operation is under way, or ended without a known result
            return None
        return MemoryMutation(found.sha256 or None, replayed=True, existed=bool(found.existed)) if found else None

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """See `MemoryStore.write`."""
        return await self._edit(path, checked_id("content", content), expected_version, operation)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """See `MemoryStore.delete`."""
        return await self._edit(path, None, expected_version, operation)

    async def _edit(
        self, path: str, content: str | None, expected: str | None, operation: MemoryOperation | None
    ) -> MemoryMutation:
        """Replace a file of the expected version by a content, or delete it if the content is None."""
        _check(path)
        absent = secrets.token_hex()  # no file has this text
        existed: list[bool] = []
        verb = "deleted" if content is None else "written"
        refused = MemoryConflictError(f"memory path {path!r} changed before it could be {verb}")

        def change(text: str) -> str | None:
            existed.append(text != absent)
            if (_sha256(text) if existed[-1] else None) != expected:
                raise refused
            if content is None or not existed[-1]:
                return content
            file = ModelText(text)
            return file.stored(file.given(content))

        memory = self._memory
        if operation:
            memory = memory.once(_sha256(operation.id), of=_sha256(operation.fingerprint))
        try:
            with mapped_errors(_ERRORS):
                result = await memory.edit(path, change, missing=absent)
        except ConflictError as error:
            raise refused if existed or not operation else _reused(operation) from error
        version = result.sha256 or None
        if operation and not existed:
            first = await self.get_operation(operation)
            return first or MemoryMutation(version, replayed=True, existed=True)  # the operation was just forgotten
        return MemoryMutation(version, replayed=False, existed=existed[-1])

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        """See `MemoryStore.list_paths`."""
        if limit <= 0:
            raise ValueError("limit must be positive")
        return (await self._paths(prefix, recursive=True))[:limit]

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> MemorySearchResult:
        """See `SearchableMemoryStore.search`; the result is that of `InMemoryStore` with the same files."""
        is_empty = not query.split() or min(limit, max_files, max_chars, max_file_chars) <= 0
        paths = [] if is_empty else await self._paths(prefix, recursive=False)
        files: dict[str, str] = {}
        for start in range(0, min(len(paths), max_files), _READ_AT_ONCE):
            some = paths[start : min(start + _READ_AT_ONCE, max_files)]
            read = await read_each(self._memory, some)
            files |= {
                path: ModelText(data.decode(errors="replace")).text[: max_file_chars + 1] for path, data in read.items()
            }
        result = await InMemoryStore(files).search(
            prefix, query, limit=limit, max_files=max_files, max_chars=max_chars, max_file_chars=max_file_chars
        )
        return replace(result, truncated=result.truncated or len(paths) > max_files > 0)

    async def _paths(self, prefix: str, *, recursive: bool) -> list[str]:
        """The paths that begin with a text, in order; names of other programs that the harness refuses are left out."""
        if checked_id("prefix", prefix):
            _check(prefix.removesuffix("/"))
        directory, _, name = prefix.rpartition("/")
        try:
            found = await self._memory.list(directory, recursive=recursive, name_prefix=name)
        except InvalidPathError:  # no file has such a path
            return []
        return [entry.path for entry in found if not entry.is_directory and _is_path(entry.path)]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _reused(operation: MemoryOperation) -> MemoryOperationConflictError:
    return MemoryOperationConflictError(f"operation id {operation.id!r} was reused with different arguments")


def _is_path(path: str) -> bool:
    segments = path.split("/")
    return all(map(_SEGMENT.fullmatch, segments)) and DIRECTORY_FILE not in segments


def _check(path: str) -> None:
    if not _is_path(checked_id("path", path)):
        raise ValueError(f"invalid memory path: {path!r}")
