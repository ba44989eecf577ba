"""Counts the damaged lines of a history at the speed of a search: a line of the usual form is recognised unparsed."""

from __future__ import annotations

import re
from typing import Final

from agent_memory.conversation.messages import Skipped

_PLAIN = rb'[^"\\\x00-\x1f]*'
_TEXT = rb'"' + _PLAIN + rb'(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})' + _PLAIN + rb')*"'
_DAY = rb"[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"  # later days are left to the parser
_TIME = _DAY + rb"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{6})?(?:\+00:00)?"
_USUAL: Final = re.compile(
    rb'(?:\{"role": "[a-z]+", "content": ' + _TEXT + rb', "timestamp": "' + _TIME + rb'"'
    rb'(?:, "(?:tool_call_id|reasoning_content|channel|sender_id)": ' + _TEXT + rb")*\}\n)*"
)
"""Lines that hold a message, if they are UTF-8."""


def count_damaged(data: bytes, size: int, skipped: Skipped) -> None:
    """Count the lines without a message in the first ``size`` bytes of a block; a line ends there."""
    is_text = _is_text(data[:size])
    at = 0
    while at < size:
        found = _USUAL.match(data, at) if is_text else None
        at = found.end() if found else at
        if at < size:
            end = data.find(b"\n", at) + 1 or len(data)
            skipped.parse(data[at:end])
            at = end


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
