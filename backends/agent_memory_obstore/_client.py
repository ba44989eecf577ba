"""`ObstoreStore` and `AzureStore`: one bucket through obstore, with one request per call and no retries.

Conditions go directly to obstore's store, because its fsspec adapter drops them.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple

from agent_memory.backend.helpers import HostClock, Uncopied
from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import (
    Listed,
    Listing,
    NoResponse,
    NotFound,
    NotSatisfiable,
    Object,
    PermanentError,
    PreconditionFailed,
    TooLarge,
)
from agent_memory.object_store.responses import NO_OBJECT, Reachability
from agent_memory_obstore._answers import ObstoreRequest, translated

_FORKED = (
    "obstore does not work in a process forked from one that used it: start processes with spawn or forkserver, or use"
    " s3:// without an engine"
)
_LAST_SECONDS = 0.02
"""Seconds at exit in which obstore's threads release their Python objects; without them they can abort the process."""
WHOLE = 100_000
"""The number of names in a page if each page needs a listing of everything."""
_LARGE = 256 << 10
"""Bytes from which a request gets extra time for sending, because obstore counts it as waiting for the response."""
_SLOWEST_LINE = 1 << 20
"""The assumed bytes per second of a large write; after a lost response, time for a retry is left in the 60 seconds."""
ANSWER_SECONDS = 15.0
"""Seconds that a request waits for its response."""
_MISSING = ".agent-memory/no-such-object"
_CLOCKS_DIFFER = 5.0
"""The most seconds that this host's clock is assumed to be ahead of the store's before the first object is read."""
_started_in: int | None = None
"""The process in which obstore's threads run; a forked child does not have them. None before the first request."""


def library() -> Any:
    """Import obstore; raise if its threads are in a parent process, because a request would never end.

    Raises:
        UnsupportedOperationError: this process was forked from one that used obstore.
    """
    import obstore

    global _started_in
    if _started_in is None:
        _started_in = os.getpid()
        atexit.register(time.sleep, _LAST_SECONDS)
    if _started_in != os.getpid():
        raise UnsupportedOperationError(_FORKED)
    return obstore


class _OwnWrite(NamedTuple):
    """The last object that this process wrote, with the POSIX times of the request and the response."""

    name: str = ""
    etag: str = ""
    metadata: Mapping[str, str] = {}
    sent: float = 0.0
    answered: float = 0.0

    def is_in(self, found: Object, name: str) -> bool:
        """Whether an object is this write; the ETag is not enough, as other writes of the same content have it too."""
        return (name, found.etag) == (self.name, self.etag) and _named(self.metadata).items() <= found.metadata.items()


class ObstoreStore(Uncopied):
    """An `agent_memory.object_store.engine.ObjectStore` of one bucket on S3.

    Args:
        store: obstore's store, configured without retries.
        bucket: the name of the bucket.
        server: as `agent_memory.object_store.engine.ObjectStore.server`.
        trusted: whether the server is known to apply preconditions and to have no real directories.
        patient: whether a large write may take longer than the timeouts of ``store``.
    """

    called = "S3"
    resends = False
    conditional_delete = False

    def __init__(self, store: Any, bucket: str, server: str, *, trusted: bool, patient: bool) -> None:
        self._store = store
        self.server = server
        self._patient = patient
        self.identity = bucket
        self.bare_etags = False
        self._trusted = trusted
        self._in_order = trusted  # in the order of bytes; SeaweedFS is not
        self.most_listed = 1_000 if trusted else WHOLE
        self._contact = Reachability()
        self._ahead = 0.0
        self._host_clock = HostClock()
        self._clock_was_set = False
        self._ahead_by = _CLOCKS_DIFFER
        self._own = _OwnWrite()

    async def is_trusted(self) -> bool:
        return self._trusted

    def now(self) -> float:
        self.clock_was_set()
        return time.time() + self._ahead

    def clock_was_set(self) -> bool:
        if self._host_clock.was_set():
            self._clock_was_set, self._ahead, self._own = True, 0.0, _OwnWrite()
            self._ahead_by = _CLOCKS_DIFFER
        return self._clock_was_set

    def ahead_by(self) -> float:
        return self._ahead_by

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        options: dict[str, object] = {} if if_match is None else {"if_match": self._sent(if_match)}
        if span is not None:
            options["range"] = _range(span)
        with self._request(
            of_object=True, has_code=True, reads=True, conditional=if_match is not None, ranged=span is not None
        ):
            reply = await library().get_async(self._store, name, options=options)
            first, end = reply.range
            if most is not None and end - first > most:
                raise TooLarge(end - first, most)
            data = bytes(await reply.bytes_async())
        return self._object(reply, data)

    async def head(self, name: str) -> Object:
        try:
            with self._request(of_object=True, reads=True):
                reply = await library().get_async(self._store, name, options={"head": True})
        except NotFound:
            self._clock_was_set = False  # obstore tells no time with this answer, so asking again is useless
            raise
        return self._object(reply, b"")

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        attributes, sent, began = dict(metadata), time.time(), time.monotonic()
        mode = "create" if absent else "overwrite" if if_match is None else {"e_tag": self._sent(if_match)}
        with self._request(of_object=True, conditional=mode != "overwrite"):
            is_patient = self._patient and len(data) >= _LARGE
            store = self._patient_store if is_patient else self._store
            async with asyncio.timeout(ANSWER_SECONDS + len(data) / _SLOWEST_LINE if is_patient else None):
                reply = await library().put_async(
                    store, name, data, attributes=attributes, mode=mode, use_multipart=False
                )
        etag, answered = _etag(reply), time.time()
        # The system may have set the clock back during the request.
        sent = min(sent, answered - (time.monotonic() - began))
        self._own = _OwnWrite(name, etag, attributes, sent, answered)
        return etag

    def _sent(self, etag: str) -> str:
        """An ETag in the form that the server accepts in a condition."""
        return etag.strip('"') if self.bare_etags else etag

    @cached_property
    def _patient_store(self) -> Any:
        """The store with a client whose read timeout is as long as its total timeout."""
        store = self._store
        client = {**store.client_options, "read_timeout": store.client_options["timeout"]}
        return type(store)(
            config=store.config,
            client_options=client,
            retry_config=store.retry_config,
            credential_provider=store.credential_provider,
        )

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        if if_match is not None:
            raise UnsupportedOperationError("obstore has no conditional delete")
        if name.endswith("/"):  # obstore would drop the slash and delete another object
            raise PermanentError("obstore cannot remove a directory that the server keeps although it is empty")
        with suppress(NotFound), self._request(of_object=True):
            await library().delete_async(self._store, name)

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        listing = await (self._level if delimited else self._below)(prefix, limit, after)
        if not (listing.objects or listing.prefixes or self._trusted):
            await self._require_store(prefix)
        return listing

    async def _require_store(self, prefix: str) -> None:
        """Raise `PermanentError` unless the server is an object store; obstore reads any page as an empty listing.

        An object store sends a code for a missing object. One request checks that, unless a code was seen before.
        """
        if self._contact.of_store:
            return
        with suppress(NotFound, PermanentError):
            await self.get(f"{prefix}{_MISSING}")
        if not self._contact.of_store:
            raise PermanentError(f"the answer is not a listing of {self.called}")

    async def aclose(self) -> None:
        return  # the last reference to obstore's store closes the connections

    async def _below(self, prefix: str, limit: int, after: str | None) -> Listing:
        if not self._in_order:
            with self._request():
                found = await library().list(self._store, prefix or None).collect_async()
            return self._page(prefix, limit, after, found)
        size = max(limit, 2)
        with self._request():
            chunks = library().list(self._store, prefix or None, offset=after, chunk_size=size)
            chunk: list[Any] = await anext(aiter(chunks), [])
        # obstore drops the slash of a folder marker, so a listing after its name contains the marker again.
        found = [each for each in chunk if each["path"] > (after or "")][:limit]
        if len(chunk) < size:
            return Listing(_listed(prefix, found), (), None)
        if not found or [each["path"] for each in found] != sorted(each["path"] for each in found):
            raise PermanentError("obstore does not list the names in the bucket in their order")
        return Listing(_listed(prefix, found), (), found[-1]["path"])

    async def _level(self, prefix: str, limit: int, after: str | None) -> Listing:
        """A page of one level; obstore always lists the whole level."""
        with self._request():
            found = await library().list_with_delimiter_async(self._store, prefix or None)
        return self._page(prefix, limit, after, found["objects"], found["common_prefixes"])

    def _page(
        self, prefix: str, limit: int, after: str | None, found: Sequence[Any], directories: Sequence[str] = ()
    ) -> Listing:
        """Cut a page out of a whole listing."""
        objects = _listed(prefix, found)
        prefixes = [f"{each}/" for each in directories]
        names = sorted(name for name in (*(each.name for each in objects), *prefixes) if name > (after or ""))
        page = set(names[:limit])
        return Listing(
            [each for each in objects if each.name in page],
            [each for each in prefixes if each in page],
            names[limit - 1] if len(names) > limit else None,
            has_directories=not self._trusted,
        )

    def _request(self, **facts: Any) -> ObstoreRequest:
        """A context manager for one request; see `translated` for ``facts``."""
        answer = partial(
            translated,
            **facts,
            has_directories=not self._trusted,
            store=self.called,
        )
        return ObstoreRequest(self._contact, answer)

    def _object(self, reply: Any, data: bytes) -> Object:
        meta = reply.meta
        if not meta.get("e_tag"):
            raise PermanentError(NO_OBJECT)
        self._contact.of_store = True
        metadata = _named(reply.attributes)
        found = Object(_etag(meta), meta["size"], meta["last_modified"].timestamp(), metadata, data)
        self._hear(meta["path"], found)
        return found

    def _hear(self, name: str, found: Object) -> None:
        """Estimate the store's clock from the times of objects, because obstore does not give the date of a response.

        The clock is not behind the time of an object, which is in whole seconds. The time of this process's own write
        is between its request and its response.
        """
        self._ahead = max(self.now(), found.modified) - time.time()
        self._clock_was_set = False
        if self._own.is_in(found, name):
            earliest, latest = found.modified - self._own.answered, found.modified + 1 - self._own.sent
            self._ahead = min(max(self._ahead, earliest), latest)
            self._ahead_by = min(self._ahead_by, latest - earliest)


def _named(attributes: Mapping[str, str]) -> dict[str, str]:
    """Metadata with names as in `Object`: lower case, and "-" instead of "_"."""
    return {name.lower().replace("_", "-"): value for name, value in attributes.items()}


def _range(span: str) -> object:
    first, _, last = span.removeprefix("bytes=").partition("-")
    if not first:
        return {"suffix": int(last)}
    return (int(first), int(last) + 1) if last else {"offset": int(first)}


def _listed(prefix: str, found: Sequence[Any]) -> list[Listed]:
    """The objects below a prefix, without the folder marker of the prefix itself."""
    return [
        Listed(each["path"], each["size"], each["last_modified"].timestamp(), _etag(each))
        for each in found
        if each["path"].startswith(prefix)
    ]


def _etag(found: Mapping[str, Any]) -> str:
    if not (etag := found.get("e_tag")):
        raise NoResponse("the answer has no ETag")
    return etag if str(etag).endswith('"') else f'"{etag}"'  # Azure's listings omit the quotes


class AzureStore(ObstoreStore):
    """An `agent_memory.object_store.engine.ObjectStore` of one container of Azure.

    Its differences from S3 are the names of metadata, ranges from the end, and the pages of a listing.
    """

    called = "Azure"

    def __init__(self, store: Any, container: str, server: str, *, trusted: bool, patient: bool) -> None:
        super().__init__(store, container, server, trusted=trusted, patient=patient)
        self._in_order = False  # obstore cannot start a listing of Azure at a name
        self.most_listed = WHOLE

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        if span is None or not span.startswith("bytes=-"):
            return await self._get(name, span, if_match, most)
        found = await self.head(name)  # Azure has no ranges that count from the end
        if not found.size:
            raise NotSatisfiable
        first = max(0, found.size - int(span.removeprefix("bytes=-")))
        try:
            return await self._get(name, f"bytes={first}-", if_match or found.etag, most)
        except (PreconditionFailed, NotSatisfiable):
            if if_match is not None:
                raise
            raise NoResponse("the file changed between two requests", sent=False) from None

    async def _get(self, name: str, span: str | None, if_match: str | None, most: int | None) -> Object:
        try:
            return await super().get(name, span=span, if_match=if_match, most=most)
        except PreconditionFailed:
            await self.head(name)  # Azurite also sends this if the object does not exist
            raise

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        identifiers = {field.replace("-", "_"): value for field, value in metadata.items()}
        return await super().put(name, data, identifiers, if_match=if_match, absent=absent)
