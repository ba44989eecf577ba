"""Origins and the names of records."""

from __future__ import annotations

import json

import pytest

from agent_memory import (
    MadeBy,
)
from agent_memory.backend import Key
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import Name, Record


def test_an_origin_is_short_printable_text() -> None:
    by = MadeBy("write", "\U0001f680" * 1000, "a b\n\x00" * 1000, 1.5)
    origin = Origin.first(by, 3, b"one").next(by, 3, b"two")
    text = origin.at(1.5)
    assert len(text) <= 800
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert Origin.parse(text) == origin
    assert origin.is_of(b"two")
    assert origin.is_of(b"two and more")
    assert not origin.is_of(b"tw")
    assert not origin.is_of(b"one")


def record_name(origin: Origin) -> str:
    record = Record.of("a.md", origin, origin.size, MadeBy("write", "ann", None, 2.0), None)
    return f"{origin.history}/{record.new_name(None)}"


VALID = Origin.first(MadeBy("write", "ann", None, 1.5), 3, b"one").at(1.5)


@pytest.mark.parametrize(
    "text", [None, "", "x", "[]", "{}", "[1,2,3]", "null", "1", "[" * 100_000, VALID.replace("ann", "a" * 800)]
)
def test_a_text_of_another_program_is_no_origin(text: str | None) -> None:
    assert Origin.parse(text) is None


@pytest.mark.parametrize("value", [None, True, -1, 10**10, 1e400, 1.5, "", "x" * 16, "A" * 16, "../x", [], {}])
@pytest.mark.parametrize("field", range(12))
def test_a_changed_field_of_an_origin_is_refused_or_harmless(field: int, value: object) -> None:
    fields = json.loads(VALID)
    fields[field] = value
    origin = Origin.parse(json.dumps(fields))
    if origin is not None:
        name = record_name(origin)
        key = Key.tree().join(name)
        assert key.path == name
        assert str(Name.parse(key)) == key.name
        assert Origin.parse(origin.at(origin.by.time if origin.by else 0.0)) == origin
        assert len(origin.next(origin.by, 1, b"x").at(1.5)) <= 800


def test_names_of_records_sort_newest_first() -> None:
    origin = Origin.first(None, 0, b"")
    names = []
    for _ in range(12):
        names.append(record_name(origin))
        origin = origin.next(None, 0, b"")
    assert names == sorted(names, reverse=True)
    assert len({len(name) for name in names}) == 1
    parsed = Name.parse(Key.tree().join(names[3]))
    assert parsed
    assert (parsed.history, parsed.number, parsed.kind) == (origin.history, 3, "d")
    assert Name.parse(Key.tree().join("x")) is None
