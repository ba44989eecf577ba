"""An empty memory on every backend, and a conversation in it; memories opened by a test are closed after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, context
from tests.conversation.histories import close_all, opened
from tests.support.servers import Root


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the set of reported failures, so that each test gets its warnings like a new process."""
    monkeypatch.setattr(context, "_told", set())


@pytest.fixture
def memory(root: Root) -> AgentMemory:
    return opened(root)


@pytest.fixture
def conversation(memory: AgentMemory) -> ConversationMemory:
    return ConversationMemory(memory)
