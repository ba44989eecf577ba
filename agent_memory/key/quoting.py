"""How a text stands in a line among others, so that none can imitate another: as it is, or in quotes and escaped."""

from __future__ import annotations

import re
from typing import Final

from agent_memory.key._grammar import BLANK, INVISIBLE

_BARE: Final = re.compile(r"[^\W_][^\s'\"\\=]*|[._/@+~][^\s'\"\\=]*")


def field(text: str) -> str:
    """A text as one field of a line: bare where it cannot be mistaken, else as a Python literal.

    A bare field begins with a letter, a digit or one of ``._/@+~``, and holds no space, quote, backslash or ``=`` and
    nothing that cannot be seen. So a line of fields with spaces between them can be
    read back to exactly those.
    """
    if BLANK.search(text) or INVISIBLE.search(text):
        return ascii(text)
    return text if _BARE.fullmatch(text) and text.isprintable() else repr(text)


def ascii_field(text: str) -> str:
    """The same in ASCII."""
    return field(text) if text.isascii() else ascii(text)
