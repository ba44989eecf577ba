"""A body that never ends is read up to a bound: of an error the status decides, and a listing is refused in words."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import product
from typing import Any

import pytest

from agent_memory import FileOperationError, OutcomeUnknownError
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory_s3 import S3Backend
from agent_memory_s3._replies import ANSWER_BYTES, ERROR_BYTES
from tests.object_store.listeners import Listener, options, page
from tests.support.sizes import also, long_except

BUFFERED = 16 << 20
"""More bytes than the buffers of two sockets hold."""
MOST = 512 << 20
CHUNK = b"x" * (1 << 16)
FRAMINGS = {
    "chunks": ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK)),
    "a length": (f"Content-Length: {MOST * 2}", CHUNK),
    "until the end": ("Connection: close", CHUNK),
}
EMPTY = b"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
FILE = Key.tree().join("a.md")
framed = long_except(("chunks",), "framing", {name: name for name in FRAMINGS})


class Endless:
    """A server whose answers to requests of one kind never end; it lists no files."""

    def __init__(self, begins: bytes, status: str, framing: str) -> None:
        self._begins = begins
        header, self._chunk = FRAMINGS[framing]
        self._head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\n{header}\r\n\r\n".encode()
        self.sent = 0
        self.requests = 0

    def talk(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (more := connection.recv(1 << 16)):
            head += more
        if not head.startswith(self._begins):
            connection.sendall(page(body=EMPTY))
            return
        self.requests += 1
        connection.sendall(self._head)
        while self.sent < MOST:
            connection.sendall(self._chunk)
            self.sent += len(CHUNK)


@contextmanager
def endless(begins: bytes, status: str, framing: str) -> Iterator[tuple[Endless, Any]]:
    server = Endless(begins, status, framing)
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        listener = Listener(bound, server.talk)
        threading.Thread(target=listener.serve, daemon=True).start()
        try:
            yield server, S3Backend("b", "", options("s3fs", f"http://{listener.address}"))
        finally:
            with suppress(OSError):
                bound.shutdown(socket.SHUT_RDWR)


CALLS: dict[str, tuple[bytes, tuple[Any, ...]]] = {
    "read": (b"GET", (FILE,)),
    "write": (b"PUT", (FILE, b"x")),
    "list": (b"GET", (Key.tree(),)),
}


@pytest.mark.parametrize(
    ("verb", "framing"),
    [
        pytest.param(verb, framing, marks=() if number % 4 == 0 else pytest.mark.long)
        for number, (verb, framing) in enumerate(product(CALLS, FRAMINGS))
    ],
)
def test_an_error_is_told_by_its_status_and_its_body_is_not_read_to_the_end(verb: str, framing: str) -> None:
    begins, arguments = CALLS[verb]
    with endless(begins, "403 Forbidden", framing) as (server, backend):
        with pytest.raises(FileOperationError, match="access denied by S3") as failed:
            BlockingStore(backend).call(getattr(backend, verb), *arguments)
        assert not isinstance(failed.value, OutcomeUnknownError)
        assert server.requests == 1
        assert server.sent < ERROR_BYTES + BUFFERED


@framed
def test_a_listing_that_never_ends_is_refused(framing: str) -> None:
    with endless(b"GET", "200 OK", framing) as (server, backend):
        with pytest.raises(FileOperationError, match="not S3's: its body has more than 16 MiB"):
            BlockingStore(backend).call(backend.list, Key.tree())
        assert server.requests == 1
        assert server.sent < ANSWER_BYTES + BUFFERED


@framed
def test_the_outcome_of_a_write_is_unknown_if_its_answer_never_ends(framing: str) -> None:
    with endless(b"PUT", "200 OK", framing) as (server, backend):
        with pytest.raises(OutcomeUnknownError, match="more than 16 MiB"):
            BlockingStore(backend).call(backend.write, FILE, b"x")
        assert server.sent < ANSWER_BYTES + BUFFERED


@pytest.mark.parametrize("verb", ["read", *also(["stat"])])
def test_an_object_may_have_more_bytes_than_an_answer(verb: str, ministack: Any) -> None:
    backend = ministack.new_backend()
    store = BlockingStore(backend)
    store.call(backend.write, FILE, b"x" * (ANSWER_BYTES + 1))
    assert store.call(getattr(backend, verb), FILE).size == ANSWER_BYTES + 1
