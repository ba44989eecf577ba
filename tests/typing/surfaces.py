"""Never executed: type checkers check this use of the surfaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from agent_memory import PRESENT, AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.conversation import (
    AsyncConversationMemory,
    AsyncMemoryContext,
    AsyncSearchHistoryTool,
    CompactResult,
    ContextMessages,
    ConversationMemory,
    CronJobs,
    History,
    Matches,
    MemoryContext,
    Message,
    SearchHistoryTool,
)
from agent_memory.reading.reader import Reader
from agent_memory.tools import (
    AgentMemoryTools,
    AsyncFileSystemManager,
    AsyncMemorySearch,
    AsyncMemoryTool,
    FileSystemManager,
    MemorySearch,
    MemoryTool,
    ToolResult,
)
from agent_memory.tools.search import SearchResult


async def head(reader: Reader) -> bytes:
    return await reader.read(0, 10)


def sync_surfaces(memory: AgentMemory) -> None:
    assert_type(memory.scan("a", head), bytes)
    assert_type(memory.append("a", "b", separator="\n", when=PRESENT), WriteResult)
    assert_type(MemoryTool(memory, on_existing="overwrite", strings="sdk").call({"command": "view"}), ToolResult)
    assert_type(MemoryTool.for_project(), MemoryTool)
    assert_type(MemoryTool.for_project(worktrees="shared"), MemoryTool)
    assert_type(AgentMemoryTools(memory).call("read_agent_memory_file", "{}"), ToolResult)
    assert_type(MemorySearch(memory).search("a", glob="*.md"), SearchResult)
    assert_type(FileSystemManager.for_repository(".").handle_create("a.md", "b"), WriteResult)
    conversation = ConversationMemory(memory)
    assert_type(conversation.load_history(3), History)
    assert_type(conversation.iter_history(), Iterator[Message])
    assert_type(conversation.search("a"), Matches)
    assert_type(conversation.compact(keep_last=3), CompactResult)
    assert_type(conversation.load_cron_jobs(), CronJobs)
    assert_type(MemoryContext(conversation).build_messages("a", "b"), ContextMessages)
    assert_type(SearchHistoryTool(conversation).call({"query": "a"}), ToolResult)
    MemoryTool(memory, on_existing="maybe")  # type: ignore[arg-type]


async def async_surfaces(memory: AsyncAgentMemory) -> None:
    assert_type(await memory.scan("a", head), bytes)
    assert_type(await AsyncMemoryTool(memory).call("{}"), ToolResult)
    assert_type(await AsyncMemorySearch(memory).search("a"), SearchResult)
    assert_type(await AsyncFileSystemManager(memory).handle_append("a.md", "b"), WriteResult)
    conversation = AsyncConversationMemory(memory)
    assert_type(await conversation.load_history(), History)
    assert_type(conversation.iter_history(), AsyncIterator[Message])
    assert_type(await AsyncMemoryContext(conversation).persist_exchange("a", "b"), bool)
    assert_type(await AsyncSearchHistoryTool(conversation).call({"query": "a"}), ToolResult)
