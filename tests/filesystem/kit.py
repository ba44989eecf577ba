"""Helpers of the filesystem tests."""

from __future__ import annotations

import random

from agent_memory import (
    Operation,
    hookimpl,
)
from agent_memory.filesystem import AgentMemoryFileSystem

FileSystem = AgentMemoryFileSystem
BIG = random.Random(1).randbytes(600_000)


class Recorder:
    """A plugin that records the operations and the refused names."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.refused = 0

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        self.kinds.append(operation.kind)

    @hookimpl
    def agent_memory_key_rejected(self) -> None:
        self.refused += 1


def contents(fs: AgentMemoryFileSystem) -> dict[str, bytes]:
    return {name: fs.cat_file(name) for name in fs.find("")}


class Failed(Exception):
    pass


def written(fs: FileSystem, path: str, mode: str) -> None:
    with fs.open(path, mode) as file:
        for part in (b"x", b"y" * 10, b"z"):
            file.write(part)
            file.flush()
