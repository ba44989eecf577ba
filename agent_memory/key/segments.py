"""Encodes any text as one path segment, or as an agent id, and decodes it.

The characters that stay as they are come from Unicode 3.2, which every Python has in the same form, so a text has the
same name on every Python and on every system.
"""

from __future__ import annotations

import hashlib
import re
from unicodedata import is_normalized, ucd_3_2_0

from agent_memory.errors import InvalidAgentIdError
from agent_memory.key import _grammar
from agent_memory.key._suggest import shown

_ESCAPE = re.compile(rb"=([0-9A-F]{2})")
_EMPTY = "="
_HASH_MARK = "=="  # no escape looks like this: in an escape two hexadecimal digits follow "="
_HASHED = re.compile(rf"{_HASH_MARK}([0-9a-f]{{64}})\Z")
_SHOWN_BYTES = 100
"""How many bytes of an encoded text stay in a hashed segment."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._@+-")
_MAX_ID = 128
_ESCAPED_IN_ID = re.compile(r"[^A-Za-z0-9._@+-]+")
_ID_MARK = "0=="


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
    return _escapes(to_bytes(character))


def _escapes(data: bytes) -> str:
    return "".join(f"={byte:02X}" for byte in data)


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), text)


def decoded(segment: str) -> str | None:
    """Return the text of a segment, or None if `encoded` returns no such segment."""
    if segment == _EMPTY:
        return ""
    try:
        text = to_text(_unescaped(segment.encode()))
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


def is_agent_id(text: object) -> bool:
    """Whether a text is a valid agent id, without encoding."""
    return isinstance(text, str) and _grammar.AGENT_ID.match(str.__str__(text)) is not None


def agent_id(text: str) -> str:
    """Encode any external id (``slack:C0123``, ``auth0|5f``) as an agent id; `external_id` decodes it.

    Each byte (UTF-8) of a character that agent ids do not allow, and of ``=`` itself, becomes ``=XX``, as in
    RFC 2045 quoted-printable. If the result is still not a valid id, for example because of its first character, it
    gets the prefix ``0==``. Different texts give different ids.

    Raises:
        InvalidAgentIdError: ``text`` is not a str, not valid Unicode, or longer than 128 characters once encoded.
    """
    if not isinstance(text, str) or len(text) > _MAX_ID:
        raise invalid_agent_id(text)
    try:
        encoded = _with_escapes(str.__str__(text))
    except UnicodeEncodeError:
        raise invalid_agent_id(text) from None
    encoded = re.sub(r"\.(?=\.)|\.\Z", "=2E", encoded)
    if encoded.endswith(_grammar.TEMPORARY_SUFFIX):
        encoded = encoded[:-1] + _escaped(encoded[-1])
    if not is_agent_id(encoded):
        encoded = _ID_MARK + encoded
    if not is_agent_id(encoded):
        raise invalid_agent_id(text)
    return encoded


def external_id(agent_instance_id: str) -> str:
    """Return the text from which `agent_id` made this id.

    Raises:
        InvalidAgentIdError: `agent_id` never returns this id.
    """
    try:
        if len(agent_instance_id) > _MAX_ID:
            raise ValueError
        text = _unescaped(agent_instance_id.removeprefix(_ID_MARK).encode("ascii")).decode()
        if agent_id(text) == agent_instance_id:
            return text
    except (AttributeError, TypeError, ValueError):
        pass
    raise InvalidAgentIdError(f"{shown(agent_instance_id)} was not made by agent_id()", "agent-id", "default")


def _with_escapes(text: str) -> str:
    """Escape the characters that agent ids do not allow; raises UnicodeEncodeError for a lone surrogate."""
    return _ESCAPED_IN_ID.sub(lambda m: _escapes(m[0].encode()), text)


def invalid_agent_id(text: object) -> InvalidAgentIdError:
    """Return the error for a text that is no agent id."""
    refused, suggestion = shown(text), _suggested_agent_id(text)
    message = (
        f"{refused} is not an agent id: {_grammar.RULES['agent-id']}; "
        f"agent_id(text) makes an id from any text, for example {suggestion!r}"
    )
    return InvalidAgentIdError(message, "agent-id", suggestion, refused)


def _suggested_agent_id(text: object) -> str:
    short = str.__str__(text)[:32].encode(errors="ignore").decode() if isinstance(text, str) else "default"
    return agent_id(short) if len(_with_escapes(short)) < 100 else "default"
