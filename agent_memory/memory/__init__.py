"""`AgentMemory` and `AsyncAgentMemory`: one confined tree of text files.

Both have the same methods; ``await`` is the only difference. The methods are documented once, on `AgentMemory`.
"""

from agent_memory.core.results import EditResult, TreeResult, WriteResult
from agent_memory.memory.asynchronous import AsyncAgentMemory
from agent_memory.memory.blocking import AgentMemory

__all__ = ["AgentMemory", "AsyncAgentMemory", "EditResult", "TreeResult", "WriteResult"]
