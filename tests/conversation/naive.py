"""A naive implementation of history and search: it parses every line and skips none.

It is written from the documented behaviour, not from this package's code, which the tests compare with it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from agent_memory.conversation import Match, Message

OPTIONAL_TEXTS = ("tool_call_id", "reasoning_content", "channel", "sender_id")
NO_TIME = datetime(1, 1, 1, tzinfo=UTC)
KNOWN = ("role", "content", "timestamp", "tool_calls", *OPTIONAL_TEXTS)


def message_in(line: bytes) -> Message | None:
    """The message of a line, or None."""
    try:
        values: Any = json.loads(without_mark(line).decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not has_the_shape_of_a_message(values):
        return None
    return Message(
        role=values["role"],
        content=values.get("content") or "",
        timestamp=datetime.fromisoformat(values["timestamp"]) if is_time(values.get("timestamp")) else NO_TIME,
        tool_calls=values.get("tool_calls"),
        tool_call_id=values.get("tool_call_id"),
        reasoning_content=values.get("reasoning_content"),
        channel=values.get("channel"),
        sender_id=values.get("sender_id"),
        extra={name: value for name, value in values.items() if name not in KNOWN},
    )


def has_the_shape_of_a_message(values: dict[str, Any]) -> bool:
    role = values.get("role")
    return (
        isinstance(role, str)
        and role != ""
        and has_content(values)
        and (values.get("timestamp") is None or is_time(values["timestamp"]) or not is_our_form(values))
        and isinstance(values.get("tool_calls"), list | None)
        and all(isinstance(values.get(name), str | None) for name in OPTIONAL_TEXTS)
    )


def is_our_form(values: dict[str, Any]) -> bool:
    """Whether this package writes such a line; a time of other programs may be of any kind."""
    return values.keys() <= {*KNOWN} and isinstance(values.get("content", ""), str)


def has_content(values: dict[str, Any]) -> bool:
    """Whether there is a text; none is needed beside calls, in a result, and without the field beside a time."""
    calls = values.get("tool_calls") or values.get("function_call")
    if values.get("content") is None and (calls or values.get("role") in ("tool", "function")):
        return True
    return isinstance(values.get("content", None if values.get("timestamp") is None else ""), str)


def is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def messages(data: bytes) -> list[Message]:
    """All messages of a history."""
    return [message for line in data.split(b"\n") if (message := message_in(line)) is not None]


def last_messages(data: bytes, last_n: int | None) -> list[Message]:
    """The result of `load_history`."""
    found = [message for message in messages(data) if message.role.strip().lower() not in ("system", "developer")]
    if last_n is None:
        return found
    return found[-last_n:] if last_n > 0 else []


def bad_lines(data: bytes) -> int:
    """The number of lines that are neither blank nor a message."""
    return sum(1 for line in data.split(b"\n") if without_mark(line).strip() and message_in(line) is None)


def without_mark(line: bytes) -> bytes:
    """A line without a byte order mark at its beginning."""
    return line.removeprefix("\ufeff".encode())


def search(data: bytes, query: str, since: float | None = None, max_results: int = 10) -> list[Match]:
    """The earliest matches, each with its adjacent messages."""
    seen = [message for message in messages(data) if since is None or message.timestamp.timestamp() >= since]
    matches = []
    for number, message in enumerate(seen):
        if is_shown(message) and query.lower() in message.content.lower():
            before = seen[number - 1] if number > 0 else None
            after = seen[number + 1] if number + 1 < len(seen) else None
            matches.append(Match(before, message, after))
    return matches[:max_results]


def is_shown(message: Message) -> bool:
    return message.role in {"user", "assistant"} and message.content != ""


def answer(query: str, matches: list[Match], bad: int = 0) -> str:
    """The tool's output for these matches, in a history with a number of bad lines."""
    if matches:
        return as_unicode("\n".join(block(number, match) for number, match in enumerate(matches, 1)))
    left_out = f"\n[{bad:,} damaged line{'s' * (bad > 1)} of the history left out]" if bad else ""
    return as_unicode(f"No matches found for '{query if len(query) <= 300 else query[:300] + '...'}'.{left_out}")


def as_unicode(text: str) -> str:
    """A text whose unpaired surrogates are replaced by U+FFFD."""
    joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", lambda pair: json.loads(json.dumps(pair[0])), text)
    return re.sub("[\ud800-\udfff]", "\ufffd", joined)


def block(number: int, match: Match) -> str:
    hit = match.hit
    time = "no time" if hit.timestamp == NO_TIME else hit.timestamp.strftime("%Y-%m-%d %H:%M")
    text = f"## Match {number} — [{hit.channel or 'unknown'} / {hit.sender_id or 'unknown'}] | {time}\n\n"
    if match.before is not None and is_shown(match.before):
        text += spoken(match.before) + "\n"
    text += f"**{spoken(hit)}**\n"
    if match.after is not None and is_shown(match.after):
        text += spoken(match.after) + "\n"
    return text + "---"


def spoken(message: Message) -> str:
    shown = message.content[:300] + ("..." if len(message.content) > 300 else "")
    return f"{message.role.upper()}: {shown}"
