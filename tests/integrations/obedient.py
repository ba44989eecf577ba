"""A model that follows the advice of an error to the letter."""

from __future__ import annotations

import re
from typing import Final

BAD_NAMES: Final = (
    "2026-11-27 12:30 flight.md",
    "a:b/c?.md",
    "con.md",
    "CON/nul.txt",
    "x" * 300 + ".md",
    "a\tb.md",
    "a.",
    "~x.md",
)
"""Names that the storage refuses, as models choose them."""


def obeyed(path: str, advice: str) -> str:
    """The path that such a model tries next; a tool over ``/memories`` advises a whole path."""
    if found := re.search(r"; try (/memories/.+)\Z", advice, re.DOTALL):
        return found[1]
    if found := re.search(r"use the name '([^']*)'", advice):
        return path[: path.rfind("/") + 1] + found[1]
    for old, new in re.findall(r"in place of '([^']*)' use '([^']*)'", advice):
        path = "/".join(
            new if segment.encode("unicode_escape").decode() == old else segment for segment in path.split("/")
        )
    return path
