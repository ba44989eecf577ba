"""Tools that a model calls, over one memory. Every tool call returns a `ToolResult` and never raises."""

from agent_memory.tools.agent_tools import AgentMemoryTools, AsyncAgentMemoryTools
from agent_memory.tools.file_system_manager import AsyncFileSystemManager, FileSystemManager
from agent_memory.tools.memory_tool import AsyncMemoryTool, MemoryTool
from agent_memory.tools.results import ToolResult
from agent_memory.tools.search import AsyncMemorySearch, MemorySearch

__all__ = [
    "AgentMemoryTools",
    "AsyncAgentMemoryTools",
    "AsyncFileSystemManager",
    "AsyncMemorySearch",
    "AsyncMemoryTool",
    "FileSystemManager",
    "MemorySearch",
    "MemoryTool",
    "ToolResult",
]
