"""The files of a conversation in a tree, the view that hides them from tools, and the marks that refuse them."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from agent_memory.backend import Entry
from agent_memory.core import conversation_marks
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.memory import AgentMemory, AsyncAgentMemory

HISTORY: Final = "history.jsonl"
JOBS: Final = "cron/jobs.json"
KEPT: Final = (HISTORY, JOBS)  # matched by their last segments, in any directory
M = TypeVar("M", AgentMemory, AsyncAgentMemory)
EitherMemory = TypeVar("EitherMemory", bound=AgentMemory | AsyncAgentMemory)
"""The memory of a tool whose sync and async class share their logic; see `logic_view`."""


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


def logic_view(kind: type[Any], memory: Any, history: bool, conversation: bool = True) -> AsyncAgentMemory:
    """As `for_tools`, for the logic that a sync and an async tool share: a view of a sync memory never suspends."""
    view: AgentMemory | AsyncAgentMemory = for_tools(kind, memory, history, conversation)
    return sync_facade(view) if isinstance(view, AgentMemory) else view


def marks_above(memory: AgentMemory) -> list[str]:
    """Return the marked directories, of the agent's tree, that refuse a conversation in this view."""
    return step(conversation_marks.marks_above(memory._tree, memory._run, ("", "cron")))


def take_back_marks(memory: AgentMemory, marked: list[str]) -> None:
    """Take back marks that `marks_above` returned."""
    step(conversation_marks.take_back(memory._tree, memory._run, marked))


def files_of_conversations(memory: AgentMemory) -> list[Entry]:
    """Return the files with the names of a conversation's files, at any depth."""
    names = ProtectedNames(map(memory._tree.top.join, KEPT), readable=False)
    return [entry for entry in memory.list() if names.holds(entry.key)]
