"""Serves the pages on this host until a signal ends the server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from agent_memory.audit import LogLocation
from agent_memory.runtime.serving import ended_by_hangup, graceful_server, listener
from agent_memory.service import AsyncAgentMemoryService
from agent_memory.web._access import WebAccess
from agent_memory.web._pages import web_app

_HOST: Final = "127.0.0.1"
_USUAL_PORT: Final = 80
MAX_REQUESTS: Final = 100
"""The most connections and requests in progress; a request on one more is answered with 503."""
SECONDS_TO_ANSWER: Final = 10
"""The seconds that requests in progress may take when the server ends."""


async def serve_web(
    service: AsyncAgentMemoryService,
    *,
    agent: str | None = None,
    log: LogLocation | None = None,
    allow_write: bool = False,
    port: int = 0,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve the pages on 127.0.0.1 until the process receives a signal to end.

    The first browser that opens the link within 60 seconds may use them; no other one may. SIGTERM ends this function;
    SIGINT, SIGHUP and a second signal, which ends the server at once, are raised again.

    Args:
        service: as `web_app`.
        agent: as `web_app`.
        log: as `web_app`.
        allow_write: as `web_app`.
        port: the port; 0 selects a free one.
        listening: called with the link once a browser can connect.

    Raises:
        InvalidAgentIdError: ``agent`` is not a valid id.
        OSError: the port is taken.
    """
    with listener(_HOST, port) as listening_socket:
        number = listening_socket.getsockname()[1]
        names = [f"{host}{port}" for host in (_HOST, "localhost") for port in _ports(number)]
        access = WebAccess(names, root=f"/{secrets.token_urlsafe(12)}")
        app = web_app(service, access, agent=agent, log=log, allow_write=allow_write)
        server = graceful_server(app, most_connections=MAX_REQUESTS, seconds_to_answer=SECONDS_TO_ANSWER)
        if listening:
            listening(f"http://{_HOST}:{number}{access.new_link()}")
        with ended_by_hangup(server):
            await server.serve(sockets=[listening_socket])
    server.raise_again()


def _ports(number: int) -> list[str]:
    """The ends of the names of a server; browsers leave the usual port out."""
    return [f":{number}", *([""] if number == _USUAL_PORT else [])]
