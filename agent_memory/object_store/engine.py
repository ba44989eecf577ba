"""`ObjectStore`: the interface of an engine, one request for each call, and the exceptions that requests raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

NO_ETAG: Final = '"00000000000000000000000000000000"'
"""An ETag that no object has, for a condition that cannot hold."""


class Object(NamedTuple):
    """One object as a request found it.

    ``size`` is that of the whole object, in bytes; ``modified`` is in POSIX seconds by the store's clock; ``metadata``
    is the user metadata, with names in lower case; ``data`` is the body of a GET, empty for a HEAD.
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
    """One page; ``prefixes`` end in ``/``; if ``has_directories``, some of them may hold no object."""

    objects: Sequence[Listed]
    prefixes: Sequence[str]
    next: str | None
    has_directories: bool = False


class ObjectStore(Protocol):
    """One bucket. Every coroutine method sends one request, once; only `Attempts` calls them.

    An exception that is not listed here is a bug in the engine or in its library: the operation fails, without a retry.

    Raises:
        NotFound: the object does not exist.
        PreconditionFailed: the precondition does not hold (412).
        WriteConflict: the store could not decide the precondition while another write was under way (409).
        NotSatisfiable: the range begins at or after the end of the object (416).
        NoResponse: no answer, or an answer without the result of the request; a retry may help.
        PermanentError: the store refused the request, and would refuse it again.
        UnsupportedOperationError: the store does not support the condition (501).
    """

    resends: bool
    """Whether the client may repeat a request by itself, so that the effect of a write can refuse its repetition."""
    conditional_delete: bool
    """Whether `delete` takes a condition."""
    bare_etags: bool
    """Whether conditions send ETags without their quotes; a trial sets it if the server accepts no others."""
    most_listed: int
    """The most names that `list` returns."""

    @property
    def identity(self) -> str:
        """The bucket's name, which is a part of the locks of a process's writers, across all backends of the bucket."""
        ...

    @property
    def server(self) -> str:
        """The address of the server, once `is_trusted` has answered. Stores of one server and bucket share a trial.

        "" shares none.
        """
        ...

    async def is_trusted(self) -> bool:
        """Whether the store is known to enforce preconditions; else a trial runs once, before a write needs them."""
        ...

    def now(self) -> float:
        """The store's clock in POSIX seconds, estimated from its answers."""
        ...

    def clock_was_set(self) -> bool:
        """Whether this host's clock was set since the last answer, so that `now` may be wrong.

        A process that was restored from an image of its memory sees the same.
        """
        ...

    def ahead_by(self) -> float:
        """The most seconds that `now` may be ahead of the store's clock."""
        ...

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        """Read an object, or its ``Range`` ``span``; raises `TooLarge` instead of reading more than ``most`` bytes."""
        ...

    async def head(self, name: str) -> Object:
        """The same as `get`, without the data."""
        ...

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        """Write a whole object, and return its ETag; ``absent``: only if it does not exist (``If-None-Match: *``)."""
        ...

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete an object; without a condition, a missing object is no error."""
        ...

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        """List one page of at most ``limit`` names; ``delimited``: only this level, and the prefixes below it."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class RetainedVersion(NamedTuple):
    """A version, a deletion mark or an incomplete upload that a store keeps under a name."""

    name: str
    id: str


class RetainedPage(NamedTuple):
    """One page; ``next`` is the start of the next page, None at the end."""

    found: Sequence[RetainedVersion]
    next: tuple[str, str] | None


@runtime_checkable
class SupportsVersions(Protocol):
    """Optional for an `ObjectStore`: access to versions and incomplete uploads. Raises as `ObjectStore`."""

    async def list_versions(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        """List versions and deletion marks of names with this prefix, at most 1,000; for each name the latest first."""
        ...

    async def has_versioning(self) -> bool:
        """Whether the bucket keeps versions, or has kept them."""
        ...

    async def delete_version(self, version: RetainedVersion) -> None:
        """Delete one version permanently."""
        ...

    async def list_uploads(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        """List incomplete multipart uploads of names with this prefix, at most 1,000."""
        ...

    async def abort_upload(self, upload: RetainedVersion) -> None:
        """Drop the parts of an upload."""
        ...


@runtime_checkable
class SupportsMultipart(ObjectStore, Protocol):
    """Optional for an `ObjectStore`: multipart uploads, with parts that the server copies. Raises as `ObjectStore`.

    `NotFound` also says that the upload no longer exists.
    """

    least_part: int
    """The least bytes of every part except the last."""

    async def begin_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload, and return its id."""
        ...

    async def copy_part(
        self, name: str, upload: str, number: int, *, source: str, if_match: str, span: tuple[int, int]
    ) -> str:
        """Copy the bytes ``span`` (first and last offset) of the version ``if_match`` of ``source``; return an ETag."""
        ...

    async def put_part(self, name: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, and return its ETag."""
        ...

    async def complete_upload(
        self, name: str, upload: str, parts: Sequence[str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        """Replace the object by the parts, given by their ETags, on a condition as `put`; return the new ETag."""
        ...

    async def abort_upload(self, upload: RetainedVersion) -> None:
        """Drop the parts of an upload."""
        ...


class RequestError(Exception):
    """The base of the exceptions that a request raises instead of a result."""


class NotFound(RequestError):
    """The object does not exist."""


class PreconditionFailed(RequestError):
    """The precondition does not hold.

    ``has_directories``: the reason may be a directory without objects.
    """

    def __init__(self, has_directories: bool = False) -> None:
        super().__init__()
        self.has_directories = has_directories


class WriteConflict(RequestError):
    """The store could not decide the precondition, because another write was under way."""


class NotSatisfiable(RequestError):
    """The range begins at or after the end."""


class TooLarge(RequestError):
    """The object has ``size`` bytes, more than the ``most`` that the caller accepts."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(size)
        self.size = size
        self.most = most


class NoResponse(RequestError):
    """A request without an answer, or with an answer without a result; the text gives the reason in a few words.

    Attributes:
        sent: whether the request may have taken effect; False if it certainly did not.
        wait: the seconds to wait before the next request, as the store demands.
        lasting: whether a retry is useless if the server has never answered this process.
        cut: whether the deadline ended the request so soon that the server may be healthy.
        answered: whether the answer is 500: of a server that took the request, and of no gateway or limit before it.
    """

    def __init__(
        self,
        reason: str,
        *,
        sent: bool = True,
        wait: float = 0.0,
        lasting: bool = False,
        cut: bool = False,
        answered: bool = False,
    ) -> None:
        super().__init__(reason)
        self.answered = answered
        self.cut = cut
        self.sent = sent
        self.wait = wait
        self.lasting = lasting


class Unreachable(NoResponse):
    """No answer, and no earlier answer in this process: the address may be wrong. Retried for a few seconds only."""


class InvalidResponse(NoResponse):
    """An answer that is not HTTP. Retried, but after a few in a row the operation fails."""


class PermanentError(RequestError):
    """A retry is useless. The text gives the reason, without names, hosts and credentials."""


class UnsupportedRequest(PermanentError):
    """The store does not know this kind of request (501, 405)."""


class AccessDenied(PermanentError, PermissionError):
    """The store denies access, to one object or to all."""


class UnknownOutcome(PermanentError):
    """A request may have taken effect, and no retry can find out: a bug in the client, or a server without objects."""
