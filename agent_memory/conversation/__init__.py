"""Memory for an agent loop: history, memory document and schedule in one tree of files."""

from agent_memory.conversation.compacting import CompactResult
from agent_memory.conversation.context import AsyncMemoryContext, ContextMessages, MemoryContext
from agent_memory.conversation.jobs import CronJob, CronJobs
from agent_memory.conversation.memory import AsyncConversationMemory, ConversationMemory
from agent_memory.conversation.messages import History, Message, Skipped
from agent_memory.conversation.search import Match, Matches
from agent_memory.conversation.shapes import NO_TIME
from agent_memory.conversation.tools import (
    AsyncMemoryWriteTool,
    AsyncSearchHistoryTool,
    MemoryWriteTool,
    SearchHistoryTool,
)

__all__ = [
    "NO_TIME",
    "AsyncConversationMemory",
    "AsyncMemoryContext",
    "AsyncMemoryWriteTool",
    "AsyncSearchHistoryTool",
    "CompactResult",
    "ContextMessages",
    "ConversationMemory",
    "CronJob",
    "CronJobs",
    "History",
    "Match",
    "Matches",
    "MemoryContext",
    "MemoryWriteTool",
    "Message",
    "SearchHistoryTool",
    "Skipped",
]
