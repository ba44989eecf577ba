"""`sync_facade`: lets one implementation serve the sync and the async twin of an interface.

The logic is written once, as coroutines over `AsyncAgentMemory`. The async twin awaits them. The sync twin calls
them with a facade of its memory, whose methods never suspend, and runs them with `step`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agent_memory.runtime.run import step

if TYPE_CHECKING:
    from agent_memory.memory import AgentMemory, AsyncAgentMemory

__all__ = ["step", "sync_facade"]


def sync_facade(memory: AgentMemory) -> AsyncAgentMemory:
    """Return a sync memory with awaitable methods, which never suspend."""
    return cast("AsyncAgentMemory", _Answering(memory))


class _Answering:
    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    def _of_conversation(self, directories: tuple[str, ...]) -> AsyncAgentMemory:
        return sync_facade(self._memory._of_conversation(directories))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._memory, name)

        async def answer(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return answer
