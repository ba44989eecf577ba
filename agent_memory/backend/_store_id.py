"""The id of a store, in its record; a backend reads it to recognise a store that it opens again."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from agent_memory._json import parse_json
from agent_memory.key import Key

STORE_RECORD: Final = Key.internal("store.json")
"""The file in which a store keeps its id, its format and the features in use."""
_ID: Final = re.compile(r"[0-9a-f]{24}")


def store_id(record: bytes) -> str | None:
    """Return the id in the record of a store: 24 hexadecimal digits; None if the record has none or is damaged."""
    try:
        found = record_fields(record)["id"]
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


def record_fields(record: bytes) -> dict[str, Any]:
    """Return the fields in the record of a store, with the changes in later lines, which are written on a full disk.

    A change that was cut off while it was written is left out.

    Raises:
        ValueError: the first line is no JSON object.
    """
    try:
        return dict(parse_json(record))
    except (ValueError, TypeError):
        first, *changes = record.split(b"\n")
    fields = dict(parse_json(first))
    for change in changes[:-1]:  # after the last line end is nothing, or a change that was cut off
        with suppress(ValueError, TypeError):
            fields.update(parse_json(change))
    return fields
