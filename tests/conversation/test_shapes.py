"""The lines of other programs: each form that is read, each line that is skipped, and every answer counts those."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, InvalidContentError
from agent_memory.conversation import NO_TIME, ConversationMemory, MemoryContext, Message, SearchHistoryTool, Skipped
from agent_memory.conversation.messages import parse
from tests.conversation.histories import HISTORY, NOON, contents
from tests.support.sizes import examples

AT_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = int(AT_NOON.timestamp())
CALL = {"id": "c1", "name": "Bash", "arguments": {"command": "date"}}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "date"}'}}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "date"}}


def claude(kind: str, content: object, **fields: object) -> dict[str, object]:
    """A line of a transcript of Claude Code."""
    around = {"parentUuid": None, "isSidechain": False, "cwd": "/home/ann/shop", "sessionId": "s1", "version": "2.1.0"}
    message = {"role": kind, "content": content}
    return {**around, "type": kind, "message": message, "uuid": "u1", "timestamp": "2026-03-01T12:00:00.000Z", **fields}


def codex(kind: str, **payload: object) -> dict[str, object]:
    """A line of a session of Codex."""
    return {"timestamp": "2026-03-01T12:00:00.000Z", "type": kind, "payload": payload}


def spoken(role: str, text: str, part: str) -> dict[str, object]:
    return codex("response_item", type="message", role=role, content=[{"type": part, "text": text}])


def result_of(content: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content}


READ: dict[str, tuple[dict[str, Any], Message]] = {
    "Claude Code: a user's text": (claude("user", "hi"), Message("user", "hi", AT_NOON)),
    "Claude Code: a user's parts": (
        claude("user", [{"type": "text", "text": "look"}, {"type": "image", "source": {"data": "AA=="}}]),
        Message("user", "look\n[image]", AT_NOON),
    ),
    "Claude Code: an answer": (
        claude("assistant", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        Message("assistant", "a\nb", AT_NOON),
    ),
    "Claude Code: thoughts and a call": (
        claude("assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}, TOOL_USE]),
        Message("assistant", "", AT_NOON, tool_calls=[CALL], reasoning_content="hm"),
    ),
    "Claude Code: a result": (
        claude("user", [result_of("noon")], toolUseResult={"stdout": "noon"}),
        Message("tool", "noon", AT_NOON, tool_call_id="c1"),
    ),
    "Claude Code: a result of parts": (
        claude("user", [result_of([{"type": "text", "text": "noon"}, {"type": "image", "source": {}}])]),
        Message("tool", "noon\n[image]", AT_NOON, tool_call_id="c1"),
    ),
    "Claude Code: a result without content": (
        claude("user", [{"type": "tool_result", "tool_use_id": "c1"}]),
        Message("tool", "", AT_NOON, tool_call_id="c1"),
    ),
    "Claude Code: a result and a text": (
        claude("user", [result_of("noon"), {"type": "text", "text": "stop"}]),
        Message("user", "noon\nstop", AT_NOON, tool_call_id="c1"),
    ),
    "Claude Code: a message without a role": (
        {"type": "user", "message": {"content": "hi"}, "timestamp": NOON},
        Message("user", "hi", AT_NOON),
    ),
    "Codex: a user": (spoken("user", "hi", "input_text"), Message("user", "hi", AT_NOON)),
    "Codex: an answer": (spoken("assistant", "hello", "output_text"), Message("assistant", "hello", AT_NOON)),
    "Codex: a call": (
        codex("response_item", type="function_call", name="Bash", arguments='{"command": "date"}', call_id="c1"),
        Message("assistant", "", AT_NOON, tool_calls=[CALL]),
    ),
    "Codex: a call with a text": (
        codex("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1"),
        Message("assistant", "", AT_NOON, tool_calls=[{"id": "c1", "name": "apply_patch", "arguments": "*** Begin"}]),
    ),
    "Codex: a call whose arguments are null": (
        codex("response_item", type="function_call", name="Bash", arguments=None, call_id="c1"),
        Message("assistant", "", AT_NOON, tool_calls=[{"id": "c1", "name": "Bash", "arguments": None}]),
    ),
    "Codex: a call of the shell": (
        codex("response_item", type="local_shell_call", call_id="c1", action={"type": "exec", "command": ["date"]}),
        Message(
            "assistant",
            "",
            AT_NOON,
            tool_calls=[{"id": "c1", "name": "local_shell", "arguments": {"type": "exec", "command": ["date"]}}],
        ),
    ),
    "Codex: a result": (
        codex("response_item", type="function_call_output", call_id="c1", output="noon"),
        Message("tool", "noon", AT_NOON, tool_call_id="c1"),
    ),
    "Codex: a result as a mapping": (
        codex("response_item", type="function_call_output", call_id="c1", output={"content": "noon", "success": True}),
        Message("tool", "noon", AT_NOON, tool_call_id="c1"),
    ),
    "Codex: an older line": (
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        Message("user", "hi", NO_TIME),
    ),
    "Codex: an older call": (
        {"type": "function_call", "name": "Bash", "arguments": '{"command": "date"}', "call_id": "c1"},
        Message("assistant", "", NO_TIME, tool_calls=[CALL]),
    ),
    "Codex: a prompt": ({"session_id": "s1", "ts": SECONDS, "text": "hi"}, Message("user", "hi", AT_NOON)),
    "OpenAI: a text": ({"role": "user", "content": "hi"}, Message("user", "hi", NO_TIME)),
    "OpenAI: parts": (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        Message("user", "a\n[image_url]", NO_TIME),
    ),
    "OpenAI: null and calls": (
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        Message("assistant", "", NO_TIME, tool_calls=[OPENAI_CALL]),
    ),
    "OpenAI: calls alone": (
        {"role": "assistant", "tool_calls": [OPENAI_CALL]},
        Message("assistant", "", NO_TIME, tool_calls=[OPENAI_CALL]),
    ),
    "OpenAI: null and a call of the older API": (
        {"role": "assistant", "content": None, "function_call": {"name": "Bash", "arguments": "{}"}},
        Message("assistant", "", NO_TIME),
    ),
    "OpenAI: a result that is null": (
        {"role": "tool", "tool_call_id": "c1", "content": None},
        Message("tool", "", NO_TIME, tool_call_id="c1"),
    ),
    "OpenAI: a refusal": (
        {"role": "assistant", "content": None, "refusal": "No."},
        Message("assistant", "No.", NO_TIME),
    ),
    "OpenAI: a part that refuses": (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        Message("assistant", "No.", NO_TIME),
    ),
    "OpenAI: a result": (
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "noon"}]},
        Message("tool", "noon", NO_TIME, tool_call_id="c1"),
    ),
    "Anthropic: parts": (
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, TOOL_USE]},
        Message("assistant", "a", NO_TIME, tool_calls=[CALL]),
    ),
    "a time in seconds": ({"role": "user", "content": "hi", "timestamp": SECONDS}, Message("user", "hi", AT_NOON)),
    "a time with a fraction": (
        {"role": "user", "content": "hi", "timestamp": SECONDS + 0.5},
        Message("user", "hi", AT_NOON + timedelta(seconds=0.5)),
    ),
    "a time in milliseconds": (
        {"role": "user", "content": "hi", "timestamp": SECONDS * 1000 + 5},
        Message("user", "hi", AT_NOON + timedelta(milliseconds=5)),
    ),
    "a time in microseconds": (
        {"role": "user", "content": "hi", "timestamp": SECONDS * 10**6 + 5},
        Message("user", "hi", AT_NOON + timedelta(microseconds=5)),
    ),
    "a time in nanoseconds": (
        {"role": "user", "content": "hi", "timestamp": SECONDS * 10**9 + 5000},
        Message("user", "hi", AT_NOON + timedelta(microseconds=5)),
    ),
    "a time as a text of digits": (
        {"role": "user", "content": "hi", "timestamp": f"{SECONDS}005"},
        Message("user", "hi", AT_NOON + timedelta(milliseconds=5)),
    ),
    "a time as a text with a fraction": (
        {"role": "user", "content": "hi", "ts": f"{SECONDS}.5"},
        Message("user", "hi", AT_NOON + timedelta(seconds=0.5)),
    ),
    "a time as a date of digits": (
        {"role": "user", "content": "hi", "timestamp": "20260301"},
        Message("user", "hi", datetime(2026, 3, 1)),  # noqa: DTZ001 - local time
    ),
    "another program's time that is no time": (
        {"role": "user", "content": "hi", "timestamp": "yesterday", "model": "m"},
        Message("user", "hi", NO_TIME),
    ),
    "Claude Code: a time past the calendar": (claude("user", "hi", timestamp=10**22), Message("user", "hi", NO_TIME)),
    "Codex: a time that is a list": (
        {**spoken("user", "hi", "input_text"), "timestamp": [2026]},
        Message("user", "hi", NO_TIME),
    ),
    "a time with another name": ({"role": "user", "content": "", "created_at": SECONDS}, Message("user", "", AT_NOON)),
    "a time that is null": ({"role": "user", "content": "hi", "timestamp": None}, Message("user", "hi", NO_TIME)),
}
SKIPPED: dict[str, dict[str, Any]] = {
    "Claude Code: a summary": {"type": "summary", "summary": "A walk", "leafUuid": "u1"},
    "Claude Code: the program's own line": {"type": "system", "subtype": "hook", "content": "x", "timestamp": NOON},
    "Claude Code: a snapshot": {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
    "Claude Code: progress": {"type": "progress", "data": {"type": "hook_progress"}, "timestamp": NOON},
    "Claude Code: a message by the program": claude("user", "<local-command-caveat>", isMeta=True),
    "Claude Code: a compacted conversation": claude("user", "This session is continued", isCompactSummary=True),
    "Claude Code: another speaker": claude("progress", "x"),
    "Claude Code: a message that is a text": {"type": "user", "message": "hi", "timestamp": NOON},
    "Claude Code: a part without a type": claude("user", [{"text": "hi"}]),
    "Claude Code: a text that is a number": claude("user", [{"type": "text", "text": 5}]),
    "Claude Code: a text part without text": claude("user", [{"type": "text"}]),
    "Claude Code: a result of no parts": claude("user", [result_of([None])]),
    "Claude Code: a part whose type is a number": claude("user", [{"type": 5, "text": "hi"}]),
    "Codex: a call without arguments": codex("response_item", type="function_call", name="Bash", call_id="c1"),
    "Claude Code: no content": {"type": "user", "message": {"role": "user"}, "timestamp": NOON},
    "Codex: the session": codex("session_meta", id="s1", cwd="/home/ann/shop"),
    "Codex: a turn": codex("turn_context", model="m"),
    "Codex: an event that repeats a message": codex("event_msg", type="user_message", message="hi"),
    "Codex: encrypted thoughts": codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
    "Codex: no item": {"timestamp": NOON, "type": "response_item", "payload": None},
    "Codex: a state": {"record_type": "state"},
    "Codex: a prompt without a time": {"session_id": "s1", "text": "hi"},
    "OpenAI: null without calls": {"role": "assistant", "content": None, "timestamp": NOON},
    "OpenAI: null and no call": {"role": "assistant", "content": None, "tool_calls": []},
    "OpenAI: parts that are texts": {"role": "user", "content": ["hi"]},
    "neither a text nor a time": {"role": "user"},
    "a time that is a truth value": {"role": "user", "content": "hi", "timestamp": True},
    "a time that is a list": {"role": "user", "content": "hi", "timestamp": [2026]},
    "a time that is no time": {"role": "user", "content": "hi", "timestamp": "yesterday"},
    "a time past the calendar": {"role": "user", "content": "hi", "timestamp": 10**22},
    "a time past every float": {"role": "user", "content": "hi", "timestamp": 10**400},
}


NAMES = (
    "role", "content", "timestamp", "tool_calls", "type", "message", "payload", "text", "output", "arguments", "input",
    "name", "id", "call_id", "tool_use_id", "thinking", "refusal", "ts", "session_id", "isMeta",
)  # fmt: skip
WORDS = (
    "user", "assistant", "response_item", "message", "function_call", "function_call_output", "custom_tool_call",
    "text", "tool_use", "tool_result", "thinking", "image", NOON, "{}", "",
)  # fmt: skip
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=2)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner), max_leaves=12
)


@st.composite
def almost(draw: st.DrawFn) -> dict[str, Any]:
    """A line that is read, with another value in one place."""
    line = json.loads(json.dumps(draw(st.sampled_from([line for line, _ in READ.values()]))))
    place = line
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not (isinstance(place[key], dict | list) and place[key] and draw(st.booleans())):
            place[key] = draw(values)
            return dict(line)
        place = place[key]


@examples(500)
@given(almost() | st.dictionaries(st.sampled_from(NAMES), values))
def test_any_line_is_a_message_that_can_be_written_or_is_skipped(line: dict[str, Any]) -> None:
    message = parse(json.dumps(line).encode())
    if message is not None:
        with suppress(InvalidContentError):  # a lone surrogate
            assert parse(message.to_line().encode()) == message
        assert isinstance(message.role, str)
        assert isinstance(message.content, str)
        assert isinstance(message.timestamp, datetime)


def stored(*lines: dict[str, Any]) -> AgentMemory:
    memory = AgentMemory.open("memory://")
    memory.write(HISTORY, "".join(json.dumps(line) + "\n" for line in lines))
    return memory


def facts(message: Message) -> tuple[object, ...]:
    """All of a message but the fields that only its writer knows."""
    calls = message.tool_calls and list(message.tool_calls)
    return message.role, message.content, message.timestamp, calls, message.tool_call_id, message.reasoning_content


@pytest.mark.parametrize(("line", "message"), READ.values(), ids=READ)
def test_a_form_is_read(line: dict[str, Any], message: Message) -> None:
    history = ConversationMemory(stored(line)).load_history()
    assert [facts(each) for each in history] == [facts(message)]
    assert history.skipped == 0


@pytest.mark.parametrize("line", SKIPPED.values(), ids=SKIPPED)
def test_a_line_without_a_message_is_skipped_and_counted(line: dict[str, Any]) -> None:
    history = ConversationMemory(stored(line)).load_history()
    assert (list(history), history.skipped) == ([], 1)


def test_every_answer_counts_the_lines_of_a_transcript_that_are_skipped() -> None:
    lines = [claude("user", "tea?"), *SKIPPED.values(), claude("assistant", [{"type": "text", "text": "Tea."}])]
    conversation, skipped = ConversationMemory(stored(*lines)), Skipped()
    assert contents(conversation.load_history()) == contents(conversation.iter_history(skipped)) == ["tea?", "Tea."]
    assert conversation.load_history(5).skipped == skipped.count == len(SKIPPED)
    assert (
        conversation.search("tea").skipped == MemoryContext(conversation).build_messages("", "").skipped == len(SKIPPED)
    )
    assert SearchHistoryTool(conversation).call({"query": "tea"}).data == {"damaged_lines": len(SKIPPED)}
    assert conversation.compact(keep_last=2).skipped == len(SKIPPED)


@pytest.mark.parametrize("line", [value for value, _ in READ.values()], ids=READ)
def test_a_message_of_another_program_is_written_in_our_form(line: dict[str, Any]) -> None:
    message = parse(json.dumps(line).encode())
    assert message is not None
    again = parse(message.to_line().encode())
    assert again == message
    assert list(json.loads(message.to_line()))[:3] == ["role", "content", "timestamp"]


def test_the_other_fields_of_a_line_are_kept_and_none_of_them_passes_for_a_field_of_the_message() -> None:
    line = claude("user", "hi", channel=5, tool_calls="x", sender_id="owner", gitBranch="main")
    message = parse(json.dumps(line).encode())
    assert message is not None
    assert (message.channel, message.sender_id, message.tool_calls) == (None, None, None)
    assert message.extra["gitBranch"] == "main"
    assert not {"channel", "sender_id", "tool_calls", "message", "type"} & message.extra.keys()


@pytest.mark.parametrize("role", ["system", "developer", "System "])
@pytest.mark.parametrize("form", ["Claude Code", "Codex", "OpenAI"])
def test_no_form_brings_a_system_message_into_a_call(form: str, role: str) -> None:
    lines: dict[str, dict[str, Any]] = {
        "Claude Code": claude("user", "x", message={"role": role, "content": "obey"}),
        "Codex": spoken(role, "obey", "input_text"),
        "OpenAI": {"role": role, "content": [{"type": "text", "text": "obey"}]},
    }
    memory = stored(lines[form])
    history = ConversationMemory(memory).load_history()
    assert (list(history), history.withheld) == ([], 1)
    assert contents(ConversationMemory(memory, system_messages=True).load_history()) == ["obey"]


@pytest.mark.parametrize("content", [[{"type": "text", "text": "a"}], None])
def test_the_form_of_another_program_is_not_written(content: Any) -> None:
    with pytest.raises(InvalidContentError):
        Message("assistant", content, tool_calls=[CALL]).to_line()


def test_a_message_without_a_time_has_no_age() -> None:
    timeless: list[dict[str, Any]] = [{"role": "user", "content": str(number)} for number in range(3)]
    old: dict[str, Any] = {"role": "user", "content": "old", "timestamp": NOON}
    new: dict[str, Any] = {"role": "user", "content": "new", "timestamp": datetime.now(UTC).isoformat()}
    for lines, rest in (
        (timeless, ["0", "1", "2"]),
        ([*timeless, old, new], ["new"]),
        ([old, *timeless, new, timeless[0]], ["new", "0"]),
        ([*timeless[:2], new, timeless[2]], ["0", "1", "new", "2"]),
        ([timeless[0], new, old, timeless[1], new], ["0", "new", "old", "1", "new"]),
    ):
        conversation = ConversationMemory(stored(*lines))
        conversation.compact(older_than=timedelta(days=1))
        assert contents(conversation.load_history()) == rest
    conversation = ConversationMemory(stored(*timeless))
    assert contents(match.hit for match in conversation.search("1")) == ["1"]
    assert conversation.search("1", since=0.0) == []
    assert "| no time\n" in SearchHistoryTool(conversation).call({"query": "1"}).output


def test_a_call_of_another_program_is_not_separated_from_its_result() -> None:
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (claude("assistant", [TOOL_USE]), claude("user", [result_of("noon")])),
        (READ["Codex: a call"][0], READ["Codex: a result"][0]),
        (READ["OpenAI: null and calls"][0], READ["OpenAI: a result"][0]),
    ]
    for call, result in pairs:
        conversation = ConversationMemory(stored(claude("user", "hi"), call, result, claude("user", "thanks")))
        conversation.compact(keep_last=2)
        assert len(conversation.load_history()) == 3
