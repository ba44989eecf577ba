"""The fixtures of `tests.conversation`, for its acceptance tests."""

from tests.conversation.conftest import _closed, _nothing_told, conversation, memory

__all__ = ["_closed", "_nothing_told", "conversation", "memory"]
