"""``agent-memory mcp`` as processes for the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.forked import popen

TOKEN = "correct-horse-battery"
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "tester", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass
class Server:
    """A server over HTTP: its URL, its token and its process."""

    url: str
    token: str
    process: subprocess.Popen[bytes]

    def post(self, message: object = INITIALIZE, **headers: str) -> httpx2.Response:
        shown = {**ACCEPT, "Authorization": f"Bearer {self.token}", **headers}
        with httpx2.Client(timeout=60) as client:
            return client.post(self.url, json=message, headers={key: value for key, value in shown.items() if value})


@contextmanager
def started(
    command: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None, *, real: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with `tests.support.forked.popen`, and kill it at the end."""
    with popen(command, env=env, cwd=cwd, real=real) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def launched(
    script: str, *args: str, token: str | None = TOKEN, cwd: Path | None = None, real: bool = False
) -> Iterator[Server]:
    """A server over HTTP, on any free port; it is killed at the end."""
    command = [script, "--url", "root", "--json", "mcp", "--http", *args]
    if token:
        command += ["--token-env", "MEMORY_TOKEN"]
    with started(command, env={**os.environ, "MEMORY_TOKEN": token or ""}, cwd=cwd, real=real) as process:
        assert process.stderr
        told = json.loads(process.stderr.readline())
        yield Server(told["url"], told.get("token", token), process)


@contextmanager
def serving(
    script: str, *args: str, token: str | None = TOKEN, cwd: Path | None = None, real: bool = False
) -> Iterator[Server]:
    """A server over HTTP that must end silently on an interrupt."""
    with launched(script, *args, token=token, cwd=cwd, real=real) as server:
        yield server
        server.process.send_signal(signal.SIGINT)
        output, errors = server.process.communicate(timeout=60)
    assert (server.process.returncode, output, errors) == (130, b"", b"")


def shared_server(directories: pytest.TempPathFactory, *, real: bool = False) -> Iterator[Server]:
    """A server for many tests; each test must leave its memory empty."""
    script = str(Path(sysconfig.get_path("scripts"), "agent-memory"))
    with serving(script, cwd=directories.mktemp("served"), real=real) as server:
        yield server
