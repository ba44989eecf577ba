"""Serves many clients over streamable HTTP, on this host only, and only with the token."""

from __future__ import annotations

import hmac
import math
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_memory.mcp_server._connections import Connections, HttpConnection
from agent_memory.mcp_server._sessions import Sessions

LOOPBACK: Final = ("127.0.0.1", "::1")
"""The addresses that `serve_http` can listen on; they cannot be reached from another host."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
_SECONDS_TO_ANSWER: Final = 60
"""The seconds that calls in progress may take when the server ends; as the timeout of an operation."""
_SECONDS_TO_END: Final = 2


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits on the sessions and connections of HTTP clients.

    Attributes:
        session_seconds: a session without a request or an open stream ends after this time.
        sessions: the most idle sessions; with more, the least recently used ones end.
        connections: the most connections; with more, the one that has waited longest for its request is closed.
        request_seconds: the time limit for a request to arrive, and for a client that reads nothing of an answer.
    """

    session_seconds: float = 30 * 60
    sessions: int = 100
    connections: int = 200
    request_seconds: float = 30


_LIMITS: Final = HttpLimits()


async def serve_http(
    server: MCPServer[Any],
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    listening: Callable[[str], None] | None = None,
    limits: HttpLimits = _LIMITS,
) -> None:
    """Serve streamable HTTP at ``/mcp`` until the process receives a signal to end; calls in progress are answered.

    A request without ``Authorization: Bearer <token>`` is answered with 401 and nothing else. The ``Host`` and
    ``Origin`` of a request must be this address or ``localhost``, so that no web page can use another name for it.

    Args:
        server: the server to run.
        token: 16 or more characters of ``A-Za-z0-9._~+/-``.
        host: one of `LOOPBACK`.
        port: the port; 0 selects a free one.
        listening: called with the URL once clients can connect.
        limits: the limits on sessions and connections.

    Raises:
        ValueError: ``host`` is not allowed, or ``token`` is invalid.
        OSError: the port is taken.
    """
    if host not in LOOPBACK:
        raise ValueError(f"the host must be {' or '.join(LOOPBACK)}, not {host!r}; other hosts cannot connect")
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token must be 16 or more characters of A-Z a-z 0-9 . _ ~ + / -")
    with _listener(host, port) as listener:
        port = listener.getsockname()[1]
        names = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", f"localhost:{port}"]
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
        inner = server.streamable_http_app(
            transport_security=security,
            session_idle_timeout=limits.session_seconds,
            max_sessions=limits.sessions + limits.connections,  # each session in use has a connection
        )
        answering = _CountedCalls(Sessions(inner, limits.sessions))
        app = _Guarded(answering, token)
        if listening:
            listening(f"http://{names[0]}/mcp")
        await _Server(_config(app, limits), answering).serve(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setblocking(False)
    return listener


def _config(app: ASGIApp, limits: HttpLimits) -> uvicorn.Config:
    connections = Connections(limits.connections, limits.request_seconds)
    return uvicorn.Config(
        app,
        http=partial(HttpConnection, connections),  # type: ignore[arg-type]  # uvicorn only calls it, like a class
        log_config=None,  # the application configures logging
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,  # a client may never finish its request
    )


class _CountedCalls:
    """Passes on requests, and counts the calls in progress: the POSTs that have arrived whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.calls = 0
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self.is_ending:
            await Response(status_code=503, headers={"Connection": "close"})(scope, receive, send)
            return
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body") and not arrived:
                arrived = 1
                self.calls += arrived
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self.calls -= arrived


class _Server(uvicorn.Server):
    """A server that answers the calls in progress before it ends; a second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, answering: _CountedCalls) -> None:
        super().__init__(config)
        self._answering = answering
        self._end: Callable[[], None] | None = None
        self._latest = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse further calls; `on_tick` ends the server, because `should_exit` also ends the streams of answers."""
        end = partial(super().handle_exit, sig, frame)
        if self._end:
            end()
            return
        self._end, self._answering.is_ending = end, True
        self._latest = time.monotonic() + _SECONDS_TO_ANSWER

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture SIGHUP, too, unless it is ignored, as by ``nohup``."""
        with super().capture_signals(), _handling_hangups(self.handle_exit):
            yield

    async def on_tick(self, counter: int) -> bool:
        if self._end and not (self._answering.calls and time.monotonic() < self._latest):
            self._end()
        return await super().on_tick(counter)


@contextmanager
def _handling_hangups(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    number = getattr(signal, "SIGHUP", None)
    is_main = threading.current_thread() is threading.main_thread()
    if number is None or not is_main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class _Guarded:
    """Passes on the requests with the token, and answers all others with 401."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_shown(scope["headers"]):
            await self._app(scope, receive, send)
        else:
            refused = Response(status_code=401, headers={"WWW-Authenticate": 'Bearer realm="agent-memory"'})
            await refused(scope, receive, send)

    def _is_shown(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
