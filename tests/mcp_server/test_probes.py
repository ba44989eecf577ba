"""``/healthz`` and ``/readyz`` of a real server: a storage that fails, hangs or is asked often; the end."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.mcp_processes import TOKEN, Server, started

PROGRAM = """
import asyncio, json, pathlib, sys, time
from agent_memory import AsyncAgentMemory
from agent_memory.mcp_server import _health, mcp_server, serve_http

folder = pathlib.Path(sys.argv[1])
vars(_health).update(json.loads(sys.argv[2]))
server = mcp_server(AsyncAgentMemory.open("memory://"))

@server.tool()
async def block(file: str) -> str:
    (folder / "blocking").touch()
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    return "blocked"

async def ready():
    with (folder / "asked").open("a") as asked:
        asked.write("x")
    while (folder / "slow").exists():
        await asyncio.sleep(0.01)
    if (folder / "failing").exists():
        raise OSError(f"{folder} failed")

def listening(url):
    print(url, flush=True)

asyncio.run(serve_http(server, token="correct-horse-battery", ready=ready, listening=listening))
"""


@contextmanager
def serving(folder: Path, **seconds: float) -> Iterator[Server]:
    with started([sys.executable, "-c", PROGRAM, str(folder), json.dumps(seconds)]) as process:
        assert process.stdout
        yield Server(process.stdout.readline().decode().strip(), TOKEN, process)


def probe(server: Server, path: str, method: str = "GET") -> tuple[int, bytes]:
    base = server.url.removesuffix("/mcp")
    with httpx2.Client(timeout=60) as client:
        answer = client.request(method, f"{base}{path}", headers={"Host": "10.0.0.1"})  # as probes send it
    return answer.status_code, answer.content


def wait_until(condition: Callable[[], bool]) -> None:
    clock = threading.Event()
    for _ in range(600):
        if condition():
            return
        clock.wait(0.05)
    pytest.fail("it never came true")


def test_probes_need_no_token_and_tell_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for path in ("/healthz", "/readyz"):
            assert probe(server, path) == (200, b"ok")
            assert probe(server, path, "HEAD") == (200, b"")
            for method in ("POST", "DELETE", "OPTIONS"):
                assert probe(server, path, method) == (405, b"")
        for path in ("/healthz/", "//healthz", "/readyz/x", "/healthz/../mcp", "/readyz%2f"):
            assert probe(server, path)[0] == 401


def test_a_server_whose_storage_fails_is_alive_and_not_ready_until_it_answers_again(tmp_path: Path) -> None:
    with serving(tmp_path, CACHED_SECONDS=0) as server:
        (tmp_path / "failing").touch()
        wait_until(lambda: probe(server, "/readyz")[0] == 503)
        assert probe(server, "/readyz") == (503, b"not ready")
        assert probe(server, "/healthz") == (200, b"ok")
        (tmp_path / "failing").unlink()
        wait_until(lambda: probe(server, "/readyz") == (200, b"ok"))


def test_a_server_whose_storage_does_not_answer_is_not_ready_and_asks_it_only_once(tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    with serving(tmp_path, READY_SECONDS=0.05) as server:
        for _ in range(5):
            assert probe(server, "/readyz") == (503, b"not ready")
        assert probe(server, "/healthz") == (200, b"ok")
        assert (tmp_path / "asked").read_text() == "x"
        (tmp_path / "slow").unlink()
        wait_until(lambda: probe(server, "/readyz")[0] == 200)


def test_many_probes_ask_the_storage_once(tmp_path: Path) -> None:
    with serving(tmp_path, CACHED_SECONDS=600) as server:
        assert [probe(server, "/readyz")[0] for _ in range(20)] == [200] * 20
        assert (tmp_path / "asked").read_text() == "x"


def test_a_server_is_not_ready_from_the_first_signal_on(tmp_path: Path) -> None:
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
               "params": {"name": "block", "arguments": {"file": str(tmp_path / "go")}}}  # fmt: skip
    with serving(tmp_path) as server:
        with closing(HTTPConnection(urlsplit(server.url).netloc, timeout=60)) as connection:
            connection.request("GET", "/readyz")
            assert answered(connection) == (200, b"ok")
            session = {"Mcp-Session-Id": server.post().headers["Mcp-Session-Id"]}
            calling = threading.Thread(target=lambda: server.post(message, **session))
            calling.start()
            wait_until((tmp_path / "blocking").exists)  # the server reads the next request only after the signal
            server.process.send_signal(signal.SIGTERM)
            connection.request("GET", "/readyz")
            (tmp_path / "go").touch()
            assert told(connection) in ((503, b"not ready"), "closed")
        calling.join()
        assert server.process.wait(60) == 0


def told(connection: HTTPConnection) -> tuple[int, bytes] | str:
    """The answer; or "closed", for an ending server closes idle connections, also one with a request not yet read."""
    try:
        return answered(connection)
    except ConnectionError:
        return "closed"


def answered(connection: HTTPConnection) -> tuple[int, bytes]:
    answer = connection.getresponse()
    return answer.status, answer.read()
