"""Serving one client over this process's own stdin and stdout.

The SDK reads and writes them in threads, which no interrupt wakes: the process would stay for as long as the client
is silent. Here the event loop waits until it can read or write, and an interrupt ends the wait.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

import anyio
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server

_BLOCK: Final = 65536
_ESCAPE: Final = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>\\u[dD][89a-fA-F]\w\w)|\\.")
_Stream = anyio.AsyncFile[str]


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve the client at the other end of stdin and stdout until stdin ends.

    Nothing else may read stdin meanwhile; what else is printed goes to stderr.

    Raises:
        BrokenPipeError: the client no longer reads.
    """
    lowlevel = server._lowlevel_server  # as the SDK's own in-memory transport does; run_stdio_async takes no streams
    with _stdout() as output:
        lines, writer = cast(_Stream, _lines(sys.stdin.fileno())), cast(_Stream, _Writer(output))  # all the SDK uses
        try:
            async with stdio_server(lines, writer) as (read, write):
                await lowlevel.run(read, write, lowlevel.create_initialization_options())
        except BaseExceptionGroup as group:
            if group.subgroup(BrokenPipeError):
                raise BrokenPipeError from None
            raise


@contextmanager
def _stdout() -> Iterator[int]:
    """A descriptor of stdout, which itself leads to stderr for as long as the context lasts."""
    sys.stdout.flush()
    original = sys.stdout.fileno()
    output = os.dup(original)
    with suppress(OSError):  # stderr may be closed
        os.dup2(2, original)
    try:
        yield output
    finally:
        sys.stdout.flush()
        os.dup2(output, original)
        os.close(output)


async def _lines(descriptor: int) -> AsyncIterator[str]:
    pending = bytearray()
    while block := await _read(descriptor):
        whole, newline, rest = block.rpartition(b"\n")
        if newline:
            for line in (pending + whole).split(b"\n"):
                yield _without_lone_surrogates(line.decode(errors="replace"))
            pending.clear()
        pending += rest
    if pending:
        yield _without_lone_surrogates(pending.decode(errors="replace"))


async def _read(descriptor: int) -> bytes:
    with suppress(OSError):  # a regular file cannot be waited for, and need not be
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, _BLOCK)


class _Writer:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def write(self, text: str) -> None:
        """Write all of a text, never more at once than a pipe that can be written to takes without blocking."""
        data = text.encode()
        for start in range(0, len(data), select.PIPE_BUF):
            part = data[start : start + select.PIPE_BUF]
            while part:
                with suppress(OSError):
                    await anyio.wait_writable(self._descriptor)
                part = part[os.write(self._descriptor, part) :]

    async def flush(self) -> None:
        """Nothing is buffered."""


def _without_lone_surrogates(line: str) -> str:
    """JSON text with escapes of half a character replaced: the SDK would drop such a line and never answer it."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], line) if "\\u" in line else line
