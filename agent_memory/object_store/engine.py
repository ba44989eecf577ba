"""`ObjectStore`: what the logic asks of an engine, one request a call, and the answers that are no results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

NO_ETAG: Final = '"00000000000000000000000000000000"'
"""What no object has: a condition that cannot hold."""


class Object(NamedTuple):
    """One object as a request saw it.

    ``size`` is of the whole, in bytes; ``modified`` in POSIX seconds by the store's clock; ``metadata`` the user's,
    names in lower case; ``data`` what a GET carried, empty for a HEAD.
    """

    etag: str
    size: int
    modified: float
    metadata: Mapping[str, str]
    data: bytes = b""


class Listed(NamedTuple):
    """One object in a listing."""

    name: str
    size: int
    modified: float
    etag: str


class Listing(NamedTuple):
    """One page; ``prefixes`` end in ``/``; ``has_directories``: the server may name some that hold no object."""

    objects: Sequence[Listed]
    prefixes: Sequence[str]
    next: str | None
    has_directories: bool = False


class ObjectStore(Protocol):
    """One bucket: every coroutine method is one request, tried once, which `Attempts` alone sends.

    Any other exception is a mistake of the engine, or of what it calls: the operation ends with it, and nothing is sent
    again.

    Raises:
        NotFound: there is no such object.
        PreconditionFailed: the precondition does not hold (412).
        WriteConflict: the store could not decide the precondition while another write was under way (409).
        NotSatisfiable: the range begins at or after the end of the object (416).
        NoResponse: no answer, or one that leaves open whether the request took effect; may be tried again.
        PermanentError: an answer that would be the same if asked again.
        UnsupportedOperationError: the store takes no such condition (501).
    """

    resends: bool
    """Whether the client may send a request twice by itself, so that a write can be refused by its own result."""
    conditional_delete: bool
    """Whether `delete` takes a condition."""
    bare_etags: bool
    """Whether conditions are sent with ETags without their quotes; a trial sets it where the server takes no others."""
    most_listed: int
    """How many names `list` returns at most."""

    @property
    def identity(self) -> str:
        """The bucket's name: writers of one process queue by it, whichever backend they write through."""
        ...

    async def is_trusted(self) -> bool:
        """Whether the store is known to keep preconditions; else it is tried, once, before a write that needs them."""
        ...

    def now(self) -> float:
        """The store's clock, POSIX seconds, as far as its answers tell."""
        ...

    def ahead_by(self) -> float:
        """How many seconds `now` may be ahead of the store's clock, at most."""
        ...

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        """Read an object, or the ``Range`` ``span`` of it; raises `TooLarge` rather than read over ``most`` bytes."""
        ...

    async def head(self, name: str) -> Object:
        """What `get` says, without the data."""
        ...

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        """Write a whole object, and return its ETag; ``absent``: only if there is none (``If-None-Match: *``)."""
        ...

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete an object; without a condition, a missing one is no error."""
        ...

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        """One page, at most ``limit`` names; ``delimited``: only this level, and the prefixes below it."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class RetainedVersion(NamedTuple):
    """One thing a store keeps under a name: a version (of an object or of its deletion), or an incomplete upload."""

    name: str
    id: str


class RetainedPage(NamedTuple):
    """One page; ``next`` is where the next one begins, None at the end."""

    found: Sequence[RetainedVersion]
    next: tuple[str, str] | None


@runtime_checkable
class SupportsVersions(Protocol):
    """An optional part of an `ObjectStore`: what it keeps beside the objects it shows. Errors as there."""

    async def list_versions(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        """All versions and deletion marks of the names that begin so, at most 1,000; of a name the latest first."""
        ...

    async def delete_version(self, version: RetainedVersion) -> None:
        """Delete one version for good."""
        ...

    async def list_uploads(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        """Uploads in parts that nobody completed, of the names that begin so, at most 1,000."""
        ...

    async def abort_upload(self, upload: RetainedVersion) -> None:
        """Drop the parts of an upload."""
        ...


@runtime_checkable
class SupportsMultipart(ObjectStore, Protocol):
    """An optional part of an `ObjectStore`: uploads in parts, of which the server copies some. Errors as there.

    An upload that does not exist any more is `NotFound`.
    """

    least_part: int
    """How many bytes every part but the last has at least."""

    async def begin_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload, and return its id."""
        ...

    async def copy_part(
        self, name: str, upload: str, number: int, *, source: str, if_match: str, span: tuple[int, int]
    ) -> str:
        """Copy the bytes of another object from the first to the last, if it is in that version; returns an ETag."""
        ...

    async def put_part(self, name: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, and return its ETag."""
        ...

    async def complete_upload(
        self, name: str, upload: str, parts: Sequence[str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        """Put the parts, by their ETags, in the object's place, on a condition as `put`; returns the new ETag."""
        ...

    async def abort_upload(self, upload: RetainedVersion) -> None:
        """Drop the parts of an upload."""
        ...


class RequestError(Exception):
    """What a request came to instead of a result."""


class NotFound(RequestError):
    """There is no such object."""


class PreconditionFailed(RequestError):
    """The precondition does not hold.

    ``has_directories``: the server may mean a directory that holds no object.
    """

    def __init__(self, has_directories: bool = False) -> None:
        super().__init__()
        self.has_directories = has_directories


class WriteConflict(RequestError):
    """The precondition could not be decided, because another write was under way."""


class NotSatisfiable(RequestError):
    """The range begins at or after the end."""


class TooLarge(RequestError):
    """More bytes than the caller takes: ``size``, of at most ``most``."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(size)
        self.size = size
        self.most = most


class NoResponse(RequestError):
    """No answer that settles a request; its text says why, in a word or two.

    Attributes:
        sent: whether it may have taken effect; False if it certainly did not.
        wait: seconds the store asks to wait before the next request.
        lasting: whether no retry mends it where the server never answered this process before.
    """

    def __init__(self, reason: str, *, sent: bool = True, wait: float = 0.0, lasting: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        self.wait = wait
        self.lasting = lasting


class Unreachable(NoResponse):
    """No answer from a server that never answered this process: its address may be wrong. Retried for a few seconds."""


class InvalidResponse(NoResponse):
    """An answer that is no HTTP. A few in a row are no accident: the operation ends."""


class PermanentError(RequestError):
    """The store's refusal for good; its text says why, without names, hosts and credentials."""


class UnknownOutcome(PermanentError):
    """No answer of a store, for good, to a request that may have taken effect: a mistake of code, or another server."""
