from __future__ import annotations

import pytest
from agent_memory_office_hours import OfficeHours

from agent_memory import AgentMemoryService, OperationDenied
from agent_memory.hookspecs import Operation


def asked_at(hour: int, kind: str = "delete", actor: str | None = None) -> Operation:
    return Operation(id="1", time=hour * 3600.0, kind=kind, agent="bob", path="a.md", actor=actor)  # type: ignore[arg-type]


def test_deletes_are_for_office_hours() -> None:
    ask = OfficeHours(9, 17, always=("ops",)).agent_memory_before_operation
    ask(asked_at(9))
    ask(asked_at(16))
    ask(asked_at(20, "write"))
    ask(asked_at(20, actor="ops"))
    for hour in (8, 17, 23):
        for kind in ("delete", "delete_tree", "forget"):
            with pytest.raises(OperationDenied, match="only from 9 to 17"):
                ask(asked_at(hour, kind))


def test_changes_are_counted_by_actor() -> None:
    plugin = OfficeHours(0, 24)
    with AgentMemoryService("memory://", plugins=[plugin], actor="job") as service:
        service.write_memory_file("bob", "a.md", "x")
        service.agent("bob").acting_as("model").append("a.md", "y")
        service.read_memory_file("bob", "a.md")
        service.delete_memory_file("bob", "a.md")
    assert plugin.changes == {"job": 2, "model": 1}
