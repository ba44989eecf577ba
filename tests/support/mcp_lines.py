"""A client of ``agent-memory mcp`` over stdio that sends any bytes and reads each answer, without an SDK."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.mcp_processes import INITIALIZE, started

_SECONDS = 60
PROGRAM = """
import asyncio
import sys
from agent_memory import AsyncAgentMemory
from agent_memory.mcp_server import mcp_server, serve_stdio

server = mcp_server(AsyncAgentMemory.open("memory://"))

@server.tool()
async def wait() -> str:
    await asyncio.sleep(3600)
    return ""

@server.tool()
async def slow() -> str:
    await asyncio.sleep(0.2)
    return "done"

@server.tool()
def half_a_character() -> str:
    return chr(0xD800)

asyncio.run(serve_stdio(server, max_line_bytes=int(sys.argv[1])))
"""


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Whether a descriptor is ready in time; `select.select` takes no number above 1023."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


class Lines:
    """A server's stdin and stdout, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._rest = b""
        self._pings = 0

    def send(self, line: bytes) -> None:
        data = memoryview(line + b"\n")
        while data:
            data = data[os.write(self._in, data) :]

    def can_send(self, seconds: float) -> bool:
        """Whether the server has read all sent bytes within the given seconds."""
        return _is_ready(self._in, select.POLLOUT, seconds)

    def receive(self) -> dict[str, Any]:
        """The next message of the server; fails after a timeout."""
        deadline = time.monotonic() + _SECONDS
        while b"\n" not in self._rest:
            assert _is_ready(self._out, select.POLLIN, max(0, deadline - time.monotonic())), "there is no answer"
            block = os.read(self._out, 1 << 20)
            assert block, "the server ended"
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close the server's stdin."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.stdin = None

    def discard(self) -> None:
        """Read the remaining output after the server has ended."""
        while os.read(self._out, 1 << 20):
            pass

    def answers(self, line: bytes, expected: int) -> list[dict[str, Any]]:
        """All answers to a line, at least ``expected``; a ping before and one after them must be answered."""
        found: list[dict[str, Any]] = []
        self.send(line)
        for _ in range(2):
            ping, is_answered = f"ping {self._pings}", False
            self._pings += 1
            self.send(b'{"jsonrpc":"2.0","id":"%s","method":"ping"}' % ping.encode())
            while not is_answered or len(found) < expected:
                message = self.receive()
                if message.get("id") == ping:
                    is_answered = True
                else:
                    found.append(message)
        return found


@contextmanager
def lines(max_line_bytes: int = 1_000_000) -> Iterator[Lines]:
    """An initialized server that must end without an error message."""
    with started([sys.executable, "-c", PROGRAM, str(max_line_bytes)]) as process:
        client = Lines(process)
        client.send(json.dumps(INITIALIZE).encode())
        client.receive()
        yield client
        output, errors = process.communicate(timeout=_SECONDS)
    assert (process.returncode, output, errors) == (0, b"", b"")
