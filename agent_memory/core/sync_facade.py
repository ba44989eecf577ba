"""One logic for the sync and the async twin of a surface.

A surface's logic is written once, as coroutines over `AsyncAgentMemory`. The async twin awaits them; the sync
twin gives them its memory as one whose methods answer at once, and steps them to their end with
`step`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agent_memory.backend import Uncopied
from agent_memory.runtime.run import step

if TYPE_CHECKING:
    from agent_memory.memory import AgentMemory, AsyncAgentMemory

__all__ = ["step", "sync_facade"]


def sync_facade(memory: AgentMemory) -> AsyncAgentMemory:
    """A sync memory with methods to await, which never suspend."""
    return cast("AsyncAgentMemory", _Answering(memory))


class _Answering(Uncopied):
    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._memory, name)

        async def answer(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return answer
