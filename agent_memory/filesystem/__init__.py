"""One tree as a confined fsspec filesystem, for pandas and whatever else speaks fsspec.

It is made of the public methods of a memory alone, so that every call passes the hooks, and every name the key
grammar. fsspec's habits are kept where they are safe: not where fsspec takes one filesystem for another (it caches
them by the text of their arguments), expands a name that is to be deleted, or saves half a file.
"""

from agent_memory.filesystem._confined import Memory
from agent_memory.filesystem._filesystem import AgentMemoryFileSystem

__all__ = ["AgentMemoryFileSystem", "Memory"]
