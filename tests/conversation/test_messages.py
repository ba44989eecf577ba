"""A message and its line: lines of other writers are read completely, and an invalid message is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, InvalidContentError
from agent_memory.conversation import ConversationMemory, CronJob, MemoryContext, Message, SearchHistoryTool
from agent_memory.conversation.messages import parse
from agent_memory.reading.lines import MAX_LINE
from tests.conversation import naive
from tests.conversation.histories import HISTORY, JOBS, MEMORY, NOON, contents, line, opened
from tests.support.servers import Root

THEIR_HISTORY = (
    b'{"role": "user", "content": "Gr\\u00fc\\u00dfe", "timestamp": "2026-02-20T18:01:02.345678", "channel": "matrix", '
    b'"sender_id": "@alex:matrix.org"}\n'
    b'{"role": "assistant", "content": "", "timestamp": "2026-02-20T18:01:03", "tool_calls": [{"id": "call_1", '
    b'"name": "shell", "arguments": {"command": "date"}}]}\n'
    b'{"role": "tool", "content": "18:01", "timestamp": "2026-02-20T18:01:04", "tool_call_id": "call_1"}\n'
    b'{"role": "assistant", "content": "\\ud83d\\ude00", "timestamp": "2026-02-20T18:01:05+00:00", '
    b'"reasoning_content": "smile", "channel": "matrix", "sender_id": "assistant"}\n'
)
THEIR_JOBS = b"""[
  {
    "id": "a1",
    "name": "T\\u00e4glich",
    "message": "Guten Morgen",
    "schedule": "0 8 * * *",
    "channel": "matrix:!room",
    "enabled": false,
    "timezone": "Europe/Berlin",
    "last_run": "2026-02-20T08:00:00"
  },
  {"id": "a2", "name": "n", "message": "m", "schedule": "every 5m", "last_run": null}
]"""
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2))
times = st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=-30))]))
optional = st.none() | st.text(st.characters(codec="utf-8"))


@given(
    st.builds(
        Message,
        role=st.text(st.characters(codec="utf-8"), min_size=1),
        content=st.text(st.characters(codec="utf-8")),
        timestamp=times,
        tool_calls=st.none() | st.lists(st.dictionaries(st.sampled_from(["id", "name"]), values)),
        tool_call_id=optional,
        reasoning_content=optional,
        channel=optional,
        sender_id=optional,
        extra=st.dictionaries(st.sampled_from(["new", "Role", "x y"]), values),
    )
)
def test_a_message_is_parsed_back_from_its_line(message: Message) -> None:
    stored = message.to_line().encode()
    assert b"\n" not in stored
    assert parse(stored) == naive.message_in(stored) == message


def test_a_line_has_its_fields_in_order_and_omits_empty_fields() -> None:
    message = Message("user", "é", datetime.fromisoformat(NOON), channel="tg", extra={"new": 1})
    assert message.to_line() == (
        '{"role": "user", "content": "é", "timestamp": "2026-03-01T12:00:00+00:00", "channel": "tg", "new": 1}'
    )


def test_the_fields_of_other_writers_survive_a_rewrite(root: Root) -> None:
    memory = opened(root)
    conversation = ConversationMemory(memory)
    memory.write(HISTORY, line("a", edited=True, reactions=["👍"], content_type={"x": None}))
    (message,) = conversation.load_history()
    assert message.extra == {"edited": True, "reactions": ["👍"], "content_type": {"x": None}}
    memory.delete(HISTORY)
    conversation.append_message(message)
    assert json.loads(memory.read(HISTORY)) == json.loads(
        line("a", edited=True, reactions=["👍"], content_type={"x": None})
    )


def test_an_extra_field_never_replaces_a_field_of_the_message() -> None:
    message = Message("user", "ours", extra={"content": "theirs", "role": "theirs"})
    assert json.loads(message.to_line())["content"] == "ours"
    assert json.loads(message.to_line())["role"] == "user"


def nested(depth: int) -> list[Any]:
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer]
    return outer


NO_MESSAGES: dict[str, dict[str, Any]] = {
    "a lone surrogate in the content": {"content": "\ud800"},
    "a lone surrogate in a channel": {"channel": "\udfff"},
    "a lone surrogate in another's field": {"extra": {"\ud800": 1}},
    "a set": {"extra": {"new": {1}}},
    "bytes": {"tool_calls": [{"id": b"1"}]},
    "a number that JSON has not": {"extra": {"new": float("nan")}},
    "infinity": {"tool_calls": [{"arguments": float("inf")}]},
    "deep nesting": {"extra": {"new": nested(100_000)}},
    "no role": {"role": ""},
    "a role that is no text": {"role": 5},
    "a content that is no text": {"content": None},
    "a channel that is no text": {"channel": 5},
    "tool calls that are no list": {"tool_calls": {"id": "1"}},
    "a line that is too long": {"content": "x" * MAX_LINE},
    "a line that is too long as UTF-8": {"content": "é" * (MAX_LINE // 2)},
}


@pytest.mark.parametrize("fields", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_an_invalid_message_is_refused_and_nothing_is_written(fields: dict[str, Any]) -> None:
    memory = AgentMemory.open("memory://")
    message = Message(**{"role": "user", **fields})
    with pytest.raises(InvalidContentError):
        message.to_line()
    with pytest.raises(InvalidContentError):
        ConversationMemory(memory).append_messages([Message("user", "fine"), message])
    assert MemoryContext(ConversationMemory(memory)).persist_exchange("x", message.content) is ("content" not in fields)
    assert memory.exists(HISTORY) is ("content" not in fields)


def test_a_line_of_the_maximum_length_is_stored_and_loaded() -> None:
    conversation = ConversationMemory(AgentMemory.open("memory://"))
    shortest = len(Message("user", timestamp=datetime.fromisoformat(NOON)).to_line())
    longest = Message("user", "x" * (MAX_LINE - shortest), datetime.fromisoformat(NOON))
    assert len(longest.to_line()) == MAX_LINE
    conversation.append_messages([longest, Message("user", "after")])
    assert contents(conversation.load_history()) == contents(conversation.load_history(2)) == [longest.content, "after"]


def test_a_directory_of_another_writer_opens_without_conversion(root: Root) -> None:
    memory = opened(root)
    for name, data in [(HISTORY, THEIR_HISTORY), (JOBS, THEIR_JOBS), (MEMORY, "# Über mich\n".encode())]:
        memory.write(name, data)
    conversation = ConversationMemory(memory)
    history = conversation.load_history()
    assert history == conversation.load_history(4) == naive.messages(THEIR_HISTORY)
    assert contents(history) == ["Grüße", "", "18:01", "😀"]
    assert history[1].tool_calls == [{"id": "call_1", "name": "shell", "arguments": {"command": "date"}}]
    assert not any(message.extra for message in history)
    assert "**USER: Grüße**" in SearchHistoryTool(conversation).call({"query": "GRÜSSE".replace("SS", "ß")}).output
    assert conversation.load_cron_jobs() == [
        CronJob(
            "a1", "Täglich", "Guten Morgen", "0 8 * * *", "matrix:!room", False, "Europe/Berlin", "2026-02-20T08:00:00"
        ),
        CronJob("a2", "n", "m", "every 5m"),
    ]
    assert conversation.load_global_memory() == "# Über mich\n"
    conversation.append_message(Message("user", "new"))
    assert memory.read_bytes(HISTORY).startswith(THEIR_HISTORY + b'{"role": "user", "content": "new", "timestamp": ')


def test_a_line_of_another_writer_is_written_again_with_its_fields_in_order() -> None:
    for stored in THEIR_HISTORY.splitlines():
        message = parse(stored)
        assert message is not None
        assert list(json.loads(message.to_line()).items()) == list(json.loads(stored).items())


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_line_with_nan_or_infinity_is_no_message(constant: str) -> None:
    line = f'{{"role": "user", "timestamp": "2026-01-01", "score": {constant}}}'.encode()
    assert parse(line.replace(constant.encode(), b"1")) is not None
    assert parse(line) is None
