"""The end of ``agent-memory mcp --http`` by signals, with an append that waits for the lock of its file."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import records
from agent_memory.cli.auditing import log_of_store
from tests.backends.local.test_locks import end, held_by_another_process
from tests.support.mcp_processes import ACCEPT, TOKEN, Server, launched

pytestmark = pytest.mark.usefixtures("default_hangup")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the file, so that an append waits."""
    with AgentMemoryService(tmp_path / "root") as service:
        service.write_memory_file("default", "a.md", "x")
    holder = held_by_another_process("file", tmp_path / "root/agent_memory/default/a.md")
    yield holder
    end(holder)


@contextmanager
def appending(server: Server) -> Iterator[HTTPConnection]:
    """A connection whose append the server has begun: it answers a request that was sent later."""
    params = {"name": "append", "arguments": {"path": "/memories/a.md", "text": "y"}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    session = {"Mcp-Session-Id": server.post().headers["Mcp-Session-Id"]}
    shown = {**ACCEPT, **session, "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with closing(HTTPConnection(urlsplit(server.url).netloc, timeout=60)) as connection:
        connection.request("POST", "/mcp", json.dumps(message), shown)
        assert server.post({"jsonrpc": "2.0", "id": 3, "method": "ping"}, **session).status_code == 200
        yield connection


def wait_until_closed(server: Server) -> None:
    address, clock = urlsplit(server.url), threading.Event()
    for _ in range(600):
        try:
            socket.create_connection((str(address.hostname), address.port or 0), 60).close()
        except ConnectionError:
            return
        clock.wait(0.05)
    pytest.fail("the server accepts connections")


def content(root: Path) -> str:
    with AgentMemoryService(root) as service:
        return service.read_memory_file("default", "a.md")


def recorded(root: Path) -> list[str]:
    location = log_of_store(str(root), {})
    try:
        return [str(each["outcome"]) for each in records(location) if each.get("path") == "a.md"]
    finally:
        location.store.close()


def test_an_append_that_has_begun_is_answered_and_recorded_after_sigterm(
    script: str, holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    with launched(script) as server, appending(server) as connection:
        server.process.send_signal(signal.SIGTERM)
        wait_until_closed(server)
        assert server.process.poll() is None
        end(holder)
        answer = connection.getresponse()
        assert (answer.status, b"The text was added" in answer.read()) == (200, True)
        output, errors = server.process.communicate(timeout=60)
        assert (server.process.returncode, output, errors) == (0, b"", b"")
    assert content(tmp_path / "root") == "x\ny"
    assert recorded(tmp_path / "root") == ["ok"]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("holder")
def test_a_second_signal_cuts_off_an_append_that_waits(
    script: str, tmp_path: Path, second: signal.Signals, code: int
) -> None:
    with launched(script) as server, appending(server) as connection:
        server.process.send_signal(signal.SIGTERM)
        wait_until_closed(server)
        server.process.send_signal(second)
        with pytest.raises(ConnectionError):
            connection.getresponse()
        assert server.process.wait(60) == code
    assert content(tmp_path / "root") == "x"
    assert "ok" not in recorded(tmp_path / "root")


@pytest.mark.usefixtures("holder")
def test_an_append_is_cut_off_when_the_graceful_timeout_is_over(script: str, tmp_path: Path) -> None:
    with launched(script, "--graceful-timeout", "1") as server, appending(server):
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert content(tmp_path / "root") == "x"
    assert "ok" not in recorded(tmp_path / "root")
