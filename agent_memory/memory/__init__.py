"""`AgentMemory` and `AsyncAgentMemory`: one confined tree of text files.

Both have the same methods; ``await`` is the only difference. The methods are documented once, on `AgentMemory`.
"""

from agent_memory.core.results import RecordedResult, TreeResult, WriteResult
from agent_memory.memory.asynchronous import AsyncAgentMemory, AsyncOnceMemory
from agent_memory.memory.blocking import AgentMemory, OnceMemory
from agent_memory.memory.versions import AsyncFileVersions, FileVersions, VersionId

__all__ = [
    "AgentMemory",
    "AsyncAgentMemory",
    "AsyncFileVersions",
    "AsyncOnceMemory",
    "FileVersions",
    "OnceMemory",
    "RecordedResult",
    "TreeResult",
    "VersionId",
    "WriteResult",
]
