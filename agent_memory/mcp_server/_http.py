"""Serves many clients over streamable HTTP, on this host only, and only with the token."""

from __future__ import annotations

import hmac
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_memory.mcp_server._disconnects import CancelledByDisconnect

LOOPBACK: Final = ("127.0.0.1", "::1")
"""The addresses that `serve_http` can listen on; they cannot be reached from another host."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
_SECONDS_TO_ANSWER: Final = 60
"""The seconds that calls in progress may take when the server ends; as the timeout of an operation."""
MAX_SESSIONS: Final = 1000
"""The most open sessions; a request that opens one more is answered with 503. Idle sessions end after 30 minutes."""
MAX_CONNECTIONS: Final = 200
"""The most connections and requests in progress; a request on one more is answered with 503."""


async def serve_http(
    server: MCPServer[Any],
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    listening: Callable[[str], None] | None = None,
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
            json_response=True,  # a stream of events would end with the server, before the answer of its call
            transport_security=security,
            max_sessions=MAX_SESSIONS,
        )
        config = uvicorn.Config(
            _WithToken(CancelledByDisconnect(inner), token),
            log_config=None,  # the application configures logging
            access_log=False,
            ws="none",
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_ANSWER,
        )
        if listening:
            listening(f"http://{names[0]}/mcp")
        uvicorn_server = _Server(config)
        with _ended_by_hangup(uvicorn_server):
            await uvicorn_server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that a second interrupt ends, also while a client keeps its connection open.

    From Python 3.12 on, the event loop waits until all connections are closed, so they are aborted.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal to end; called in the main thread, between any two steps of the event loop."""
        super().handle_exit(sig, frame)
        for server in getattr(self, "servers", ()) if self.force_exit else ():  # there are none before the start
            server.get_loop().call_soon_threadsafe(self._abort_connections)

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setblocking(False)
    return listener


@contextmanager
def _ended_by_hangup(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGHUP end the server as SIGTERM does, unless it is ignored, as by ``nohup``; then raise it again."""
    number = getattr(signal, "SIGHUP", None)
    is_main = threading.current_thread() is threading.main_thread()
    if number is None or not is_main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    received: list[int] = []

    def end(received_number: int, _: FrameType | None) -> None:
        received.append(received_number)
        server.should_exit = True

    before = signal.signal(number, end)
    try:
        yield
    finally:
        signal.signal(number, before)
    if received:
        signal.raise_signal(number)


class _WithToken:
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
