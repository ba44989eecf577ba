"""Serving many clients over streamable HTTP: on this host alone, and only to who shows the token."""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_memory.mcp_server._connections import Connection, Connections
from agent_memory.mcp_server._sessions import Sessions

LOOPBACK: Final = ("127.0.0.1", "::1")
"""The addresses that `serve_http` listens on; nobody reaches them from another host."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
_SECONDS_TO_END: Final = 2


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How much clients over HTTP may hold, and for how long.

    Attributes:
        session_seconds: a session without a request or an open stream ends after this time.
        sessions: of more than so many idle sessions, those least recently used end.
        connections: with more than so many connections, the one that has waited longest for its request ends.
        request_seconds: how long a request may take to arrive, and how long a client may read nothing of an answer.
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
    """Serve streamable HTTP at ``/mcp`` until the process is told to end.

    Every request shows ``Authorization: Bearer <token>`` or is answered with 401 and nothing else. The ``Host`` and
    ``Origin`` of a request are this address or ``localhost``, so that no web page reaches it by another name.

    Args:
        server: what to serve.
        token: 16 or more of ``A-Za-z0-9._~+/-``.
        host: one of `LOOPBACK`.
        port: 0 is any that is free.
        listening: called with the URL once clients can connect.
        limits: how much clients may hold, and for how long.

    Raises:
        ValueError: another host, or a token that is none.
        OSError: the port is taken.
    """
    if host not in LOOPBACK:
        raise ValueError(f"the host is {' or '.join(LOOPBACK)}, not {host!r}: this server is for this host alone")
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token is 16 or more of A-Z a-z 0-9 . _ ~ + / -")
    with _listener(host, port) as listener:
        port = listener.getsockname()[1]
        names = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", f"localhost:{port}"]
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
        inner = server.streamable_http_app(
            transport_security=security,
            session_idle_timeout=limits.session_seconds,
            max_sessions=limits.sessions + limits.connections,  # each session in use has a connection
        )
        app = _Guarded(Sessions(inner, limits.sessions), token)
        if listening:
            listening(f"http://{names[0]}/mcp")
        await uvicorn.Server(_config(app, limits)).serve(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setblocking(False)
    return listener


def _config(app: ASGIApp, limits: HttpLimits) -> uvicorn.Config:
    connections = Connections(limits.connections, limits.request_seconds)
    return uvicorn.Config(
        app,
        http=partial(Connection, connections),  # type: ignore[arg-type]  # uvicorn calls it, as it would a class
        log_config=None,  # the application decides what is shown
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,  # a client may never finish its request
    )


class _Guarded:
    """Passes on the requests that show the token."""

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
