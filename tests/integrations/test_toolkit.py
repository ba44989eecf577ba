"""The JSON lines that adapters share: a byte order mark hides none, and damaged lines are counted."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.integrations.toolkit import from_json, records, step, sync_view
from agent_memory.reading.lines import MAX_LINE


def an_object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_record_is_returned_and_every_damaged_line_is_counted(end: bytes) -> None:
    memory = AgentMemory.open("memory://")
    lines = [b'\xef\xbb\xbf{"a":1}', b"5", b"{", b"", b' {"a":2} ', b"\xff", b'\xef\xbb\xbf{"a":3}', b"\xef\xbb\xbf"]
    memory.write("a.jsonl", end.join(lines))
    found = step(records(sync_view(memory), "a.jsonl", an_object))
    assert found is not None
    assert (found, found.damaged) == ([{"a": 1}, {"a": 2}, {"a": 3}], 3)
    last = step(records(sync_view(memory), "a.jsonl", an_object, 2))
    assert last is not None
    assert (last, last.damaged) == ([{"a": 2}, {"a": 3}], 1)


def test_a_line_that_is_too_long_is_counted() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.jsonl", b"{}\n" + b" " * (MAX_LINE + 2**21) + b"\n{}\n")
    for found in (
        step(records(sync_view(memory), "a.jsonl", an_object)),
        step(records(sync_view(memory), "a.jsonl", an_object, 5)),
    ):
        assert found is not None
        assert (found, found.damaged) == ([{}, {}], 1)


def test_a_missing_file_has_no_records() -> None:
    memory = sync_view(AgentMemory.open("memory://"))
    assert step(records(memory, "a.jsonl", an_object)) is None
    assert step(records(memory, "a.jsonl", an_object, 1)) is None
    assert step(records(memory, "a.jsonl", an_object, 0)) == []


@pytest.mark.parametrize("data", [b"\xff", b"{", b"NaN", b"[" * 100_000, '{"a":1}'.encode("utf-16")])
def test_damaged_json_is_none(data: bytes) -> None:
    assert from_json(data) is None
