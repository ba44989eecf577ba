"""Connections of HTTP clients, with limits on their number and on the time to send a request or read an answer.

uvicorn has no such time limit: a client that sends half a request, or reads half an answer, would keep its connection
forever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_RECEIVED: Final = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)


@dataclass(slots=True)
class Connections:
    """The limits of one server's connections.

    Attributes:
        most: the most connections; with one more, the connection that has waited longest for its request is closed.
        seconds: the time limit for a whole request to arrive, and for a client that reads nothing of an answer.
        receiving: the connections with an incomplete request, the oldest first.
    """

    most: int
    seconds: float
    receiving: dict[HttpConnection, None] = field(default_factory=dict)


class HttpConnection(H11Protocol):
    """One client's connection; it is closed when it exceeds a limit."""

    def __init__(self, limits: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self._limits.most:
            next(iter(self._limits.receiving)).end()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing() or self.conn.their_state in _RECEIVED:
            self._stop_awaiting_request()
        else:
            self._await_request()

    def end(self) -> None:
        """Close the connection at once and drop unsent data."""
        self._stop_awaiting_request()
        self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the body of a pipelined request
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_awaiting_request()
        self._stop(self._sending)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending = self._end_later()

    def resume_writing(self) -> None:
        self._stop(self._sending)
        super().resume_writing()

    def _await_request(self) -> None:
        if self not in self._limits.receiving:
            self._limits.receiving[self] = None
            self._receiving = self._end_later()

    def _stop_awaiting_request(self) -> None:
        self._limits.receiving.pop(self, None)
        self._stop(self._receiving)

    def _end_later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self._limits.seconds, self.transport.abort)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer:
            timer.cancel()
