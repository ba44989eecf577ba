"""A simulated store, and a network that loses, delays and repeats the requests of its clients."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from agent_memory.object_store.engine import (
    Listed,
    Listing,
    NoResponse,
    NotFound,
    Object,
    PreconditionFailed,
    RetainedVersion,
    TooLarge,
    WriteConflict,
)

EPOCH: Final = 1_700_000_000.0
_CONDITIONAL_ONLY: Final = frozenset({"repeated", "late", "racing"})
"""Faults of conditional requests only; a request without a precondition would take effect whenever it arrives."""
LEAST_PART: Final = 100
"""Least number of bytes of an object that the server copies into an upload."""
READ_TIMEOUT: Final = 3.0
"""Seconds after which a client stops waiting for an answer."""


@dataclass
class Faults:
    """The probability of each fault for a request, from 0 to 1; other requests are delayed a little and answered.

    Attributes:
        lost_before: the request never arrives.
        lost_after: the request takes effect, and the answer is lost.
        resent: like ``lost_after``, but the client silently sends the request again, and gets the second answer.
        repeated: the request is answered, and takes effect a second time later.
        late: the request arrives after the client stopped waiting.
        refused: the answer is 500 or 503, without effect.
        racing: the answer is 409, without effect; only for conditional requests.
        outage: the probability, per schedule, that the store does not answer for a while, or for longer than any
            deadline.
    """

    lost_before: float = 0.05
    lost_after: float = 0.08
    resent: float = 0.0
    repeated: float = 0.03
    late: float = 0.02
    refused: float = 0.03
    racing: float = 0.03
    outage: float = 0.0


@dataclass
class Upload:
    """An upload in parts that is neither completed nor aborted."""

    name: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass
class SimulatedStore:
    """The server: objects by name, ETags that depend only on the content and its parts, times in whole seconds.

    It keeps all preconditions.

    Attributes:
        dark: begin and end of the time in which it does not answer.
        requests: the number of requests that were sent.
        ever: every line that any object ever contained.
        lost: the number of conditional requests without an answer that tells whether they took effect.
        states: every state that any object had, with its name, in order; None is a deletion.
    """

    objects: dict[str, Object] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    dark: tuple[float, float] = (0.0, 0.0)
    requests: int = 0
    ever: set[bytes] = field(default_factory=set)
    lost: int = 0
    states: list[tuple[str, Object | None]] = field(default_factory=list)
    _begun: int = 0

    def put(
        self,
        name: str,
        data: bytes,
        metadata: Mapping[str, str],
        if_match: str | None,
        absent: bool,
        etag: str | None = None,
    ) -> str:
        there = self.objects.get(name)
        if absent and there:
            raise PreconditionFailed
        if if_match is not None and (there is None or there.etag != if_match):
            raise PreconditionFailed if there else NotFound
        size = sum(len(key) + len(value) for key, value in metadata.items())
        assert size <= 2048, f"{size} bytes of metadata: S3 would refuse them"
        etag = etag or _etag(data)
        self.ever.update(data.splitlines())
        modified = float(int(EPOCH + asyncio.get_running_loop().time()))
        self.objects[name] = Object(etag, len(data), modified, dict(metadata), data)
        self.states.append((name, self.objects[name]))
        return etag

    def get(self, name: str, if_match: str | None) -> Object:
        there = self.objects.get(name)
        if there is None:
            raise NotFound
        if if_match is not None and there.etag != if_match:
            raise PreconditionFailed
        return there

    def delete(self, name: str, if_match: str | None) -> None:
        if if_match is not None:
            self.get(name, if_match)
        if self.objects.pop(name, None):
            self.states.append((name, None))

    def begin_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        self._begun += 1
        self.uploads[str(self._begun)] = Upload(name, metadata)
        return str(self._begun)

    def put_part(self, upload: str, number: int, data: bytes) -> str:
        self._upload(upload).parts[number] = data
        return _etag(data)

    def complete_upload(self, upload: str, parts: Sequence[str], if_match: str | None, absent: bool) -> str:
        whole = self._upload(upload)
        ordered = [whole.parts[number] for number in range(1, len(parts) + 1)]
        assert [_etag(part) for part in ordered] == list(parts)
        assert all(len(part) >= LEAST_PART for part in ordered[:-1]), "S3 would refuse such a small part"
        of_parts = _etag(b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in ordered))
        etag = f'{of_parts[:-1]}-{len(parts)}"'
        self.put(whole.name, b"".join(ordered), whole.metadata, if_match, absent, etag)
        del self.uploads[upload]
        return etag

    def _upload(self, upload: str) -> Upload:
        if upload not in self.uploads:
            raise NotFound
        return self.uploads[upload]


class SimulatedClient:
    """The client of one process: an `agent_memory.object_store.engine.ObjectStore` without any optional part.

    Args:
        store: the server.
        random: decides delays and faults.
        faults: the probabilities of the faults.
        resends: whether the client states that it may send a request twice.
    """

    conditional_delete = False
    bare_etags = False
    most_listed = 1000

    def __init__(self, store: SimulatedStore, random: Random, faults: Faults, *, resends: bool = False) -> None:
        self.identity = "simulated"
        self.resends = resends
        self._store = store
        self._random = random
        self._faults = faults
        self._skew = random.uniform(-1, 1)
        self._behind = 0.0
        self._is_noticed = False

    def wake(self, after: float, *, is_noticed: bool) -> None:
        """Restore the client from an image that is ``after`` seconds old; an answer tells it the time.

        Args:
            after: how far its clock is behind.
            is_noticed: whether the host's clock was set, and not its monotonic clock.
        """
        self._behind, self._is_noticed = after, is_noticed

    server = ""

    async def is_trusted(self) -> bool:
        return True

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time() + self._skew - self._behind

    def clock_was_set(self) -> bool:
        return self._is_noticed

    def ahead_by(self) -> float:
        return 1.0

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        found: Object = await self._sent(lambda: self._store.get(name, if_match), conditional=if_match is not None)
        if span is not None:
            first, last = span.removeprefix("bytes=").split("-")
            return found._replace(data=found.data[int(first) : int(last) + 1] if first else found.data[-int(last) :])
        if most is not None and found.size > most:
            raise TooLarge(found.size, most)
        return found

    async def head(self, name: str) -> Object:
        found: Object = await self._sent(lambda: self._store.get(name, None), conditional=False)
        return found._replace(data=b"")

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        conditional = absent or if_match is not None
        etag: str = await self._sent(
            lambda: self._store.put(name, data, metadata, if_match, absent), conditional=conditional
        )
        return etag

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        await self._sent(lambda: self._store.delete(name, if_match), conditional=if_match is not None)

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:  # noqa: ARG002 - one page
        def listing() -> Listing:
            found = sorted(item for item in self._store.objects.items() if item[0].startswith(prefix))
            if delimited:
                found = [item for item in found if "/" not in item[0][len(prefix) :]]
            return Listing([Listed(name, o.size, o.modified, o.etag) for name, o in found[:limit]], (), None)

        answer: Listing = await self._sent(listing, conditional=False)
        return answer

    async def aclose(self) -> None:
        return

    async def _sent(self, request: Callable[[], object], *, conditional: bool) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        fault = self._fault(conditional)
        self._store.requests += 1
        self._store.lost += conditional and fault not in (None, "racing", "repeated")
        give_up = loop.call_later(READ_TIMEOUT, _fail, answer, NoResponse("no answer"))
        delay = self._random.expovariate(50)
        if fault == "late":
            delay += READ_TIMEOUT + self._random.expovariate(0.2)
        loop.call_later(delay, self._arrive, request, answer, fault)
        try:
            return await answer
        finally:
            give_up.cancel()
            if answer.done() and not answer.cancelled():
                error = answer.exception()  # also retrieves it, if the waiting task was cancelled just now
                if not isinstance(error, NoResponse):
                    self._behind, self._is_noticed = 0.0, False

    def _fault(self, conditional: bool) -> str | None:
        faults, drawn = self._faults, self._random.random()
        for name in ("lost_before", "lost_after", "resent", "repeated", "late", "refused", "racing"):
            drawn -= getattr(faults, name)
            if drawn < 0:
                return None if name in _CONDITIONAL_ONLY and not conditional else name
        return None

    def _arrive(self, request: Callable[[], object], answer: asyncio.Future[object], fault: str | None) -> None:
        loop = asyncio.get_running_loop()
        back = self._random.expovariate(50)
        if fault == "lost_before" or self._store.dark[0] <= loop.time() < self._store.dark[1]:
            return
        if fault == "refused":
            loop.call_later(back, _fail, answer, NoResponse("503", wait=self._random.choice((0.0, 0.1))))
            return
        if fault == "racing":
            loop.call_later(back, _fail, answer, WriteConflict())
            return
        reply = _done(request)
        if fault == "resent":
            loop.call_later(self._random.expovariate(20), lambda: _tell(answer, _done(request)))
        elif fault != "lost_after":
            loop.call_later(back, _tell, answer, reply)
        if fault == "repeated":
            loop.call_later(self._random.expovariate(1), _done, request)


class ComposingClient(SimulatedClient):
    """A client with multipart uploads and conditional deletes.

    It is an `agent_memory.object_store.engine.SupportsMultipart`.
    """

    conditional_delete = True
    least_part = LEAST_PART

    async def begin_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        upload: str = await self._sent(lambda: self._store.begin_upload(name, metadata), conditional=False)
        return upload

    async def copy_part(
        self, name: str, upload: str, number: int, *, source: str, if_match: str, span: tuple[int, int]
    ) -> str:
        assert name == source

        def copy() -> str:
            data = self._store.get(source, if_match).data[span[0] : span[1] + 1]
            return self._store.put_part(upload, number, data)

        etag: str = await self._sent(copy, conditional=False)
        return etag

    async def put_part(self, name: str, upload: str, number: int, data: bytes) -> str:  # noqa: ARG002 - the upload id is enough
        etag: str = await self._sent(lambda: self._store.put_part(upload, number, data), conditional=False)
        return etag

    async def complete_upload(
        self,
        name: str,  # noqa: ARG002 - the upload id is enough
        upload: str,
        parts: Sequence[str],
        *,
        if_match: str | None = None,
        absent: bool = False,
    ) -> str:
        conditional = absent or if_match is not None
        complete = partial(self._store.complete_upload, upload, parts, if_match, absent)
        etag: str = await self._sent(complete, conditional=conditional)
        return etag

    async def abort_upload(self, upload: RetainedVersion) -> None:
        await self._sent(lambda: self._store.uploads.pop(upload.id, None), conditional=False)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _done(request: Callable[[], object]) -> object:
    try:
        return request()
    except (NotFound, PreconditionFailed) as refused:
        return refused


def _tell(answer: asyncio.Future[object], reply: object) -> None:
    if isinstance(reply, Exception):
        _fail(answer, reply)
    elif not answer.done():
        answer.set_result(reply)


def _fail(answer: asyncio.Future[object], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
