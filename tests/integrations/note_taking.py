"""A scripted model that keeps notes with the memory tools of a framework, and what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from agent_memory import AgentMemory
from agent_memory.testing import RecordingPlugin

Call: TypeAlias = tuple[str, dict[str, Any]]
TEXT: Final = 'say "hi"\n\tC:\\new\\t.txt\nend\n'
CHANGED: Final = 'say "hi"\n\tD:\\new\\"t".txt\nend\nlast\n'
CALLS: Final = 8


def calls(answers: Sequence[str]) -> Iterator[Call]:
    """The calls of the model; before each one after the first, the caller adds an answer to ``answers``."""
    yield "memory_create", {"path": "/memories/12:30.md", "file_text": TEXT}
    advised = re.search(r"; try (/memories/.+)\Z", answers[-1])
    assert advised, answers[-1]
    path = advised[1]
    yield "memory_create", {"path": path, "file_text": TEXT}
    assert answers[-1] == f"File created successfully at: {path}"
    yield "memory_view", {"path": path}
    line = answers[-1].split("\n")[2].partition("\t")[2]
    assert line == TEXT.split("\n")[1]
    yield "memory_str_replace", {"path": path, "old_str": line, "new_str": '\tD:\\new\\"t".txt'}
    assert answers[-1].startswith("The memory file has been edited."), answers[-1]
    yield "memory_append", {"path": path, "text": "last\n"}
    assert answers[-1] == f"The text was added to {path}."
    yield "memory_search", {"query": '\\"T"'}
    assert f"{path}:2" in answers[-1]
    yield "memory_view", {"path": 7}
    assert "the parameter `path` must be" in answers[-1], answers[-1]
    yield "memory_view", {"path": "/memories/history.jsonl"}
    assert "does not exist" in answers[-1] or "conversation" in answers[-1], answers[-1]


class NoteTaker:
    """The model: tells the next call for the answers so far, and None at the end."""

    def __init__(self) -> None:
        self._answers = list[str]()
        self._calls = calls(self._answers)

    def next(self, answers: Sequence[str]) -> Call | None:
        self._answers[:] = answers
        return next(self._calls, None)


def check(memory: AgentMemory, plugin: RecordingPlugin, ids: Sequence[str]) -> None:
    """Check the file, and that each change has the id of the tool call that made it."""
    assert {entry.path: memory.read(entry.path) for entry in memory.list()} == {"12-30.md": CHANGED}
    changes = [operation for operation, _ in plugin.after if operation.kind in ("create", "edit", "append")]
    assert [change.tool_call_id for change in changes] == [ids[1], ids[3], ids[4]]
    assert {change.actor for change in changes} == {"ann"}
