"""A proxy in front of an S3 server that counts requests and injects faults."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from random import Random
from typing import Literal, Self, TypeAlias
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import web
from yarl import URL

Fault: TypeAlias = Literal[
    "reply lost",
    "reset",
    "500",
    "503",
    "409",
    "500 after it was done",
    "slow",
    "truncated body",
    "hangs",
    "no http",
    "reset after it was done",
]
FAULTS: tuple[Fault, ...] = (
    "reply lost", "reset", "500", "503", "409", "500 after it was done", "slow", "truncated body", "hangs"
)  # fmt: skip
Treatment: TypeAlias = Literal[
    "kept",
    "ignored",
    "never met",
    "unquoted",
    "not taken",
    "in two steps",
    "ignored if missing",
    "500 in a race",
    "in two steps, 500 in a race",
]
"""How the server treats a precondition.

"unquoted": only an ETag without quotes meets it. "in two steps": it is checked some time before the change is made.
"ignored if missing": it is kept, except for an object that does not exist. "500 in a race": of changes of one object at
once, one is answered by success, and the others by 500, as Ceph RGW 16.2 does.
"""
Chooser: TypeAlias = Callable[[str], Fault | None]
"""Choose the fault of a request from the name of its S3 operation."""

_CODES = {"500": "InternalError", "503": "SlowDown", "409": "ConditionalRequestConflict"}
_SLOW_SECONDS = 0.3
_CHECKED_BEFORE_SECONDS = 0.25
_RACE_SECONDS = 0.05
_LENGTH = "content-length"
_HOP = {"connection", "keep-alive", "transfer-encoding", _LENGTH}
_CONDITIONS = {"if-match", "if-none-match", "x-amz-copy-source-if-match"}
_KINDS = {"COPY PART": "copy", "COMPLETE UPLOAD": "complete", "DELETE": "delete"}
_ETAGS = _CONDITIONS - {"if-none-match"}
_USERS = "x-amz-meta-"
_MOST_METADATA = 2048


def at_random(share: float, seed: int, faults: tuple[Fault, ...]) -> Chooser:
    """Inject one of some faults into a random share of the requests."""
    random = Random(seed)
    return lambda _: random.choice(faults) if random.random() < share else None


def telling(sent: asyncio.Event, fault: Fault) -> Chooser:
    """Inject a fault into every request, and set an event of the running loop."""
    loop = asyncio.get_running_loop()

    def choose(_: str) -> Fault:
        loop.call_soon_threadsafe(sent.set)
        return fault

    return choose


def nothing(_: str) -> Fault | None:
    return None


class Proxy:
    """Forward requests to an endpoint, in its own thread.

    Attributes:
        endpoint: the URL of the proxy.
        counts: received requests by S3 operation.
        sent: bytes of the request bodies.
        received: bytes of the response bodies.
        user_agent: the ``User-Agent`` of the last request.
        most_at_once: the largest number of requests in progress at the same time.
        choose: decides the faults; may be replaced at any time.
        refuses_conditions: whether every conditional request is answered with 501.
        chunked_heads: a HEAD of a missing object is answered with the end of a chunked body, which no answer to a HEAD
            has, on a connection that is kept: at once, or some seconds later.
        instead: returns the answer to a request that is not forwarded, or None to forward it.
        framed: whether the body of a PUT is stored with the framing of a chunked upload, as if it were content.
        ignores: names of headers and query parameters, in lower case, that the server ignores.
        between: called in a thread between the two steps of a change whose precondition is treated so.
        treatments: of the preconditions by kind, named as the fields of ``TrialResults``; the others are enforced.
    """

    def __init__(self, upstream: str) -> None:
        self.endpoint = ""
        self.counts: Counter[str] = Counter()
        self.sent = 0
        self.received = 0
        self.user_agent = ""
        self.most_at_once = 0
        self._under_way = 0
        self.choose: Chooser = nothing
        self.refuses_conditions = False
        self.chunked_heads: float | None = None
        self.instead: Callable[[web.Request], web.StreamResponse | None] | None = None
        self.framed = False
        self.ignores: set[str] = set()
        self.between: Callable[[], object] = partial(time.sleep, _CHECKED_BEFORE_SECONDS)
        self.treatments: dict[str, Treatment] = {}
        self._unconditional: set[int] = set()
        self._racers: Counter[str] = Counter()
        self._raced: set[str] = set()
        self._won: set[str] = set()
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The requests that are sent within the block."""
        before = Counter(self.counts)
        seen: Counter[str] = Counter()
        yield seen
        seen.update(self.counts - before)

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(limit=200)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._started.set()
            await self._stop.wait()
            await runner.cleanup()
            await asyncio.sleep(0.05)  # hanging requests end by themselves
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        self.counts[operation_of(request)] += 1
        with self._racing(request):
            try:
                if self.instead and (answer := self.instead(request)) is not None:
                    return answer
                answer = await self._answer(request)
                return error(500, "UnknownError") if self._loses(request, answer.status) else answer
            finally:
                self._under_way -= 1
                self._unconditional.discard(id(request))

    @contextmanager
    def _racing(self, request: web.Request) -> Iterator[None]:
        """Count the changes of an object that are under way, if "500 in a race" treats them."""
        if not self._treatment(request).endswith("500 in a race"):
            yield
            return
        self._racers[request.path] += 1
        if self._racers[request.path] > 1:
            self._raced.add(request.path)
        try:
            yield
        finally:
            self._racers[request.path] -= 1
            if not self._racers[request.path]:
                self._raced.discard(request.path)
                self._won.discard(request.path)

    def _loses(self, request: web.Request, status: int) -> bool:
        """Whether "500 in a race" hides the answer: only the first change that was made is acknowledged."""
        is_raced = request.path in self._raced and self._treatment(request).endswith("500 in a race")
        if is_raced and status < 300 and request.path not in self._won:
            self._won.add(request.path)
            return False
        return is_raced

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        operation = operation_of(request)
        self.user_agent = request.headers.get("User-Agent", "")
        body = await request.read()
        self.sent += len(body)
        fault = self.choose(operation)
        if code := self._refused(request, fault) or await self._refused_before(request):
            return error(*code)
        if fault in ("reset", "no http", "hangs"):
            return await self._not_forwarded(request, fault)
        if fault == "slow":
            await asyncio.sleep(_SLOW_SECONDS)
        if fault is None and request.method == "GET":
            return await self._streamed(request)
        status, headers, answer = await self._forward(request, body)
        self.received += len(answer)
        if fault in ("reply lost", "reset after it was done"):
            return _cut(request) if fault == "reply lost" else _reset(request)
        if fault == "500 after it was done":
            return error(500, "InternalError")
        if fault == "truncated body" and request.method == "GET" and len(answer) > 1:
            return await _truncated(request, status, headers, answer)
        if request.method == "HEAD":
            if status == 404 and self.chunked_heads is not None:
                return _ChunkedHead(self.chunked_heads)
            return web.Response(status=status, headers={**headers, "Content-Length": headers["X-Length"]})
        return web.Response(status=status, headers=headers, body=answer)

    async def _not_forwarded(self, request: web.Request, fault: Fault) -> web.Response:
        if fault == "hangs":
            await self._stop.wait()
        if fault == "no http" and request.transport:
            request.transport.write(b"0\r\n\r\n")
        return _cut(request, at_once=fault != "no http")

    def _refused(self, request: web.Request, fault: Fault | None) -> tuple[int, str] | None:
        """The status and code of a request that is not forwarded."""
        metadata = [name + value for name, value in request.headers.items() if name.lower().startswith(_USERS)]
        if sum(len(text) - len(_USERS) for text in metadata) > _MOST_METADATA:
            return 400, "MetadataTooLarge"
        treatment = self._treatment(request)
        if treatment == "not taken" or (self.refuses_conditions and _is_conditional(request)):
            return 501, "NotImplemented"
        if treatment == "never met" or (treatment == "unquoted" and _is_quoted(request)):
            return 412, "PreconditionFailed"
        if fault in ("500", "503") or (fault == "409" and _is_conditional(request)):
            return int(fault), _CODES[fault]
        return None

    async def _streamed(self, request: web.Request) -> web.StreamResponse:
        """Stream an answer of any size until the client stops reading."""
        dropped = _HOP | self.ignores
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        path, _, query = request.raw_path.partition("?")
        heeded = [part for part in query.split("&") if part.partition("=")[0].lower() not in self.ignores]
        url = URL(f"{self._upstream}{path}?{'&'.join(heeded)}".rstrip("?"), encoded=True)
        async with self._session.get(url, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP - {_LENGTH}}
            reply = web.StreamResponse(status=answer.status, headers=kept)
            await reply.prepare(request)
            with suppress(ConnectionResetError):  # the client stopped reading
                async for chunk in answer.content.iter_any():
                    self.received += len(chunk)
                    await reply.write(chunk)
            return reply

    def _treatment(self, request: web.Request) -> Treatment:
        return self.treatments.get(_kind(request), "kept") if _is_conditional(request) else "kept"

    async def _refused_before(self, request: web.Request) -> tuple[int, str] | None:
        """The status and code if a precondition does not hold now; others may change the object until this returns."""
        treatment = self._treatment(request)
        if treatment == "500 in a race":
            await asyncio.sleep(_RACE_SECONDS)
        if not treatment.startswith(("in two steps", "ignored if missing")):
            return None
        path, etag = _held_to(request)
        async with self._session.head(URL(self._upstream + path, encoded=True)) as reply:
            found = reply.headers.get("ETag") if reply.status == 200 else None
        if treatment == "ignored if missing":
            if found is None:
                self._unconditional.add(id(request))
            return None
        await asyncio.to_thread(self.between)
        self._unconditional.add(id(request))
        return None if found == etag else (412, "PreconditionFailed")

    def _headers(self, request: web.Request) -> dict[str, str]:
        """The headers that are passed on."""
        dropped = _HOP | self.ignores
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        if self.framed:
            headers = {name: value for name, value in headers.items() if "checksum" not in name.lower()}
        treatment = self._treatment(request)
        if treatment == "ignored" or id(request) in self._unconditional:
            return {name: value for name, value in headers.items() if name.lower() not in _CONDITIONS}
        if treatment == "unquoted":
            return {name: f'"{each}"' if name.lower() in _ETAGS else each for name, each in headers.items()}
        return headers

    async def _forward(self, request: web.Request, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = self._headers(request)
        url = URL(self._upstream + request.raw_path, encoded=True)
        if self.framed and operation_of(request) == "PUT":
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        data = BytesIO(body) if body else None
        while True:
            try:
                async with self._session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=data,
                    skip_auto_headers=["Content-Type"],
                ) as reply:
                    answer = await reply.read()
                    kept = {name: value for name, value in reply.headers.items() if name.lower() not in _HOP}
                    kept["X-Length"] = reply.headers.get("Content-Length", "0")
                    return reply.status, kept, answer
            except aiohttp.ServerDisconnectedError:
                if request.method not in ("GET", "HEAD"):
                    raise


class _ChunkedHead(web.StreamResponse):
    """The answer of OpenStack Swift's s3api to a HEAD of a missing object."""

    def __init__(self, seconds: float) -> None:
        super().__init__(status=404)
        self._seconds = seconds

    async def prepare(self, request: web.BaseRequest) -> None:
        assert request.transport
        head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        end = b"0\r\n\r\n"
        if not self._seconds:
            request.transport.write(head + end)
            return
        request.transport.write(head)
        asyncio.get_running_loop().call_later(self._seconds, request.transport.write, end)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing more."""


def operation_of(request: web.Request) -> str:
    """The name of a request's S3 operation."""
    asked, method = request.query, request.method
    if method == "GET":
        if "versions" in asked or "uploads" in asked:
            return "VERSIONS" if "versions" in asked else "UPLOADS"
        return "LIST" if "list-type" in asked else "GET"
    if method == "PUT" and "partNumber" in asked:
        return "COPY PART" if "x-amz-copy-source" in request.headers else "PUT PART"
    if method == "POST" and ("uploads" in asked or "uploadId" in asked):
        return "BEGIN UPLOAD" if "uploads" in asked else "COMPLETE UPLOAD"
    return "ABORT UPLOAD" if method == "DELETE" and "uploadId" in asked else method


def _kind(request: web.Request) -> str:
    """The kind of precondition that a request could have."""
    operation = operation_of(request)
    if operation == "PUT":
        return "create" if "If-None-Match" in request.headers else "swap"
    return _KINDS.get(operation, operation)


def _held_to(request: web.Request) -> tuple[str, str | None]:
    """The path of the object that a precondition is about, and the ETag that it must have; None if it must be new."""
    if operation_of(request) == "COPY PART":
        source = request.headers["x-amz-copy-source"].removeprefix("/")
        return f"/{source}", request.headers["x-amz-copy-source-if-match"]
    return request.raw_path.partition("?")[0], request.headers.get("If-Match")


def _is_quoted(request: web.Request) -> bool:
    return any(value.startswith('"') for name, value in request.headers.items() if name.lower() in _ETAGS)


def _is_conditional(request: web.Request) -> bool:
    return not _CONDITIONS.isdisjoint(name.lower() for name in request.headers)


def error(status: int, code: str) -> web.Response:
    """An answer of S3 with an error code."""
    text = f"<?xml version='1.0'?><Error><Code>{escape(code)}</Code><Message>injected</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


def _cut(request: web.Request, *, at_once: bool = True) -> web.Response:
    if request.transport is not None:
        request.transport.abort() if at_once else request.transport.close()
    return web.Response()


def _reset(request: web.Request) -> web.Response:
    """End the connection with a TCP reset, like a load balancer that has dropped it."""
    if request.transport is not None:
        linger = struct.pack("ii", 1, 0)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return _cut(request)


async def _truncated(request: web.Request, status: int, headers: dict[str, str], answer: bytes) -> web.StreamResponse:
    reply = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(answer))})
    await reply.prepare(request)
    await reply.write(answer[: len(answer) // 2])
    _cut(request)
    return reply
