"""Checks that a reply answers its request, and parsers of its numbers and dates, which may be any text.

Botocore accepts any XML, and omits elements that it does not find. Without the checks a login page or an empty body
would be an empty listing. Of an answer that is not an object, no more is read than a store of objects sends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agent_memory.object_store.engine import NotSatisfiable, PermanentError, TooLarge

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)
_ANOTHER = "the server sent another range than the requested one"
_CHUNK = 1 << 18

LISTING = ("Name", "IsTruncated")
UPLOADS = ("Bucket", "IsTruncated")
"""The elements in the listings of all servers, also in empty ones; not ``Prefix``, which some garble or omit."""
ERROR_BYTES: Final = 1 << 20
"""The most bytes that are read of the body of an error."""
ANSWER_BYTES: Final = 16 << 20
"""The most bytes that are read of another body: a page of 1,000 names of 1,024 bytes, each byte as an XML entity."""


def require_listing(reply: Mapping[str, Any], elements: Sequence[str]) -> None:
    """Raise `PermanentError` unless a reply has the elements of a listing."""
    if missing := [name for name in elements if name not in reply]:
        raise PermanentError(f"the answer is not an S3 listing: it has no {missing[0]}")


@contextmanager
def entries() -> Iterator[None]:
    """Raise `PermanentError` if an entry of a listing lacks an element."""
    try:
        yield
    except KeyError as missing:
        raise PermanentError(f"the answer is not an S3 listing: an entry has no {missing.args[0]}") from missing


def next_of(reply: Mapping[str, Any], marker: str) -> str | None:
    """The marker of the next page of a listing; None at the end."""
    if not reply["IsTruncated"]:
        return None
    if not (found := reply.get(marker)):
        raise PermanentError(f"the answer is not an S3 listing: it is truncated, and has no {marker}")
    return str(found)


async def content_of(reply: Mapping[str, Any], span: str | None, most: int | None) -> tuple[bytes, int]:
    """The bytes that a GET requested, and the size of the whole object; a server may send it instead of a range.

    Raises:
        PermanentError: the server sent another range, or instead of a range a whole object larger than ``most``.
        NotSatisfiable: the server sent the whole object, and the range begins at or after its end.
        TooLarge: the requested content is larger than ``most`` bytes.
    """
    if reply["ResponseMetadata"].get("HTTPStatusCode") == 206:
        return await _part(reply, span, most)
    try:
        data = await _read(reply, most)
    except TooLarge as large:
        if span is None:
            raise
        raise PermanentError(f"the server ignores Range, and the object has over {large.most:,} bytes") from None
    if span is None:
        return data, len(data)
    first, end = _bounds(span, len(data))
    if first >= end:
        raise NotSatisfiable
    return data[first:end], len(data)


def length_of(reply: Mapping[str, Any]) -> int:
    """The size of an object in bytes, from the reply to a HEAD."""
    if "ContentLength" not in reply:
        raise PermanentError("the answer has no Content-Length")
    return int(reply["ContentLength"])


async def _part(reply: Mapping[str, Any], span: str | None, most: int | None) -> tuple[bytes, int]:
    if reply.get("ContentLength") == 0 and reply.get("ContentRange", "").endswith("/0"):
        raise NotSatisfiable  # an empty object; ministack sends ``bytes 0--1/0``
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
    """Read a body; stops with `TooLarge` at the first chunk beyond ``most`` bytes."""
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
    """The begin and end of a ``Range`` in an object of this size."""
    first, _, last = span.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


def posix_seconds(date: object) -> float | None:
    """The POSIX time of an HTTP date; None if the date is missing or cannot be parsed."""
    try:
        return parsedate_to_datetime(str(date)).timestamp()
    except (ArithmeticError, OSError, TypeError, ValueError):
        return None


def retry_after(headers: Mapping[str, object]) -> float:
    """The seconds in ``Retry-After``, finite and at least zero; a date counts relative to the server's clock."""
    asked = str(headers.get("retry-after", ""))
    try:
        seconds = float(asked)
    except ValueError:
        then, now = posix_seconds(asked), posix_seconds(headers.get("date"))
        seconds = 0.0 if then is None or now is None else then - now
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


class OversizedError(OSError):
    """An answer with a success status has more than `ANSWER_BYTES`."""


class BoundedAnswer:
    """An answer of aiohttp whose whole body is bounded; the content of an object is read from its stream instead."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    async def read(self) -> bytes:
        """The body; b"" instead of a larger one of an error, because the status of an error tells what happened.

        Raises:
            OversizedError: the answer is no error, and its body is too large.
        """
        is_error = self._answer.status >= 300
        most = ERROR_BYTES if is_error else ANSWER_BYTES
        body = bytearray()
        try:
            async for chunk in self._answer.content.iter_any():
                body += chunk
                if len(body) > most:
                    raise OversizedError
        except BaseException as error:
            self._answer.close()  # the rest of the body would be taken for the next answer
            if not (is_error and isinstance(error, OversizedError)):
                raise
            body.clear()
        return bytes(body)
