"""``agent-memory web`` as a process, and a browser's half of HTTP, for the tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx2
from starlette.types import ASGIApp

from agent_memory import AsyncAgentMemoryService
from agent_memory.web import WebAccess
from tests.support.mcp_processes import started

SCRIPT = str(Path(sysconfig.get_path("scripts"), "agent-memory"))


@dataclass
class Pages:
    """Running pages: their one-time link, a client without a session, and the process."""

    link: str
    client: httpx2.Client
    process: subprocess.Popen[bytes]

    @property
    def base(self) -> str:
        return "{0.scheme}://{0.netloc}".format(urlsplit(self.link))

    @property
    def port(self) -> int:
        return urlsplit(self.link).port or 0

    root: str = ""

    def enter(self) -> httpx2.Client:
        """Use the link, and return the client, which has the cookie now, and whose paths are below the root."""
        answer = self.client.get(self.link)
        assert answer.status_code == 303
        self.root = answer.headers["location"].removesuffix("/")
        self.client.base_url = f"{self.base}{self.root}"
        return self.client

    def raw(self, request: bytes) -> bytes:
        """The whole answer to the bytes of a request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


class InProcess:
    """A browser of pages in this process; its requests run in an event loop of its own."""

    def __init__(self, app: ASGIApp, access: WebAccess, service: AsyncAgentMemoryService) -> None:
        self._runner = asyncio.Runner()
        transport = httpx2.ASGITransport(app=app)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://memory.test")
        self.app = app
        self._access = access
        self._service = service

    def __enter__(self) -> Self:
        assert self.get(self._access.new_link()).status_code == 303
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.run(self._service.aclose())
        self._runner.close()

    def get(self, path: str) -> httpx2.Response:
        return self._runner.run(self._client.get(path))

    def post(self, path: str, fields: Mapping[str, str], origin: str = "http://memory.test") -> httpx2.Response:
        """Send a form, as the page of it would."""
        return self._runner.run(self._client.post(path, data=dict(fields), headers={"Origin": origin}))

    def text(self, path: str) -> str:
        """The text of a page, which must be there."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


@contextmanager
def pages(
    url: str, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, interrupted: bool = True
) -> Iterator[Pages]:
    """Serve a store until the end of the context; then the process must end silently on an interrupt."""
    command = [SCRIPT, "--url", url, "--json", *args, "web"] if "web" not in args else [SCRIPT, "--url", url, *args]
    with started(command, env={**os.environ, **(env or {})}, cwd=cwd) as process:
        assert process.stderr
        told = json.loads(process.stderr.readline())
        assert "link" in told, told
        base = "{0.scheme}://{0.netloc}".format(urlsplit(told["link"]))
        with httpx2.Client(base_url=base, timeout=60) as client:
            yield Pages(told["link"], client, process)
        if interrupted:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            assert (process.returncode, output, errors) == (130, b"", b"")
