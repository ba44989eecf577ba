"""Origins and the names of records."""

from __future__ import annotations

import json

import pytest

from agent_memory import (
    MadeBy,
)
from agent_memory.backend import Key
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import Name


def test_an_origin_is_short_printable_text() -> None:
    by = MadeBy("write", "\U0001f680" * 1000, "a b\n\x00" * 1000, 1.5)
    origin = Origin.first(by, 3, b"one").next(by, 3, b"two")
    text = origin.to_text()
    assert len(text) <= 800
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert Origin.parse(text) == origin
    assert origin.is_of(b"two")
    assert origin.is_of(b"two and more")
    assert not origin.is_of(b"tw")
    assert not origin.is_of(b"one")


VALID = Origin.first(MadeBy("write", "ann", None, 1.5), 3, b"one").to_text()


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
        name = str(Name(origin.history, origin.number, origin.id, "0" * 8))
        assert Name.parse(name)
        assert Key.tree().join(name).path == name
        assert Origin.parse(origin.to_text()) == origin
        assert len(origin.next(origin.by, 1, b"x").to_text()) <= 800


def test_names_of_records_sort_newest_first() -> None:
    origin = Origin.first(None, 0, b"")
    names = []
    for _ in range(12):
        names.append(str(Name(origin.history, origin.number, origin.id, "0" * 8)))
        origin = origin.next(None, 0, b"")
    assert names == sorted(names, reverse=True)
    assert len({len(name) for name in names}) == 1
    assert [Name.parse(name) for name in names][3] == Name(origin.history, 3, names[3].split("-")[2], "0" * 8)
    assert Name.parse("x") is None
