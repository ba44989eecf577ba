"""The marks by which a conversation is refused: shown to a person, and taken back."""

from __future__ import annotations

from agent_memory.backend import Entry
from agent_memory.core import conversation_marks
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.memory import AgentMemory
from agent_memory.runtime.run import step
from agent_memory.tools._protected import KEPT


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
