"""Pytest fixtures for code that uses a memory: nothing touches a disk, nothing outlives the test.

Installed with the package, found by pytest itself. What is imported here is imported in every session, so
nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory, AsyncAgentMemoryService


@pytest.fixture
def agent_memory_service() -> Iterator[AgentMemoryService]:
    """A service on an in-memory store of this test's own."""
    from agent_memory import AgentMemoryService

    with AgentMemoryService("memory://") as service:
        yield service


@pytest.fixture
def agent_memory(agent_memory_service: AgentMemoryService) -> AgentMemory:
    """The memory of the agent ``default`` of ``agent_memory_service``."""
    return agent_memory_service.agent("default")


@pytest.fixture
def async_agent_memory_service() -> AsyncAgentMemoryService:
    """The same for async tests, of any plugin that runs them; in memory there is nothing to close."""
    from agent_memory import AsyncAgentMemoryService

    return AsyncAgentMemoryService("memory://")


@pytest.fixture
def async_agent_memory(async_agent_memory_service: AsyncAgentMemoryService) -> AsyncAgentMemory:
    """The memory of the agent ``default`` of ``async_agent_memory_service``."""
    return async_agent_memory_service.agent("default")
