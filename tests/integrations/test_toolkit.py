"""The parts that adapters share: JSON lines with a count of damaged ones, and names of files for any text."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.integrations.toolkit import (
    from_json,
    record_segment,
    records,
    segment_text,
    step,
    sync_facade,
    sync_view,
)
from agent_memory.key import encode_segment
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


def test_any_text_names_a_file_and_is_found_again() -> None:
    memory = sync_facade(AgentMemory.open("memory://"))
    texts = ("thread:1/ä", "記" * 200, "x" * 300)
    for text in texts:
        step(memory.write(f"threads/{step(record_segment(memory, text, '.json'))}", "x"))
        assert step(segment_text(memory, step(record_segment(memory, text)))) == text
    names = [entry.key.name for entry in step(memory.list("threads"))]
    assert {step(segment_text(memory, name, ".json")) for name in names} == {*texts}
    with pytest.raises(AgentMemoryFileNotFoundError):
        step(segment_text(memory, encode_segment("y" * 300)))
