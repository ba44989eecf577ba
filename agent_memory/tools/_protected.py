"""The files of a conversation in a tree, and the view of a tree that hides them from tools."""

from __future__ import annotations

from typing import Final, TypeVar

from agent_memory.memory import AgentMemory, AsyncAgentMemory

HISTORY: Final = "history.jsonl"
JOBS: Final = "cron/jobs.json"
KEPT: Final = (HISTORY, JOBS)  # matched by their last segments, in any directory
M = TypeVar("M", AgentMemory, AsyncAgentMemory)


def for_tools(kind: type[M], memory: M, history: bool, conversation: bool = True) -> M:
    """A view of a memory for tools: they can never change `KEPT`, and can read them only with ``history``.

    A model that could write the history could forge messages of users and of the program. Without ``conversation`` the
    names are free, and the first change puts a mark, by which a conversation is refused there.

    Raises:
        TypeError: ``history`` or ``conversation`` is not a bool, or ``memory`` is not a ``kind``, for example async
            instead of sync.
    """
    if not isinstance(memory, kind):
        raise TypeError(f"this tool takes an {kind.__name__}, not {type(memory).__name__}; sync and async do not mix")
    if not isinstance(history, bool):
        raise TypeError(f"history must be True or False, not {history!r}")
    if not isinstance(conversation, bool):
        raise TypeError(f"conversation must be True or False, not {conversation!r}")
    if not conversation:
        return memory._unreserved()
    return memory._protecting(KEPT, readable=history)
