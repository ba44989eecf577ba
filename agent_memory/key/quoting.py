"""Texts and numbers in messages; a text is quoted and escaped where needed, so that it cannot imitate another field."""

from __future__ import annotations

import re
from typing import Final

from agent_memory.key._grammar import BLANK, EMOJI_SELECTOR, FORMAT, INVISIBLE

_BARE: Final = re.compile(r"[^\W_][^\s'\"\\=]*|[._/@+~][^\s'\"\\=]*")

UNPRINTABLE: Final = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\r(?!\n)|{FORMAT.pattern}"
)
"""Characters that could control a terminal, hide text or imitate another line: control characters except tab and line
end, and all format characters except the joiners."""


def field(text: str) -> str:
    """Return a text as one field of a line: bare if it is unambiguous, otherwise as a Python literal.

    A bare field begins with a letter, a digit or one of ``._/@+~``, and contains no space, quote, backslash, ``=`` or
    invisible character. So a line of fields, separated by spaces, can be parsed back into exactly those fields.
    """
    if BLANK.search(text) or INVISIBLE.search(EMOJI_SELECTOR.sub("", text)):
        return ascii(text)
    return text if _BARE.fullmatch(text) and text.isprintable() else repr(text)


def ascii_field(text: str) -> str:
    """Return a field as `field` does, but in ASCII only."""
    return field(text) if text.isascii() else ascii(text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and its noun: ``1 file``, ``1,200 files``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Stored text to be shown: `UNPRINTABLE` characters are escaped, tabs and line ends are kept."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
