"""Serves many clients over streamable HTTP, each with the token or with an access token of an OAuth issuer."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_memory.mcp_server._addresses import PATH, accepted_names, endpoint, local_name, require_address
from agent_memory.mcp_server._disconnects import CancelledByDisconnect
from agent_memory.mcp_server._health import Readiness, WithProbes
from agent_memory.mcp_server._oauth import BehindOAuth, OAuth, TokenReader
from agent_memory.runtime.serving import GracefulServer, ended_by_hangup, graceful_server, listener

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
SECONDS_TO_ANSWER: Final = 60
"""The seconds that calls in progress may take when the server ends; as the timeout of an operation."""
MAX_SESSIONS: Final = 1000
"""The most open sessions; a request that opens one more is answered with 503. Idle sessions end after 30 minutes."""
MAX_CONNECTIONS: Final = 200
"""The most connections and requests in progress; a request on one more is answered with 503."""


async def serve_http(
    server: MCPServer[Any],
    *,
    token: str | None = None,
    oauth: OAuth | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    public_url: str | None = None,
    ready: Callable[[], Awaitable[object]] | None = None,
    graceful_timeout: int = SECONDS_TO_ANSWER,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve streamable HTTP at ``/mcp`` until the process receives a signal to end; calls in progress are answered.

    A request needs ``Authorization: Bearer`` with the token, or with an access token that the issuer signed for this
    server; others are answered with 401. The ``Host`` and ``Origin`` of a request must be this address, ``localhost``
    or the public URL, so that no web page can use another name for it. ``/healthz`` and ``/readyz`` need nothing; with
    ``oauth``, neither do routes that a program added by the SDK's ``custom_route``.

    SIGTERM ends this function; SIGINT, SIGHUP and a second signal, which ends the server at once, are raised again.

    Args:
        server: the server to run.
        token: 16 or more characters of ``A-Za-z0-9._~+/-``. Give it or ``oauth``.
        oauth: the issuer of access tokens; their audience is the public URL, unless it has its own.
        host: the IP address to listen on.
        port: the port; 0 selects a free one.
        public_url: the URL that clients connect to; without a path, ``/mcp`` is added. Required for a ``host`` that
            other hosts can reach.
        ready: asks the storage; ``/readyz`` is 503 if this raises, or takes more than 2 seconds.
        graceful_timeout: the seconds that calls in progress may take after the first signal.
        listening: called with the URL on this host once clients can connect.

    Raises:
        ValueError: an argument is invalid.
        OSError: the port is taken.
    """
    if (token is None) == (oauth is None):
        raise ValueError("a server over HTTP needs a token or an OAuth issuer, and not both")
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError("the token must be 16 or more characters of A-Z a-z 0-9 . _ ~ + / -")
    if graceful_timeout < 1:
        raise ValueError(f"the graceful timeout must be 1 second or more, not {graceful_timeout}")
    require_address(host, public_url)
    public = None if public_url is None else endpoint(public_url)
    with listener(host, port) as listening_socket:
        local = local_name(host, listening_socket.getsockname()[1])
        url = f"http://{local}{PATH}"
        reader = TokenReader(oauth, public or url) if oauth else None
        inner = _application(server, accepted_names(local, public or url), reader)
        needed = [*([ready] if ready else []), *([reader.keys.require] if reader else [])]
        readiness = Readiness(needed)
        uvicorn_server = _server(
            BehindOAuth(inner, reader) if reader else _WithToken(inner, token or ""), readiness, graceful_timeout
        )
        if listening:
            listening(url)
        asking = asyncio.create_task(readiness.is_ready())  # logs at the start what the server lacks
        with ended_by_hangup(uvicorn_server):
            await uvicorn_server.serve(sockets=[listening_socket])
        asking.cancel()
    uvicorn_server.raise_again()


def _application(
    server: MCPServer[Any], names: TransportSecuritySettings, reader: TokenReader | None
) -> CancelledByDisconnect:
    lowlevel = server._lowlevel_server  # the method of MCPServer takes no authorization; that is set when it is made
    app = lowlevel.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,  # a stream of events would end with the server, before the answer of its call
        transport_security=names,
        max_sessions=MAX_SESSIONS,
        auth=reader.settings() if reader else None,
        token_verifier=reader,
        custom_starlette_routes=server._custom_starlette_routes,
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host of the request
    return CancelledByDisconnect(app)


def _server(app: ASGIApp, readiness: Readiness, graceful_timeout: int) -> GracefulServer:
    async def is_ready() -> bool:
        return not server.should_exit and await readiness.is_ready()

    server = graceful_server(
        WithProbes(app, is_ready), most_connections=MAX_CONNECTIONS, seconds_to_answer=graceful_timeout
    )
    return server


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
