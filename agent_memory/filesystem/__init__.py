"""One tree as a confined fsspec filesystem, for pandas and other users of fsspec.

It uses only the public methods of a memory, so that every call passes the hooks, and every name the key grammar. It
follows fsspec's conventions except the unsafe ones: fsspec caches filesystems by the text of their arguments and so
confuses them, expands globs in the name to delete, and saves incomplete files.
"""

from agent_memory.filesystem._confined import Memory
from agent_memory.filesystem._filesystem import AgentMemoryFileSystem
from agent_memory.memory import AgentMemory, AsyncAgentMemory

__all__ = ["AgentMemoryFileSystem", "Memory", "filesystem"]


def filesystem(memory: AgentMemory | AsyncAgentMemory) -> AgentMemoryFileSystem:
    """Return a memory as an fsspec filesystem, confined to the same tree, for pandas and other users of fsspec.

    Each of its calls passes the hooks, and blocks: in an event loop, run them in a thread (`asyncio.to_thread`). It is
    closed with the memory.
    """
    if not isinstance(memory, AgentMemory | AsyncAgentMemory):
        raise TypeError(f"filesystem takes an AgentMemory or an AsyncAgentMemory, not {type(memory).__name__}")
    return AgentMemoryFileSystem(memory.as_sync())
