"""Odd forms of stored JSON facts: each value replaced, missing or doubled, and whole files that are no facts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.support import sizes

_MARK = "\ue000mark\ue000"
RAW_VALUES = (
    "null", "true", "-1", "1e400", "1" * 4000, '"\\ud800"', "[]", "[" * 10_000 + "]" * 10_000,
    "0", "NaN", "-Infinity", "1" * 5000, "0.5", '""', json.dumps("x" * 5000), '"../../x"', '"/etc"', '"\\u0000"', "{}",
    '["a", 1, null, {}]',
)  # fmt: skip
"""The JSON texts of odd values."""
_WHOLE_FILES = (b"", b"[" * 50_000, b"\xff\xfe\x00", b"{}\n", b"\n", b"null\n", b"[]\n", b"0\n", b'"x"\n', b"{")
WHOLE_FILES = _WHOLE_FILES if sizes.is_long else _WHOLE_FILES[:4]
SIXTY_MB = 60_000_000


def odd_objects(facts: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """A name and the JSON text of each odd form of an object: every field, and every member of a list in it.

    In the short run each field has one of the odd forms: the next field the one that follows.
    """
    forms = itertools.cycle([*RAW_VALUES, "missing", "doubled"])
    for name in facts:
        for form in itertools.islice(forms, len(RAW_VALUES) + 2 if sizes.is_long else 1):
            yield f"{name}={form[:20]}", _odd(facts, name, form)
        members = facts[name] if isinstance(facts[name], list) else []
        for at in range(len(members)):
            for raw in RAW_VALUES[::3]:
                changed = [_MARK if number == at else each for number, each in enumerate(members)]
                yield f"{name}[{at}]={raw[:20]}", _with(facts | {name: changed}, raw)
        if members:
            yield f"{name} shorter", json.dumps(facts | {name: members[:-1]}).encode()
            yield f"{name} longer", json.dumps(facts | {name: [*members, None]}).encode()
    yield "further field", json.dumps(facts | {"further": 1}).encode()


def odd_lists(values: list[Any]) -> Iterator[tuple[str, bytes]]:
    """As `odd_objects`, for a list."""
    for name, data in odd_objects({"list": values}):
        inner = data.partition(b": ")[2][:-1]
        if b'"list"' not in inner:
            yield name, inner


def _odd(facts: dict[str, Any], name: str, form: str) -> bytes:
    if form == "missing":
        return json.dumps({key: value for key, value in facts.items() if key != name}).encode()
    if form == "doubled":
        return (json.dumps(facts)[:-1] + f", {json.dumps(name)}: null}}").encode()
    return _with(facts | {name: _MARK}, form)


def _with(facts: dict[str, Any], raw: str) -> bytes:
    return json.dumps(facts).replace(json.dumps(_MARK), raw).encode()
