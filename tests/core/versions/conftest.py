"""A memory that keeps versions, on every backend."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory
from tests.core.versions.helpers import opened
from tests.support.servers import Root


@pytest.fixture
def memory(root: Root) -> AgentMemory:
    return opened(root, actor="ann")
