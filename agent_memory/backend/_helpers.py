"""What backends have in common: versions by content, checks of preconditions and sizes, and errors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from agent_memory.backend._types import ABSENT, PRESENT, Entry, Version, When
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    FileTooLargeError,
    PartialOperationError,
)
from agent_memory.key import Key

_CONTENT = "sha256:"


class ContentVersion(Version):
    """A version that is the content's SHA-256; made by `content_version`."""


def content_version(data: bytes) -> ContentVersion:
    """The version of stores that have none of their own: the content's SHA-256."""
    return digest_version(hashlib.sha256(data).hexdigest())


def digest_version(sha256: str) -> ContentVersion:
    """The `content_version` of the content with this digest, as hexadecimal digits."""
    return ContentVersion(_CONTENT + sha256)


def content_sha256(data: bytes, version: Version) -> str:
    """The digest of what was written, as hexadecimal digits; a `content_version` has it already."""
    if isinstance(version, ContentVersion):
        return version.token.removeprefix(_CONTENT)
    return hashlib.sha256(data).hexdigest()


@contextmanager
def translating(key: Key, error: type[FileOperationError], *foreign: type[Exception]) -> Iterator[None]:
    """Raise a storage's own exceptions as ours; ours pass; see `storage_failure`."""
    try:
        yield
    except AgentMemoryError:
        raise
    except foreign as cause:
        raise storage_failure(key, error, cause) from cause


def storage_failure(key: Key, error: type[FileOperationError], cause: Exception) -> FileOperationError:
    """The error for a storage's own exception, to be raised from it.

    Of a cause only an `OSError`'s ``strerror``, else its type, is told: a message may carry host paths.
    """
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return error(f"the storage failed: {detail}", path=key.path)


def raise_failures(entries: Sequence[Entry], errors: Sequence[AgentMemoryError | None]) -> None:
    """Raise for the files of an operation on many that failed, if any: the error itself if no file was done.

    Raises:
        PartialOperationError: some files are done and some are left.
    """
    first = next(filter(None, errors), None)
    if first is None:
        return
    done = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is None)
    left = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is not None)
    if not done:
        raise first
    raise PartialOperationError(f"{len(left)} of {len(entries)} files are left: {first}", done, left) from first


def refuse_larger(key: Key, size: int, limit: int) -> None:
    """Raise `FileTooLargeError` if ``size`` is over ``limit``, both in bytes."""
    if size > limit:
        raise FileTooLargeError(_too_large(size, limit), path=key.path)


def refuse_larger_read(key: Key, size: int, limit: int) -> None:
    """The same for a read; the error says what reads a large file."""
    if size > limit:
        raise FileTooLargeError(
            f"{_too_large(size, limit)}; scan(), view and export read a file in parts", path=key.path
        )


def _too_large(size: int, limit: int) -> str:
    return f"{size:,} bytes are more than the {limit:,} one call may carry"


def joined(old: bytes, separator: bytes, data: bytes) -> bytes:
    """A file's whole content after an append; ``separator`` goes between, unless it is there or nothing precedes it."""
    return b"".join((old, separator if old and not old.endswith(separator) else b"", data))


def require(key: Key, state: Version | Callable[[], Version] | None, *conditions: When | Version) -> None:
    """Raise unless a file's state meets every precondition; the caller holds whatever keeps that state.

    ``state`` is the file's version, or a function called only to compare it, or None if there is no such file.

    Raises:
        FileAlreadyExistsError: ``ABSENT``, and there is a file.
        AgentMemoryFileNotFoundError: ``PRESENT``, and there is none.
        ConflictError: a version, and the file is in another state or is gone.
    """
    for when in conditions:
        if when is ABSENT and state:
            raise FileAlreadyExistsError("the file exists", path=key.path)
        if when is PRESENT and not state:
            raise not_found(key)
        if isinstance(when, Version):
            if state is None:
                raise ConflictError("the file is gone", path=key.path)
            if when != (state if isinstance(state, Version) else state()):
                raise ConflictError("the file changed since it was read", path=key.path)


def named(key: Key) -> str:
    """What messages call a key: its path, or the tree where it is the root of one."""
    return repr(key.path) if key.path else "the whole tree"


def not_found(key: Key) -> AgentMemoryFileNotFoundError:
    """The error for a name that is no file."""
    return AgentMemoryFileNotFoundError("no such file", path=key.path)


def taken_name(key: Key) -> FileAlreadyExistsError:
    """The error for a name that is a directory, or that lies below a file."""
    return FileAlreadyExistsError("the name is a directory, or lies below a file", path=key.path)
