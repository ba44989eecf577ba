"""Limits of HTTP clients, with real sockets: too many sessions, partial requests, and too many connections.

The limits are small here.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.mcp_clients import over_http
from tests.support.mcp_processes import INITIALIZE, TOKEN, Server, started
from tests.support.sizes import long_except

PROGRAM = """
import asyncio
import contextlib
import json
import pathlib
import sys
from agent_memory import AsyncAgentMemory
from agent_memory.mcp_server import _http, mcp_server, serve_http
from agent_memory.runtime import serving

server = mcp_server(AsyncAgentMemory.open("memory://"))

@server.tool()
async def wait(file: str) -> str:
    while not pathlib.Path(file).exists():
        await asyncio.sleep(0.01)
    return "waited"

@server.tool()
def much() -> str:
    return "x" * 50_000_000

def listening(url):
    print(url, flush=True)

for module in (_http, serving):
    vars(module).update(json.loads(sys.argv[1]))
with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(serve_http(server, token="correct-horse-battery", listening=listening))
"""
HEAD = ["POST /mcp HTTP/1.1", "Host: {host}", f"Authorization: Bearer {TOKEN}", "Content-Type: application/json"]


@contextmanager
def serving(**limits: int) -> Iterator[Server]:
    with started([sys.executable, "-c", PROGRAM, json.dumps(limits)]) as process:
        assert process.stdout
        yield Server(process.stdout.readline().decode().strip(), TOKEN, process)


def connect(server: Server, receive_buffer: int | None = None) -> socket.socket:
    address = urlsplit(server.url)
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(60)
    client.connect((address.hostname, address.port))
    return client


def head(server: Server, *more: str) -> bytes:
    lines = [line.format(host=urlsplit(server.url).netloc) for line in HEAD]
    return "\r\n".join([*lines, *more]).encode()


def is_ended(client: socket.socket) -> bool:
    """Wait until the server ends a connection; the socket's timeout fails the test otherwise."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def status(server: Server, session: str) -> int:
    return server.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}, **{"Mcp-Session-Id": session}).status_code


def opened(server: Server) -> str:
    answer = server.post()
    assert answer.status_code == 200
    session: str = answer.headers["Mcp-Session-Id"]
    return session


def test_with_too_many_sessions_no_other_is_opened_until_one_ends() -> None:
    with serving(MAX_SESSIONS=3) as server:
        sessions = [opened(server) for _ in range(3)]
        assert server.post().status_code == 503
        assert [status(server, session) for session in sessions] == [200] * 3
        headers = {"Authorization": f"Bearer {TOKEN}", "Mcp-Session-Id": sessions[0]}
        assert httpx2.delete(server.url, headers=headers, timeout=60).status_code == 200
        assert opened(server)


def wait_until(condition: Callable[[], bool], pause: float) -> None:
    clock = threading.Event()
    for _ in range(60):
        clock.wait(pause)
        if condition():
            return
    pytest.fail("it never came true")


HALVES: dict[str, Callable[[Server], bytes]] = {
    "nothing": lambda _: b"",
    "blank lines": lambda _: b"\r\n\r\n",
    "half a request line": lambda _: b"POST /m",
    "half the headers": lambda server: head(server, "Content-Le"),
    "no body": lambda server: head(server, "Content-Length: 100", "", ""),
    "half a body": lambda server: head(server, "Content-Length: 100", "", "") + b'{"jsonrpc":',
    "half a chunk": lambda server: head(server, "Transfer-Encoding: chunked", "", "") + b"ff\r\n{",
    "no token and half a body": lambda _: b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    "a second request by halves": lambda server: (
        head(server, "Content-Length: 2", "", "") + b"{}" + head(server, "Content-Length: 100", "", "") + b"{"
    ),
}


@long_except(("nothing", "half the headers", "half a body"), "half", HALVES)
def test_a_partial_request_does_not_keep_others_from_being_served(half: Callable[[Server], bytes]) -> None:
    with serving() as server, connect(server) as client:
        client.sendall(half(server))
        assert opened(server)


@long_except(("nothing", "half the headers", "a second request by halves"), "half", HALVES)
def test_a_request_that_does_not_arrive_whole_in_time_ends_its_connection(half: Callable[[Server], bytes]) -> None:
    with serving(MAX_CONNECTIONS=3, SECONDS_TO_ASK=3) as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(3)]
        for client in clients:
            client.sendall(half(server))
        assert [is_ended(client) for client in clients] == [True] * 3
        assert opened(server)


@pytest.mark.asyncio
async def test_a_call_may_take_longer_than_a_request_to_arrive(tmp_path: Path) -> None:
    with serving(SECONDS_TO_ASK=3, SECONDS_TO_READ=3) as server:
        async with over_http(server.url, TOKEN) as client:
            call = asyncio.create_task(client.call_tool("wait", {"file": str(tmp_path / "file")}))
            await asyncio.sleep(6)
            (tmp_path / "file").touch()
            assert "waited" in str(await call)


def test_clients_that_do_not_read_are_ended() -> None:
    with serving(MAX_CONNECTIONS=3, SECONDS_TO_READ=10) as server, ExitStack() as stack:
        session = opened(server)
        params = {"name": "much", "arguments": {}}
        body = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}).encode()
        headers = (f"Mcp-Session-Id: {session}", "Accept: application/json, text/event-stream")
        for _ in range(2):
            client = stack.enter_context(connect(server, 4096))
            client.sendall(head(server, *headers, f"Content-Length: {len(body)}", "", "") + body)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert server.post().status_code == 503
        wait_until(lambda: server.post().status_code == 200, pause=0.5)


def test_headers_without_an_end_are_refused() -> None:
    with serving() as server, connect(server) as client:
        with suppress(ConnectionError):
            client.sendall(b"POST /mcp HTTP/1.1\r\nX: " + b"x" * (1 << 20))
        assert is_ended(client)
        assert opened(server)


def test_with_too_many_connections_a_request_is_answered_with_503_until_one_ends() -> None:
    with serving(MAX_CONNECTIONS=10) as server:
        with ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(connect(server)).sendall(b"POST /mcp HTTP/1.1\r\nX: ")
            wait_until(lambda: server.post().status_code == 503, pause=0.1)
        wait_until(lambda: server.post().status_code == 200, pause=0.1)


def test_a_body_that_is_too_large_is_refused() -> None:
    with serving() as server:
        message = {**INITIALIZE, "more": "x" * (4 * 1024 * 1024)}
        assert server.post(message).status_code == 413
        assert opened(server)


@pytest.mark.asyncio
@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGHUP, -signal.SIGHUP, marks=pytest.mark.long)]
)
async def test_a_server_that_ends_answers_the_calls_that_have_begun_and_accepts_no_others(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    answer = cast(Any, None)
    with serving() as server, connect(server) as partial_request:
        partial_request.sendall(head(server, "Content-Le"))
        with suppress(Exception):  # the session cannot be ended when the server is gone
            async with over_http(server.url, TOKEN, "legacy") as client:
                call = asyncio.create_task(client.call_tool("wait", {"file": str(tmp_path / "end")}))
                await client.call_tool("wait", {"file": str(tmp_path)})  # so the server has begun the call before
                server.process.send_signal(number)
                await asyncio.to_thread(wait_until, lambda: not accepts(server), pause=0.1)
                assert not call.done()
                (tmp_path / "end").touch()
                answer = await call
        assert answer.structured_content == {"result": "waited"}
        assert is_ended(partial_request)
        assert server.process.wait(60) == code  # a hangup is raised again


def accepts(server: Server) -> bool:
    address = urlsplit(server.url)
    try:
        socket.create_connection((address.hostname, address.port), 60).close()
    except ConnectionError:
        return False
    return True
