"""Listening sockets, and a server of uvicorn: a first signal ends it in order, a second one at once."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK: Final = 30.0
"""The seconds in which a whole request must arrive, from the beginning of its connection or the answer before."""
SECONDS_TO_READ: Final = 120.0
"""The seconds in which a client must read some of what it was sent; less than 64 KB may wait for it longer."""


class GracefulServer(uvicorn.Server):
    """A server that a second signal ends at once, also while a client keeps its connection open.

    From Python 3.12 on, the event loop waits until all connections are closed, so they are aborted.
    """

    ended_by: int | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn would raise it again
        """Handle a signal to end; called in the main thread, between any two steps of the event loop."""
        self.force_exit = self.should_exit
        self.should_exit, self.ended_by = True, sig
        for server in getattr(self, "servers", ()) if self.force_exit else ():  # there are none before the start
            server.get_loop().call_soon_threadsafe(self._abort_connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the server; uvicorn would let the calls of sessions go on after a second signal."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def raise_again(self) -> None:
        """Raise the last signal, so that the program ends as by it; but not SIGTERM alone, which is a normal end."""
        if self.ended_by is not None and (self.force_exit or self.ended_by != signal.SIGTERM):
            signal.raise_signal(self.ended_by)

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class PunctualHTTP(H11Protocol):
    """HTTP/1.1 that ends the connection of a client that does not ask, or does not read, in time.

    uvicorn's own timeout begins with the first answer, and ends with the first byte of the next request; it waits for
    ever for a client that does not read.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read a piece of a request."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        super().connection_lost(exc)
        self._end_wait()
        self._end_unread()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(SECONDS_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._end_unread()

    def _end_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_wait()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(SECONDS_TO_ASK, self.transport.abort)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def graceful_server(app: ASGIApp, *, most_connections: int, seconds_to_answer: int) -> GracefulServer:
    """Return a server of an application; it logs nothing and does not tell its name.

    Args:
        app: the application.
        most_connections: the most connections and requests in progress; a request on one more is answered with 503.
        seconds_to_answer: the seconds that calls in progress may take after the first signal.
    """
    return GracefulServer(
        uvicorn.Config(
            app,
            log_config=None,  # the application configures logging
            access_log=False,  # the address of a request can hold a token
            http=PunctualHTTP,  # httptools, which uvicorn would choose where it is installed, has no limit of headers
            ws="none",
            server_header=False,
            limit_concurrency=most_connections,
            timeout_graceful_shutdown=seconds_to_answer,
        )
    )


@contextmanager
def ended_by_hangup(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGHUP end the server as an interrupt does, unless it is ignored, as by ``nohup``."""
    number = getattr(signal, "SIGHUP", None)
    is_main = threading.current_thread() is threading.main_thread()
    if number is None or not is_main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, server.handle_exit)
    try:
        yield
    finally:
        signal.signal(number, before)


def listener(host: str, port: int) -> socket.socket:
    """Listen on an IP address; port 0 is a free one.

    Raises:
        OSError: the port is taken.
    """
    found = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setblocking(False)
    return found
