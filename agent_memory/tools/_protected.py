"""What a conversation keeps in a tree, and a tree as tools see it: without those names."""

from __future__ import annotations

from typing import Final, TypeVar

from agent_memory.memory import AgentMemory, AsyncAgentMemory

HISTORY: Final = "history.jsonl"
JOBS: Final = "cron/jobs.json"
KEPT: Final = (HISTORY, JOBS)  # by their last segments, in any directory
M = TypeVar("M", AgentMemory, AsyncAgentMemory)


def for_tools(kind: type[M], memory: M, history: bool) -> M:
    """A view for what a model calls: it never changes `KEPT`, and reads them only with ``history``.

    A model that could write the history would put words into the mouths of users and of the program.

    Raises:
        TypeError: ``history`` is no bool, or ``memory`` is of another ``kind``: the async twin's, or the sync one's.
    """
    if not isinstance(memory, kind):
        raise TypeError(f"this tool takes an {kind.__name__}, not {type(memory).__name__}; its twin takes that")
    if not isinstance(history, bool):
        raise TypeError(f"history is True or False, not {history!r}")
    return memory._protecting(KEPT, readable=history)
