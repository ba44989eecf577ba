"""Pytest fixtures for code that uses a memory, on an in-memory store that ends with the test.

Load it with ``pytest_plugins = ["agent_memory.testing.pytest_plugin"]`` in the ``conftest.py`` at the top of the tests,
or with the option ``-p agent_memory.testing.pytest_plugin``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory, AsyncAgentMemoryService


@pytest.fixture
def agent_memory_service() -> Iterator[AgentMemoryService]:
    """A service on an in-memory store, new for each test."""
    with AgentMemoryService("memory://") as service:
        yield service


@pytest.fixture
def agent_memory(agent_memory_service: AgentMemoryService) -> AgentMemory:
    """The memory of the agent ``default`` of ``agent_memory_service``."""
    return agent_memory_service.agent("default")


@pytest.fixture
def async_agent_memory_service() -> AsyncAgentMemoryService:
    """An async service like `agent_memory_service`, for any plugin that runs async tests; it needs no close."""
    return AsyncAgentMemoryService("memory://")


@pytest.fixture
def async_agent_memory(async_agent_memory_service: AsyncAgentMemoryService) -> AsyncAgentMemory:
    """The memory of the agent ``default`` of ``async_agent_memory_service``."""
    return async_agent_memory_service.agent("default")
