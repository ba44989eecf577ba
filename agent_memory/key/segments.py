"""Encodes any text as one path segment, and decodes it.

The characters that stay as they are come from Unicode 3.2, which every Python has in the same form, so a text has the
same name on every Python and on every system.
"""

from __future__ import annotations

import hashlib
import re
from unicodedata import is_normalized, ucd_3_2_0

from agent_memory.key import _grammar

_ESCAPE = re.compile(rb"=([0-9A-F]{2})")
_EMPTY = "="
_HASH_MARK = "=="  # no escape looks like this: in an escape two hexadecimal digits follow "="
_HASHED = re.compile(rf"{_HASH_MARK}([0-9a-f]{{64}})\Z")
_SHOWN_BYTES = 100
"""How many bytes of an encoded text stay in a hashed segment."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._@+-")


def encoded(text: str) -> str:
    """Return the segment of a text, of any length; only `decoded` restores it."""
    segment = _joined([_piece(character) for character in text], text)
    if not is_normalized("NFC", segment):
        segment = _joined([_piece(c) if c.isascii() else _escaped(c) for c in text], text)
    return segment or _EMPTY


def _joined(pieces: list[str], text: str) -> str:
    """Join the pieces of a text's characters, after escaping those that a segment may not begin or end with."""
    segment = "".join(pieces)
    if text[:1] in (" ", ".") or _grammar.DEVICE.match(segment):
        pieces[:1] = map(_escaped, text[:1])
    if text[-1:] in (" ", ".") or segment.endswith(_grammar.TEMPORARY_SUFFIX):
        pieces[-1:] = map(_escaped, text[-1:])
    return "".join(pieces)


def _piece(character: str) -> str:
    if character.isascii():
        return character if character in _PLAIN else _escaped(character)
    is_plain = ucd_3_2_0.category(character)[0] in "LM" and _grammar.character_rule(character) is None
    return character if is_plain else _escaped(character)


def _escaped(character: str) -> str:
    return "".join(f"={byte:02X}" for byte in to_bytes(character))


def decoded(segment: str) -> str | None:
    """Return the text of a segment, or None if `encoded` returns no such segment."""
    if segment == _EMPTY:
        return ""
    try:
        data = _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), segment.encode())
        text = to_text(data)
    except UnicodeError:
        return None
    return text if encoded(text) == segment else None


def hashed(segment: str, text: str, room: int) -> str:
    """Return a segment of at most ``room`` bytes for a text whose own segment is longer: its beginning and a digest."""
    shown = segment.encode()[: min(_SHOWN_BYTES, max(0, room - len(_HASH_MARK) - 64))].decode(errors="ignore")
    shown = re.sub(r"=[0-9A-F]?\Z", "", shown)
    return f"{shown}{_HASH_MARK}{hashlib.sha256(to_bytes(text)).hexdigest()}"


def hashed_digest(segment: str) -> str:
    """Return the SHA-256 in a segment that `hashed` returned; "" for any other segment."""
    found = _HASHED.search(segment)
    return found[1] if found else ""


def to_bytes(text: str) -> bytes:
    """Return the UTF-8 of a text; a lone surrogate is encoded like a character."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Return the text of `to_bytes`; raises UnicodeError."""
    return data.decode("utf-8", "surrogatepass")
