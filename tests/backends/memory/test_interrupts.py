"""Interrupts in the memory backend: an interrupt at any place of a change leaves the old or the new state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from agent_memory import AgentMemory
from tests.faults.interrupts import count_places, interrupted_at

FILES = {"d/a.md": "a", "d/e/b.md": "b", "other.md": "o"}
CHANGES: dict[str, tuple[Callable[[AgentMemory], object], dict[str, str]]] = {
    "rename a directory": (lambda m: m.rename("d", "n"), {"n/a.md": "a", "n/e/b.md": "b", "other.md": "o"}),
    "append, a new file": (lambda m: m.append("new.md", "x"), {**FILES, "new.md": "x"}),
    "append": (lambda m: m.append("other.md", "x", separator="\n"), {**FILES, "other.md": "o\nx"}),
    "write": (lambda m: m.write("other.md", "x"), {**FILES, "other.md": "x"}),
    "delete": (lambda m: m.delete("other.md"), {"d/a.md": "a", "d/e/b.md": "b"}),
}


def filled() -> AgentMemory:
    memory = AgentMemory.open("memory://")
    for name, text in FILES.items():
        memory.write(name, text)
    return memory


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted before the change
@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupt_leaves_the_old_state_or_the_new_one(name: str) -> None:
    change, after = CHANGES[name]
    places = count_places(lambda: change(filled())) - count_places(filled)
    seen = []
    for place in range(1, places + 1):
        memory = filled()
        interrupted_at(place, partial(change, memory))
        seen.append({entry.path: memory.read(entry.path) for entry in memory.list()})
    assert [state for state in seen if state not in (FILES, after)] == []
    assert FILES in seen
    assert after in seen
