"""Bounded bodies: of an answer that is not an object, no more is read than a store of objects sends."""

from __future__ import annotations

from typing import Any, Final

ERROR_BYTES: Final = 1 << 20
"""The most bytes that are read of the body of an error."""
ANSWER_BYTES: Final = 16 << 20
"""The most bytes that are read of another body: a page of 1,000 names of 1,024 bytes, each byte as an XML entity."""


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
