"""Agent ids, and the encoding of any external id as an agent id."""

from __future__ import annotations

import re

from agent_memory.errors import InvalidAgentIdError
from agent_memory.key import _grammar
from agent_memory.key._grammar import RULES, TEMPORARY_SUFFIX
from agent_memory.key._suggest import shown


def is_agent_id(text: object) -> bool:
    """Whether a text is a valid agent id, without encoding."""
    return isinstance(text, str) and _grammar.AGENT_ID.match(str.__str__(text)) is not None


_MAX_ID = 128
_PLAIN_ID_CHARACTER = re.compile(r"[^A-Za-z0-9._@+-]")
_ENCODED_MARK = "0=="  # no escape looks like this: in an escape two hexadecimal digits follow "="


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
        encoded = _PLAIN_ID_CHARACTER.sub(_escaped, str.__str__(text))
    except UnicodeEncodeError:
        raise invalid_agent_id(text) from None
    encoded = re.sub(r"\.(?=\.)|\.\Z", "=2E", encoded)
    if encoded.endswith(TEMPORARY_SUFFIX):
        encoded = f"{encoded[:-1]}={ord(encoded[-1]):02X}"
    if not _grammar.AGENT_ID.match(encoded):
        encoded = _ENCODED_MARK + encoded
    if not _grammar.AGENT_ID.match(encoded):
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
        body = agent_instance_id.removeprefix(_ENCODED_MARK).encode("ascii")
        text = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), body).decode()
        if agent_id(text) == agent_instance_id:
            return text
    except (AttributeError, TypeError, ValueError):
        pass
    raise InvalidAgentIdError(f"{shown(agent_instance_id)} was not made by agent_id()", "agent-id", "default")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in match[0].encode())


def invalid_agent_id(text: object) -> InvalidAgentIdError:
    """Return the error for a text that is no agent id."""
    refused, suggestion = shown(text), _suggested_agent_id(text)
    message = (
        f"{refused} is not an agent id: {RULES['agent-id']}; "
        f"agent_id(text) makes an id from any text, for example {suggestion!r}"
    )
    return InvalidAgentIdError(message, "agent-id", suggestion, refused)


def _suggested_agent_id(text: object) -> str:
    short = str.__str__(text)[:32].encode(errors="ignore").decode() if isinstance(text, str) else "default"
    encoded = _PLAIN_ID_CHARACTER.sub(_escaped, short)
    return agent_id(short) if len(encoded) < 100 else "default"
