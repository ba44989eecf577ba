"""One tree as a confined fsspec filesystem, for pandas and other users of fsspec.

It uses only the public methods of a memory, so that every call passes the hooks, and every name the key grammar. It
follows fsspec's conventions except the unsafe ones: fsspec caches filesystems by the text of their arguments and so
confuses them, expands globs in the name to delete, and saves incomplete files.
"""

from agent_memory.filesystem._confined import Memory
from agent_memory.filesystem._filesystem import AgentMemoryFileSystem

__all__ = ["AgentMemoryFileSystem", "Memory"]
