"""Simulate a distant server: a process that forwards connections and delays the answers.

    python benchmarks/_s3_away.py HOST:PORT MILLISECONDS

prints the port on which it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import urlsplit


@contextlib.contextmanager
def away(endpoint: str, milliseconds: float) -> Iterator[str]:
    """Provide an endpoint whose answers arrive this many milliseconds later than those of the server."""
    command = [sys.executable, __file__, urlsplit(endpoint).netloc, str(milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def _forward(server: str, seconds: float) -> None:
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    connections = set()  # strong references: asyncio holds only weak ones

    async def connected(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        source, requests = await asyncio.open_connection(host, int(port))
        later = partial(loop.call_later, seconds)
        await asyncio.gather(
            _pump(client, requests.write, requests.close),
            _pump(source, partial(later, answers.write), partial(later, answers.close)),
        )
        connections.discard(asyncio.current_task())

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


async def _pump(source: asyncio.StreamReader, write: Callable[[bytes], object], close: Callable[[], object]) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(1 << 16):
            write(data)
    close()


if __name__ == "__main__":
    asyncio.run(_forward(sys.argv[1], float(sys.argv[2]) / 1000))
