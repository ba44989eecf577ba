"""Filesystems to test: on every kind of backend, only in memory, and only on the local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
)
from agent_memory.filesystem import AgentMemoryFileSystem, filesystem
from tests.filesystem.kit import FileSystem, Recorder
from tests.support.servers import S3Server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(params=["local", "memory", "ministack"])
def memory(request: pytest.FixtureRequest, tmp_path: Path, recorder: Recorder) -> Iterator[AgentMemory]:
    options: dict[str, Any] = {}
    url = f"memory://{tmp_path.name}-{os.getpid()}" if request.param == "memory" else str(tmp_path / "root")
    if request.param == "ministack":
        server: S3Server = request.getfixturevalue("ministack")
        url, options = server.new_url(), server.options
    with AgentMemory.open(url, storage_options=options, plugins=[recorder]) as memory:
        yield memory


@pytest.fixture
def fs(memory: AgentMemory) -> AgentMemoryFileSystem:
    return filesystem(memory)


@pytest.fixture
def scratch() -> Iterator[AgentMemoryFileSystem]:
    """A filesystem for tests that do not depend on the backend."""
    with AgentMemory.open(f"memory://scratch-{os.urandom(6).hex()}") as memory:
        yield filesystem(memory)


@pytest.fixture
def plain(tmp_path: Path) -> FileSystem:
    return filesystem(AgentMemory.open(tmp_path / "plain"))
