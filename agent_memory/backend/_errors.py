"""Errors that backends raise, with their messages, and the translation of a storage's exceptions."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_memory.backend._types import Entry
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    FileOperationError,
    PartialOperationError,
    TakenBy,
)
from agent_memory.key import Key

_WAY_OUT = (
    "; to free space, delete files that are not needed; a store that keeps versions keeps a copy of a deleted file: "
    "'agent-memory forget' erases the copies too, and after 'agent-memory versions off' none is kept"
)
_TAKEN: dict[TakenBy, str] = {
    "file": "the file exists",
    "directory": "the name is a directory",
    "file_above": "the name lies below a file",
    "other_case": "on a filesystem that ignores case, a name that differs only by case is taken",
}


@contextmanager
def translating(key: Key, error: type[FileOperationError], *foreign: type[Exception]) -> Iterator[None]:
    """Translate a storage's exceptions to ``error``; `AgentMemoryError` passes unchanged; see `storage_failure`."""
    try:
        yield
    except AgentMemoryError:
        raise
    except foreign as cause:
        raise storage_failure(key, error, cause) from cause


def storage_failure(key: Key, error: type[FileOperationError], cause: Exception) -> FileOperationError:
    """Return the error for a storage's exception; the caller raises it from that exception.

    Its message has only the ``strerror`` of an `OSError`, or the type of the cause: other text may contain host paths.
    For a full disk or quota it also says how to free space.
    """
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return error(f"the storage failed: {detail}{_WAY_OUT if is_full(cause) else ''}", path=key.path)


def is_full(cause: BaseException | None) -> bool:
    """Whether an error says that a disk, or a quota, is full."""
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def raise_failures(entries: Sequence[Entry], errors: Sequence[AgentMemoryError | None]) -> None:
    """Raise if any file of an operation on many failed; if all failed, raise the first error itself.

    It is raised also for files of the package's own: their names tell a caller nothing.

    Raises:
        PartialOperationError: some files are done and some are left.
    """
    first = next(filter(None, errors), None)
    if first is None:
        return
    done = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is None)
    left = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is not None)
    if not done or entries[0].key.is_internal:
        raise first
    raise PartialOperationError(f"{len(left)} of {len(entries)} files are left: {first}", done, left) from first


def named(key: Key) -> str:
    """Return a key's name for messages: its path, or "the whole tree" for the top of a tree."""
    return repr(key.path) if key.path else "the whole tree"


def not_found(key: Key) -> AgentMemoryFileNotFoundError:
    """Return the error for a name without a file."""
    return AgentMemoryFileNotFoundError("no such file", path=key.path)


def taken_name(key: Key, taken_by: TakenBy) -> FileAlreadyExistsError:
    """Return the error for a name that is taken."""
    return FileAlreadyExistsError(_TAKEN[taken_by], taken_by, path=key.path)
