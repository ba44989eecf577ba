"""Measure what the options of a store cost in one run, as ratios to the plain call.

    python benchmarks/options.py [DIRECTORY]

Every figure is the median of interleaved rounds of 16 sync calls, one on each of 16 files; hooks and logging are at
their defaults. First on local disk, durable, then on ministack with answers that arrive 20 ms later, on open
connections. A ratio is the median of the rounds' ratios to "plain". "requests" is the counted number per call; those
that the audit log sends between calls are counted in the call after them.

- write: replaces a file of 1 KB. append: adds a line to a file that this process wrote last. read: of 1 KB.
- versions: `VersionLimits()`. limits: of a file, and of an agent's files and bytes. redaction: masks credentials.
- audit: `AuditPlugin` with the log in the same store. audit, required: a call waits for its record.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _measuring import Table, Way, blocking
from _s3_away import away
from _s3_clients import LINE, Bare, client_of, ministack, new_name

from agent_memory import AgentMemory, AgentMemoryService, Limits, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.backend import AnyBackend
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory_local import LocalBackend
from agent_memory_s3 import S3Backend

FILES, DISK_ROUNDS, S3_ROUNDS, MILLISECONDS = 16, 41, 15, 20
TEXT = ("The customer prefers short answers, and calls on Mondays.\n" * 18)[:1024]
PLUGINS: dict[str, Callable[[AnyBackend], object]] = {
    "redaction": lambda _: RedactionPlugin(),
    "audit": lambda root: AuditPlugin(LogLocation.below(root)),
    "audit, required": lambda root: AuditPlugin(LogLocation.below(root), required=True),
}
SETTINGS: dict[str, Any] = {
    "versions": {"versions": VersionLimits()},
    "limits": {"limits": Limits(file_bytes=1 << 20, agent_files=1000, agent_bytes=1 << 30)},
}
CALLS: dict[str, Callable[[AgentMemory, int], object]] = {
    "write 1 KB": lambda memory, number: memory.write(f"{number}.md", TEXT),
    "append a line": lambda memory, number: memory.append(f"{number}.md", LINE),
    "read 1 KB": lambda memory, number: memory.read(f"{number}.md"),
}


def opened(root: AnyBackend, option: str) -> AgentMemoryService:
    plugins = [PLUGINS[option](root)] if option in PLUGINS else []
    return AgentMemoryService(root, plugins=plugins, **SETTINGS.get(option, {}))


async def measure(where: str, root_of: Callable[[str], AnyBackend], rounds: int) -> None:
    roots = {option: root_of(option.replace(", ", "-")) for option in ("plain", *SETTINGS, *PLUGINS)}
    table = Table(rounds)
    with ExitStack() as stack:
        memories = {option: stack.enter_context(opened(root, option)).agent("bench") for option, root in roots.items()}
        for memory in memories.values():
            for number in range(FILES):
                memory.write(f"{number}.md", TEXT)
        table.requests.clients += [client_of(root) for root in roots.values() if isinstance(root, S3Backend)]
        for row, call in CALLS.items():
            ways = {
                option: Way(blocking(lambda number, call=call, memory=memory: call(memory, number), FILES))  # type: ignore[misc]
                for option, memory in memories.items()
            }
            await table.row(f"{row}, {where}", ways, FILES)


async def main(directory: Path, endpoint: str) -> None:
    await measure("on disk", lambda name: LocalBackend(directory / name), DISK_ROUNDS)
    options = {"endpoint_url": endpoint, "key": "benchmark", "secret": "benchmark"}
    bucket = new_name()
    Bare(bucket, options).make_bucket()
    with away(endpoint, MILLISECONDS) as address:
        far = {**options, "endpoint_url": address}
        await measure(f"S3 {MILLISECONDS} ms away", lambda name: S3Backend(bucket, name, far), S3_ROUNDS)


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    print(f"s3fs {version('s3fs')}, ministack {version('ministack')}")
    place = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=place) as scratch_directory, ministack() as running:
        asyncio.run(main(Path(scratch_directory), running))
