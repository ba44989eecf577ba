"""A memory that keeps versions, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory
from agent_memory_memory import _of_named_stores
from tests.core.versions.helpers import opened
from tests.support.servers import Root


@pytest.fixture(autouse=True)
def _clock_of_named_stores() -> Iterator[None]:
    """Forget the times of this test: it may have set the clock ahead, and stores in memory never go back."""
    yield
    _of_named_stores._last = 0.0


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with opened(root, actor="ann") as memory:
        yield memory
