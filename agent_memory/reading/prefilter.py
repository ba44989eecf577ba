r"""`SearchPrefilter`: offsets in a block of bytes where a case-insensitive query may match, without decoding the block.

There are no false negatives. A query matches a text if ``query.lower() in text.lower()``. In the bytes, a matching text
may be spelled in another case, with a character whose lower case is a letter of the query (``K``, the Kelvin sign, is a
``k``), or in JSON with an escape (``\u006b``). So two things are searched for in the lowered bytes: the longest run
of the query that has only one spelling apart from ASCII case, and every other spelling of any character of that run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Final

_LAST_CASED: Final = 0x20000  # no character from here on has another lower case; a test checks it
_LOOKED_AT: Final = 256  # characters of a query: enough for few matches, and a query of 50 MB takes no more time
_SHORT_ESCAPES: Final = {
    '"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\b": b"\\b", "\f": b"\\f", "\n": b"\\n", "\r": b"\\r", "\t": b"\\t",
}  # fmt: skip


class SearchPrefilter:
    """A query, prepared for a search in blocks of bytes.

    Args:
        query: the text to find, lowered by `str.lower`; not empty.
        json: whether texts are in JSON strings, where characters may be escaped; otherwise they are plain UTF-8.
    """

    def __init__(self, query: str, *, json: bool) -> None:
        self._json = json
        query = query[:_LOOKED_AT]
        run = max(_runs(query, json), key=lambda text: len(text.encode()), default="")
        self._run = run.encode()
        others = {s for character in run or query[:1] for s in self._spellings(character)}
        others -= {character.encode() for character in run}
        escapes = {s for s in others if s.startswith(b"\\")}
        self._escapes = re.compile(b"|".join(map(re.escape, sorted(escapes)))) if escapes else None
        self._literals = [s for s in (self._run, *(others - escapes)) if s]
        self._everywhere = not _is_encodable(query) or (not json and "\ufffd" in query)

    def finder(self, block: bytes) -> Callable[[int], int]:
        """A function that returns the next offset, from a given one on, where the query may match; -1 if there is none.

        Every matching line contains such an offset. The function must be called with ascending offsets.
        """
        if self._everywhere:
            return lambda at: at if at < len(block) else -1
        low = block.lower()
        searches = [partial(low.find, literal) for literal in self._literals]
        if self._escapes and b"\\" in low:
            searches.append(partial(_find, self._escapes, low))
        if len(searches) == 1:
            return searches[0]
        known = [0] * len(searches)

        def find(at: int) -> int:
            for number, search in enumerate(searches):
                if 0 <= known[number] <= at:
                    known[number] = search(at)
            return min((position for position in known if position >= 0), default=-1)

        return find

    def _spellings(self, character: str) -> set[bytes]:
        spellings: set[bytes] = set()
        for upper in _uppers().get(character, frozenset()) | {character}:
            if _is_encodable(upper):
                spellings.add(upper.encode().lower())
            if self._json:
                units = upper.encode("utf-16-be", "surrogatepass").hex()
                spellings.add(b"".join(b"\\u" + units[i : i + 4].encode() for i in range(0, len(units), 4)))
                if upper in _SHORT_ESCAPES:
                    spellings.add(_SHORT_ESCAPES[upper])
        return spellings


def _find(pattern: re.Pattern[bytes], low: bytes, at: int) -> int:
    match = pattern.search(low, at)
    return match.start() if match else -1


def _runs(query: str, json: bool) -> list[str]:
    runs = [""]
    for character in query:
        if _is_plain(character, json):
            runs[-1] += character
        else:
            runs.append("")
    return [run for run in runs if run]


def _is_plain(character: str, json: bool) -> bool:
    """Whether a character, unless escaped, has only one spelling in bytes whose ASCII letters are lowered."""
    if json and (character in '"\\' or character < " "):
        return False
    return character.isascii() or (_is_encodable(character) and character not in _uppers())


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _uppers() -> dict[str, frozenset[str]]:
    """For each character, the other characters whose lower case contains it."""
    found: dict[str, set[str]] = {}
    for character in map(chr, range(_LAST_CASED)):
        lowered = character.lower()
        if lowered != character:
            for letter in lowered:
                found.setdefault(letter, set()).add(character)
    found.setdefault("ς", set()).add("Σ")  # at the end of a word
    return {letter: frozenset(others) for letter, others in found.items()}
