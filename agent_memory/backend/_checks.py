"""Checks of preconditions, sizes and patched modules; etags made from content, and the content after an append."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Final

from agent_memory.backend._errors import not_found, taken_name
from agent_memory.backend._types import ABSENT, PRESENT, ETag, When
from agent_memory.errors import ConflictError, FileTooLargeError, UnsupportedOperationError
from agent_memory.key import Key

_CONTENT = "sha256:"
_NEEDED: Final = ("_thread", "thread", "threading", "select", "socket", "queue")
_PATCHERS: Final = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}


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


def refuse_over_most(key: Key, size: int, most: int | None) -> None:
    """Raise `FileTooLargeError` if an append would make a file larger than its caller allows, both in bytes."""
    if most is not None and size > most:
        raise FileTooLargeError(f"after this append the file would have {size:,} bytes", path=key.path)


def _too_large(size: int, limit: int) -> str:
    return f"{size:,} bytes are more than the limit of {limit:,} bytes for one call"


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


def joined(old: bytes, separator: bytes, data: bytes) -> bytes:
    """Return a file's content after an append: with ``separator``, unless ``old`` is empty or ends with it."""
    return b"".join((old, separator if old and not old.endswith(separator) else b"", data))


def refuse_patched_modules() -> None:
    """Raise `UnsupportedOperationError` if gevent or eventlet replaced modules of Python that the I/O loop needs.

    A storage with an I/O loop in a thread does not work if gevent replaced threads.
    """
    for name, function in _PATCHERS.items():
        if (patcher := sys.modules.get(name)) is None:
            continue
        if patched := [module for module in _NEEDED if getattr(patcher, function)(module)]:
            raise UnsupportedOperationError(
                f"{name.partition('.')[0]} replaced modules of Python ({', '.join(patched)}), and requests to this "
                "storage would wait for ever: use it in a process without these patches (for example "
                "'agent-memory mcp'), or keep the memory on local disk, whose sync classes work with them"
            )
