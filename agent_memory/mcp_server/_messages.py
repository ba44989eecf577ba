"""Parses a line from a client, to a JSON-RPC message or to the error to answer."""

from __future__ import annotations

import json
import re
from typing import Final

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

HEAD: Final = 65536
TAIL: Final = 4096
"""How much of the beginning and of the end of an invalid line is searched for its id."""

_ESCAPE: Final = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>\\u[dD][89a-fA-F]\w\w)|\\.")
_STRING: Final = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
_TOKEN: Final = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_ID: Final = rf"(-?\d{{1,1000}}(?![\d.eE])|{_STRING})"
_AFTER_KEY: Final = re.compile(rf"\s*:\s*{_ID}?", re.DOTALL)
_LAST_ID: Final = re.compile(r'[,{]\s*"id"\s*:\s*(-?\d{1,1000}|"[^"\\]{0,1000}")\s*}\s*\Z')
_LONGEST_ID: Final = 1000


class InvalidLine(Exception):
    """A line that is not a message; ``answer`` is the error to send."""

    def __init__(self, code: int, message: str, text: str) -> None:
        super().__init__(message)
        self.answer = JSONRPCError(jsonrpc="2.0", id=_id_in(text), error=ErrorData(code=code, message=message))


def parsed(line: bytes) -> JSONRPCMessage:
    """Parse a line of UTF-8, with or without a byte order mark.

    Raises:
        InvalidLine: the line is not JSON, is nested deeper than the parser allows, or is not a message; or the
            request's id is too long.
    """
    text = without_lone_surrogates(line.decode("utf-8-sig", errors="replace"))
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        kinds = {fault["type"] for fault in error.errors(include_url=False, include_context=False, include_input=False)}
        raise (_not_json(text) if "json_invalid" in kinds else _no_message(text)) from None
    except (ValueError, RecursionError):
        raise _not_json(text) from None
    if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= json.loads(text).keys():
        raise _no_message(text)  # the SDK parses a request with a fraction or null as its id as a notification
    if isinstance(message, JSONRPCRequest) and len(str(message.id)) > _LONGEST_ID:
        raise InvalidLine(INVALID_REQUEST, f"an id has at most {_LONGEST_ID:,} characters", "")  # no id in the answer
    return message


def _not_json(text: str) -> InvalidLine:
    return InvalidLine(PARSE_ERROR, "this line is not JSON that can be parsed", text)


def _no_message(text: str) -> InvalidLine:
    return InvalidLine(INVALID_REQUEST, "a line must be one JSON-RPC object, and its id a string or an integer", text)


def too_long(head: bytes, tail: bytes, most: int) -> InvalidLine:
    """The error for a line of more than ``most`` bytes, given its beginning and its end."""
    text = without_lone_surrogates((head + tail).decode("utf-8-sig", errors="replace"))
    return InvalidLine(INVALID_REQUEST, f"this line is longer than {most:,} bytes; send less at once", text)


def without_lone_surrogates(line: str) -> str:
    """Replace escapes of lone surrogates in JSON text; the SDK's parser refuses them."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], line) if "\\u" in line else line


def _id_in(text: str) -> int | str | None:
    """Find the id of a request in a line that cannot be parsed; None if there is none, or the line is a response.

    The id must be in the outermost object, in the first `HEAD` characters or directly before the end.
    """
    if not text.lstrip().startswith("{"):
        return None
    depth, ids, keys = 0, [], set[str]()
    for token in _TOKEN.finditer(text, 0, HEAD):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif depth == 1 and (after := _AFTER_KEY.match(text, token.end())):
            keys.add(token[0])
            if token[0] == '"id"' and after[1]:
                ids.append(after[1])
    if keys & {'"result"', '"error"'} and '"method"' not in keys:
        return None
    if not ids and (last := _LAST_ID.search(text, max(0, len(text) - TAIL))):
        ids.append(last[1])
    return _id(ids[-1]) if ids else None


def _id(text: str) -> int | str | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, int) or (isinstance(found, str) and len(found) <= _LONGEST_ID) else None
