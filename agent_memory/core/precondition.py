"""`Precondition`: the state that a file must have for a change."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from agent_memory.backend import ANY, ETag, ReadWhen
from agent_memory.errors import InvalidContentError

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Precondition(NamedTuple):
    """The state that a file must have, by the SHA-256 of its content or by an etag; by default any state."""

    sha256: str | None = None
    etag: ReadWhen = ANY

    def checked(self) -> Precondition:
        """Return it with the digest in lower case.

        Raises:
            InvalidContentError: the digest is no SHA-256, the etag is no `ETag`, or both are given.
        """
        sha256, etag = self
        if etag is not ANY and not isinstance(etag, ETag):
            raise InvalidContentError(
                f"expected_version must be an ETag of this file, not {type(etag).__name__}; "
                "a storage without versions compares expected_sha256"
            )
        if sha256 is None:
            return self
        if etag is not ANY:
            raise InvalidContentError("expected_sha256 and expected_version exclude each other")
        if not (isinstance(sha256, str) and _SHA256.match(sha256.lower())):
            raise InvalidContentError("expected_sha256 must be the 64 hexadecimal digits of a SHA-256")
        return Precondition(sha256.lower())


ANY_STATE: Final = Precondition()
