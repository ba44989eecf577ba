"""Sockets that are no S3 server, as the targets of wrong endpoints."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tests.support.servers import KEY, SECRET

Talk = Callable[[socket.socket], None]
_TLS = b"\x16"
"""The first byte that a TLS client sends."""
PAGE = b"<!DOCTYPE html>\n<html><body>Log in</body></html>"


class Listener:
    """A listening socket that serves its clients in its own threads.

    Attributes:
        address: host and port.
        heard: the first bytes of each connection.
    """

    def __init__(self, listening: socket.socket, talk: Talk) -> None:
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self.heard: list[bytes] = []
        self._listening = listening
        self._talk = talk

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # the socket was closed
                return
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with closing(connection):
            try:
                connection.settimeout(10)
                self._talk(connection)
            except OSError:
                pass


@contextmanager
def listening(answer: Callable[[bytes], bytes], context: ssl.SSLContext | None = None) -> Iterator[Listener]:
    """Answer the head of each request and close the connection; send nothing for an empty answer."""

    def talk(connection: socket.socket) -> None:
        try:
            served = context.wrap_socket(connection, server_side=True) if context else connection
        except ssl.SSLError:
            listener.heard.append(b"")
            raise
        with closing(served):
            head = b""
            while b"\r\n\r\n" not in head and head[:1] != _TLS and (more := served.recv(65536)):
                head += more
            listener.heard.append(head)
            served.sendall(answer(head))
            served.shutdown(socket.SHUT_WR)
            while served.recv(65536):  # unread bytes would reset the connection and lose the answer
                pass

    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        listener = Listener(bound, talk)
        threading.Thread(target=listener.serve, daemon=True).start()
        try:
            yield listener
        finally:
            bound.shutdown(socket.SHUT_RDWR)


def page(status: str = "200 OK", body: bytes = PAGE, *headers: str) -> bytes:
    """An HTTP answer."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/html", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def options(engine: str, endpoint: str, **more: object) -> dict[str, object]:
    """The storage options for an engine and an endpoint."""
    if engine == "s3fs":
        return {"endpoint_url": endpoint, "key": KEY, "secret": SECRET, **more}
    return {"engine": engine, "endpoint": endpoint, "access_key_id": KEY, "secret_access_key": SECRET, **more}
