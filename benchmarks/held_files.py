"""Measure what `audit verify --files` costs beside reading the same bytes, in one run.

    python benchmarks/held_files.py [DIRECTORY]

1,000 files of 100 agents, each written by a whole and three appends, with the log in the same store: 1 KB files, then
files of 1 MB. "read" lists the files and reads each in turn, as the verification does. "log" is the part that reads
the records. Figures are the fastest of interleaved rounds, per pass over all files; on S3 the answers of ministack
arrive 20 ms later, and "requests" is their number per file.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _measuring import Requests, blocking
from _s3_away import away
from _s3_clients import Bare, client_of, ministack, new_name

from agent_memory import AgentMemoryService
from agent_memory.audit import LogLocation
from agent_memory.audit.files import FileVerifier
from agent_memory.audit.states import LoggedFiles
from agent_memory.backend import AnyBackend
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import AGENTS
from agent_memory.plugins.audit import AuditPlugin
from agent_memory_local import LocalBackend
from agent_memory_s3 import S3Backend

AGENTS_NUMBER, FILES_OF_AGENT, APPENDS, ROUNDS, MILLISECONDS = 100, 10, 3, 5, 20


def fill(root: AnyBackend, size: int, files: int) -> None:
    part = "x" * (size // (APPENDS + 1) - 1) + "\n"
    plugins = [AuditPlugin(LogLocation.below(root))]
    with AgentMemoryService(root, plugins=plugins) as service:
        for agent in range(AGENTS_NUMBER):
            memory = service.agent(f"agent-{agent}")
            for number in range(files):
                memory.write(f"{number}.md", part)
                for _ in range(APPENDS):
                    memory.append(f"{number}.md", part)


def read(store: BlockingStore) -> None:
    token: str | None = None
    while True:
        page = store.list(AGENTS, after=token)
        for entry in page.entries:
            store.read(entry.key)
        token = page.next
        if token is None:
            return


def read_records(location: LogLocation) -> None:
    LoggedFiles(location).update()


def verify(location: LogLocation, store: BlockingStore) -> None:
    findings = list(FileVerifier(location, store).verify())
    assert not findings, findings


async def measure(row: str, open_root: Callable[[], AnyBackend], size: int, files: int, rounds: int) -> None:
    fill(open_root(), size, files)
    root = open_root()
    store, location, requests = BlockingStore(root), LogLocation.below(root), Requests()
    read(store)
    requests.clients = [client_of(root)] if isinstance(root, S3Backend) else []
    ways: dict[str, Callable[[], None]] = {
        "read": lambda: read(store),
        "log": lambda: read_records(location),
        "verify --files": lambda: verify(location, store),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    sent = {name: await requests.of(blocking(lambda _, way=way: way(), 1)) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)
    print(row)
    for name, taken in seconds.items():
        ratio = min(taken) / min(seconds["read"])
        asked = f"{sent[name] / (AGENTS_NUMBER * files):.3f}" if sent[name] else "-"
        print(f"  {name:<20}{asked:>9} requests{min(taken):>9.3f} s{ratio:>8.2f}x", flush=True)


async def main(directory: Path, endpoint: str) -> None:
    for size in (1 << 10, 1 << 20):
        row = f"{AGENTS_NUMBER * FILES_OF_AGENT:,} files of {size >> 10:,} KB on disk"
        await measure(row, partial(LocalBackend, directory / str(size)), size, FILES_OF_AGENT, ROUNDS)
    options = {"endpoint_url": endpoint, "key": "benchmark", "secret": "benchmark"}
    bucket = new_name()
    Bare(bucket, options).make_bucket()
    with away(endpoint, MILLISECONDS) as address:
        open_root = partial(S3Backend, bucket, "store", {**options, "endpoint_url": address})
        await measure(f"{AGENTS_NUMBER:,} files of 1 KB, S3 {MILLISECONDS} ms away", open_root, 1 << 10, 1, 3)


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    place = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=place) as scratch_directory, ministack() as running:
        asyncio.run(main(Path(scratch_directory), running))
