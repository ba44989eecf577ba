"""A memory that keeps versions, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory
from tests.core.versions.helpers import opened
from tests.support.servers import Root


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with opened(root, actor="ann") as memory:
        yield memory
