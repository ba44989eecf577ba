"""What a reply must hold to be the answer to a request: botocore takes any XML, and leaves out what it does not find.

So a login page, or an empty body, would be a listing of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agent_memory.object_store import NotSatisfiable, PermanentError, TooLarge

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)
_ANOTHER = "the server answered with another range than the one asked for"
_CHUNK = 1 << 18

LISTING = ("Name", "IsTruncated")
UPLOADS = ("Bucket", "IsTruncated")
"""What every server sends in a listing, of nothing too; ``Prefix`` is not among it, for some garble or omit it."""


def require_listing(reply: Mapping[str, Any], elements: Sequence[str]) -> None:
    """Raise `PermanentError` unless a reply has the elements of a listing."""
    if missing := [name for name in elements if name not in reply]:
        raise PermanentError(f"the answer is no S3 listing: it has no {missing[0]}")


@contextmanager
def entries() -> Iterator[None]:
    """Read the entries of a listing: one without an element is `PermanentError`."""
    try:
        yield
    except KeyError as missing:
        raise PermanentError(f"the answer is no S3 listing: an entry has no {missing.args[0]}") from missing


def next_of(reply: Mapping[str, Any], marker: str) -> str | None:
    """Where the next page of a listing begins, None at the end."""
    if not reply["IsTruncated"]:
        return None
    if not (found := reply.get(marker)):
        raise PermanentError(f"the answer is no S3 listing: there is more of it, and no {marker}")
    return str(found)


async def content_of(reply: Mapping[str, Any], span: str | None, most: int | None) -> tuple[bytes, int]:
    """The bytes that a GET asked for, and the size of the whole object, which a server may send instead of a range.

    Raises:
        PermanentError: the answer is another range, or the whole of an object that is over ``most``.
        NotSatisfiable: the answer is the whole, and the range begins at or after its end.
        TooLarge: the answer is over ``most``.
    """
    if reply["ResponseMetadata"].get("HTTPStatusCode") == 206:
        return await _part(reply, span, most)
    try:
        data = await _read(reply, most)
    except TooLarge as large:
        if span is None:
            raise
        raise PermanentError(f"the server does not heed Range, and the object has over {large.most:,} bytes") from None
    if span is None:
        return data, len(data)
    first, end = _bounds(span, len(data))
    if first >= end:
        raise NotSatisfiable
    return data[first:end], len(data)


def length_of(reply: Mapping[str, Any]) -> int:
    """The size of an object, from the answer to a HEAD."""
    if "ContentLength" not in reply:
        raise PermanentError("an answer without a Content-Length")
    return int(reply["ContentLength"])


async def _part(reply: Mapping[str, Any], span: str | None, most: int | None) -> tuple[bytes, int]:
    if reply.get("ContentLength") == 0 and reply.get("ContentRange", "").endswith("/0"):
        raise NotSatisfiable  # of an empty object; ministack says ``bytes 0--1/0``
    told = _CONTENT_RANGE.fullmatch(reply.get("ContentRange", ""))
    if told is None or span is None:
        raise PermanentError(_ANOTHER)
    first, last, size = map(int, told.groups())
    length = last + 1 - first
    if not first <= last < size or (first, last + 1) != _bounds(span, size):
        raise PermanentError(_ANOTHER)
    if most is not None and length > most:
        raise TooLarge(length, most)
    try:
        data = await _read(reply, length)
    except TooLarge:
        raise PermanentError(_ANOTHER) from None
    if len(data) != length:
        raise PermanentError(_ANOTHER)
    return data, size


async def _read(reply: Mapping[str, Any], most: int | None) -> bytes:
    """A body, of which no more is read than ``most`` and what came along."""
    length = reply.get("ContentLength")
    if most is not None and length is not None and length > most:
        raise TooLarge(length, most)
    if most is None or length is not None:
        data: bytes = await reply["Body"].read()
        return data
    found = bytearray()
    while chunk := await reply["Body"].read(_CHUNK):
        found += chunk
        if len(found) > most:
            raise TooLarge(len(found), most)
    return bytes(found)


def _bounds(span: str, size: int) -> tuple[int, int]:
    """Where a ``Range`` begins and ends in an object of a size."""
    first, _, last = span.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size
