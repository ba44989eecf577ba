"""The id of a store, in its record; a backend reads it to recognise a store that it opens again."""

from __future__ import annotations

import json
import re
from typing import Final

from agent_memory.key import Key

STORE_RECORD: Final = Key.internal("store.json")
"""The file in which a store keeps its id, its format and the features in use."""
_ID: Final = re.compile(r"[0-9a-f]{24}")


def store_id(record: bytes) -> str | None:
    """Return the id in the record of a store: 24 hexadecimal digits; None if the record has none or is damaged."""
    try:
        found = json.loads(record)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, str) and _ID.fullmatch(found) else None
