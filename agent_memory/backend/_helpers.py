"""Functions that backends share: etags by content, checks of preconditions and sizes, and errors."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from agent_memory.backend._types import ABSENT, PRESENT, Entry, ETag, When
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    FileTooLargeError,
    PartialOperationError,
    TakenBy,
)
from agent_memory.key import Key

_WAY_OUT = (
    "; to free space, delete files that are not needed; if the store keeps versions, first turn them off "
    "('agent-memory versions off' needs no space), because a delete keeps a copy"
)
_CONTENT = "sha256:"
_TAKEN: dict[TakenBy, str] = {
    "file": "the file exists",
    "directory": "the name is a directory",
    "file_above": "the name lies below a file",
    "other_case": "on a filesystem that ignores case, a name that differs only by case is taken",
}


class ContentETag(ETag):
    """An etag that is the content's SHA-256; made by `content_etag`."""


def content_etag(data: bytes) -> ContentETag:
    """Return the etag for storage without etags of its own: the content's SHA-256."""
    return digest_etag(hashlib.sha256(data).hexdigest())


def digest_etag(sha256: str) -> ContentETag:
    """Return the `content_etag` for a digest, given as hexadecimal digits."""
    return ContentETag(_CONTENT + sha256)


def content_sha256(data: bytes, etag: ETag) -> str:
    """Return the digest of written bytes as hexadecimal digits; taken from ``etag`` if it is a `ContentETag`."""
    if isinstance(etag, ContentETag):
        return etag.token.removeprefix(_CONTENT)
    return hashlib.sha256(data).hexdigest()


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


def refuse_larger(key: Key, size: int, limit: int) -> None:
    """Raise `FileTooLargeError` if ``size`` is over ``limit``, both in bytes."""
    if size > limit:
        raise FileTooLargeError(_too_large(size, limit), path=key.path)


def refuse_larger_read(key: Key, size: int, limit: int) -> None:
    """As `refuse_larger`, for a read; the message names the calls that can read a large file."""
    if size > limit:
        raise FileTooLargeError(
            f"{_too_large(size, limit)}; scan(), view and export can read large files", path=key.path
        )


def refuse_larger_append(key: Key, size: int, limit: int) -> None:
    """As `refuse_larger`, for the size of a file after an append, where a file is only written as a whole."""
    if size > limit:
        raise FileTooLargeError(
            f"after this append the file has more than {limit:,} bytes, and this storage cannot append to it in parts",
            path=key.path,
        )


def _too_large(size: int, limit: int) -> str:
    return f"{size:,} bytes are more than the limit of {limit:,} bytes for one call"


def joined(old: bytes, separator: bytes, data: bytes) -> bytes:
    """Return a file's content after an append: with ``separator``, unless ``old`` is empty or ends with it."""
    return b"".join((old, separator if old and not old.endswith(separator) else b"", data))


def require(key: Key, state: ETag | Callable[[], ETag] | None, *conditions: When | ETag) -> None:
    """Raise unless a file's state meets every precondition; the caller holds the lock that protects this state.

    ``state`` is the file's etag, or a function that returns it (called only if needed), or None if there is no file.

    Raises:
        FileAlreadyExistsError: ``ABSENT``, and there is a file.
        AgentMemoryFileNotFoundError: ``PRESENT``, and there is none.
        ConflictError: an etag, and the file is in another state or is gone.
    """
    for when in conditions:
        if when is ABSENT and state:
            raise taken_name(key, "file")
        if when is PRESENT and not state:
            raise not_found(key)
        if isinstance(when, ETag):
            if state is None:
                raise ConflictError("the file is gone", path=key.path)
            if when != (state if isinstance(state, ETag) else state()):
                raise ConflictError("the file changed since it was read", path=key.path)


def named(key: Key) -> str:
    """Return a key's name for messages: its path, or "the whole tree" for the top of a tree."""
    return repr(key.path) if key.path else "the whole tree"


def not_found(key: Key) -> AgentMemoryFileNotFoundError:
    """Return the error for a name without a file."""
    return AgentMemoryFileNotFoundError("no such file", path=key.path)


def taken_name(key: Key, taken_by: TakenBy) -> FileAlreadyExistsError:
    """Return the error for a name that is taken."""
    return FileAlreadyExistsError(_TAKEN[taken_by], taken_by, path=key.path)
