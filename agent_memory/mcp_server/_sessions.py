"""Sessions of HTTP clients; idle sessions end when there are too many."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADER: Final = b"mcp-session-id"


class Sessions:
    """Passes on requests, and ends the least recently used idle sessions when there are more than ``most``.

    A session with a request in progress, or with an open stream, is not idle. The SDK's own limit refuses new sessions
    instead: clients that did not end their sessions would lock out others until these sessions expire.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._open: dict[bytes, None] = {}  # the least recently used first
        self._requests = Counter[bytes]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = _session(scope["headers"])

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._see(session, scope["method"], message)
            await send(message)

        self._requests[session] += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._requests.subtract([session])
            if not self._requests[session]:
                del self._requests[session]
            self._use(session)
        if len(self._open) > self._most:
            await self._end_idle(scope)

    def _see(self, session: bytes, method: str, start: Message) -> None:
        if start["status"] == 404 or (method == "DELETE" and start["status"] < 400):
            self._open.pop(session, None)
        elif not session and (opened := _session(start.get("headers", []))) and start["status"] < 400:
            self._open[opened] = None

    def _use(self, session: bytes) -> None:
        if session in self._open:
            del self._open[session]
            self._open[session] = None

    async def _end_idle(self, scope: Scope) -> None:
        idle = [session for session in self._open if session not in self._requests]
        for session in idle[: max(0, len(idle) - self._most)]:
            self._open.pop(session, None)
            headers = [(name, value) for name, value in scope["headers"] if name == b"host"]
            await self._app({**scope, "method": "DELETE", "headers": [*headers, (_HEADER, session)]}, _nothing, _unsent)


def _session(headers: list[tuple[bytes, bytes]]) -> bytes:
    return next((value for name, value in headers if name.lower() == _HEADER), b"")


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unsent(message: Message) -> None:
    """Drop the answer; the session's client gets a 404 for its next request."""
