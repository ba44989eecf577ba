"""A root on local disk and a memory on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory import AgentMemory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "root"


@pytest.fixture
def memory(root: Path) -> AgentMemory:
    """A memory with one file."""
    memory = AgentMemory.open(root)
    memory.write("kept.md", "kept")
    return memory
