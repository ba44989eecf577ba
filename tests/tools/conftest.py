"""An empty memory in this process, and the memory tool on it."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory
from tests.tools.calls import Call, caller


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://")


@pytest.fixture
def call(memory: AgentMemory) -> Call:
    return caller(memory)
