"""``agent-memory web`` as a process, and a browser's half of HTTP, for the tests."""

from __future__ import annotations

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
from urllib.parse import urlsplit

import httpx2

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

    def enter(self) -> httpx2.Client:
        """Use the link, and return the client, which has the cookie now."""
        assert self.client.get(self.link).status_code == 303
        return self.client

    def raw(self, request: bytes) -> bytes:
        """The whole answer to the bytes of a request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def pages(
    url: str, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, interrupted: bool = True
) -> Iterator[Pages]:
    """Serve a store until the end of the context; then the process must end silently on an interrupt."""
    command = [SCRIPT, "--url", url, "--json", *args, "web"] if "web" not in args else [SCRIPT, "--url", url, *args]
    with started(command, env={**os.environ, **(env or {})}, cwd=cwd) as process:
        assert process.stderr
        told = json.loads(process.stderr.readline())
        base = "{0.scheme}://{0.netloc}".format(urlsplit(told["link"]))
        with httpx2.Client(base_url=base, timeout=60) as client:
            yield Pages(told["link"], client, process)
        if interrupted:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            assert (process.returncode, output, errors) == (130, b"", b"")
