"""Etags made from content, and the content after an append."""

from __future__ import annotations

import hashlib

from agent_memory.backend._types import ETag

_CONTENT = "sha256:"


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
