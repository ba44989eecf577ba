"""The lines of other programs, as the fields of a message: Claude Code, Codex, and messages of model APIs.

A line of this package keeps all its fields. Each other form has one function, which returns the fields of our own form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent_memory._json import parse_json, refuse_constant

OPTIONAL: Final = ("tool_calls", "tool_call_id", "reasoning_content", "channel", "sender_id")
FIELDS: Final = ("role", "content", "timestamp", *OPTIONAL)
"""The fields of a line of this package, in order."""
NO_TIME: Final = datetime.min.replace(tzinfo=UTC)
"""The timestamp of a message whose line has no time."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNITS: Final = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))
"""Numbers below each bound, and how many of them make a second; a bound is a day in 1973 in the next smaller unit."""
_NANOSECONDS: Final = 10**9
_NUMBER: Final = re.compile(r"[0-9]{9,}(\.[0-9]+)?")
"""A number as a text; eight digits are a date."""
_TIMES: Final = ("timestamp", "created_at", "ts")
_SPEAKERS: Final = frozenset({"user", "assistant"})
_SHELL: Final = "local_shell_call"
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input", _SHELL: "action"}
"""The items that are calls, and the field of their arguments."""
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_ANSWERS: Final = frozenset({"tool", "function"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})


def message_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line's message: ``timestamp`` is a `datetime`, the others are as in our own lines.

    Raises:
        KeyError, OverflowError, TypeError, ValueError: the line holds no message.
    """
    if "role" in values:
        return _of_model_api(values)
    if "message" in values:
        return _of_claude_code(values)
    if {"session_id", "text"} <= values.keys():
        return _of_prompt(values)
    return _of_codex(values)


def _of_model_api(values: dict[str, Any]) -> dict[str, Any]:
    """A line of this package, or a message of the APIs of Anthropic and OpenAI."""
    time = next((values[name] for name in _TIMES if values.get(name) is not None), None)
    content = values.get("content", None if time is None else "")
    is_own = isinstance(content, str) and values.keys() <= {*FIELDS}
    if not isinstance(content, str):
        values = {**values, **_spoken(values)}
    return {"content": "", **values, "timestamp": (_exact_time if is_own else _time)(time)}


def _of_claude_code(values: dict[str, Any]) -> dict[str, Any]:
    if values["type"] not in _SPEAKERS or values.get("isMeta") or values.get("isCompactSummary"):
        raise ValueError("the program wrote this line, not a user or a model")
    message = {"role": values["type"], **values["message"]}
    return {**_without(values, "type", "message"), **_spoken(message), "timestamp": _time(values.get("timestamp"))}


def _of_codex(values: dict[str, Any]) -> dict[str, Any]:
    """A line of a session; in older ones the item is the line itself."""
    item = values["payload"] if values["type"] == "response_item" else values
    if item["type"] == "message":
        fields = _spoken(item)
    elif item["type"] in _CALLS:
        name = "local_shell" if item["type"] == _SHELL else item["name"]
        call = {"id": item["call_id"], "name": name, "arguments": _arguments(item[_CALLS[item["type"]]])}
        fields = _fields("assistant", "", calls=[call])
    elif item["type"] in _RESULTS:
        fields = _fields("tool", _plain(item["output"]), answers=item["call_id"])
    else:
        raise ValueError("not an item of a conversation")
    rest = {} if item is values else _without(values, "type", "payload")
    return {**rest, **fields, "timestamp": _time(values.get("timestamp"))}


def _of_prompt(values: dict[str, Any]) -> dict[str, Any]:
    """A line of Codex's list of prompts."""
    rest = _without(values, "text", "ts")
    return {**rest, **_fields("user", _text(values["text"])), "timestamp": _time(values["ts"])}


def _spoken(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message whose content is a text, a list of parts, or null: a refusal, calls, or a result."""
    content = message.get("content")
    if isinstance(content, list):
        return _of_parts(message["role"], content)
    if content is None and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    elif content is None and (message.get("tool_calls") or message.get("function_call") or message["role"] in _ANSWERS):
        content = ""
    return _fields(message["role"], _text(content))


def _of_parts(role: str, parts: list[Any]) -> dict[str, Any]:
    """The fields of a message of parts; a part that is neither text nor a call leaves its type in brackets."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    answers: list[str] = []
    for part in parts:
        if part["type"] == "tool_use":
            calls.append({"id": part["id"], "name": part["name"], "arguments": part["input"]})
        elif part["type"] == "tool_result":
            answers.append(_text(part["tool_use_id"]))
            texts.append(_plain(part.get("content")))
        elif part["type"] in _THOUGHTS:
            thoughts.append(_text(part.get("thinking", "")))
        else:
            texts.append(_of_part(part))
    speaker = "tool" if len(answers) == len(parts) > 0 else role
    return _fields(speaker, _joined(texts), calls, answers[0] if answers else None, _joined(thoughts) or None)


def _fields(
    role: str,
    content: str,
    calls: list[dict[str, Any]] | None = None,
    answers: str | None = None,
    thoughts: str | None = None,
) -> dict[str, Any]:
    more = {"tool_calls": calls or None, "tool_call_id": answers, "reasoning_content": thoughts}
    return {"role": role, "content": content, **{name: value for name, value in more.items() if value is not None}}


def _plain(output: Any) -> str:
    """The text of a tool's result: a text, parts, a mapping with one of both as its content, or nothing."""
    if isinstance(output, dict):
        output = output.get("content")
    if isinstance(output, list):
        return _joined([_of_part(part) for part in output])
    return _text(output or "")


def _of_part(part: dict[str, Any]) -> str:
    kind = _text(part["type"])
    text = part.get("text", part.get("refusal"))
    return _text(text) if "text" in kind or text is not None else f"[{kind}]"


def _joined(texts: list[str]) -> str:
    return "\n".join(filter(None, texts))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _arguments(text: Any) -> Any:
    """The arguments of a call: the object that a text holds, else the text itself."""
    try:
        found = parse_json(_text(text), parse_constant=refuse_constant)
    except (TypeError, ValueError):
        return text
    return found if isinstance(found, dict) else text


def _time(value: Any) -> datetime:
    """A time of another program; `NO_TIME` if it is not understood."""
    try:
        return _exact_time(value)
    except (OverflowError, TypeError, ValueError):
        return NO_TIME


def _exact_time(value: Any) -> datetime:
    """A time in ISO 8601, or a number since 1970: seconds, milliseconds, microseconds or nanoseconds by its size."""
    if value is None:
        return NO_TIME
    if isinstance(value, bool):
        raise TypeError("not a time")
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return datetime.fromisoformat(value)
        value = float(value)
    unit = next((unit for bound, unit in _UNITS if abs(value) < bound), _NANOSECONDS)
    return _EPOCH + timedelta(seconds=value / unit)


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The other fields of a line, without those that would count as fields of its message."""
    return {name: value for name, value in values.items() if name not in names and name not in FIELDS}
