"""The messages of one model call: what the model is told of its memory, and who said what where."""

from __future__ import annotations

from datetime import datetime

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryContext, Message
from tests.conversation.histories import HISTORY, MEMORY, NOON, contents, line, lines

SYSTEM = "Be kind."


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://")


@pytest.fixture
def context(memory: AgentMemory) -> MemoryContext:
    return MemoryContext(ConversationMemory(memory), owner=["@me:home", "42"])


def test_a_context_of_an_empty_memory_is_the_prompt_and_the_users_message(context: MemoryContext) -> None:
    built = context.build_messages(SYSTEM, "Hello")
    assert [(message.role, message.content) for message in built] == [("system", SYSTEM), ("user", "Hello")]
    assert not built.degraded


def test_the_memory_document_stands_below_the_prompt(memory: AgentMemory, context: MemoryContext) -> None:
    memory.write(MEMORY, "# Me\n\nI like tea.\n")
    system, _ = context.build_messages(SYSTEM, "Hello")
    assert system.content == "Be kind.\n\n## Your Memory\n\n# Me\n\nI like tea.\n"


@pytest.mark.parametrize("blank", ["", " ", "\n\n\t"])
def test_a_blank_document_is_not_told(memory: AgentMemory, context: MemoryContext, blank: str) -> None:
    memory.write(MEMORY, blank)
    assert context.build_messages(SYSTEM, "Hello")[0].content == SYSTEM


def test_the_history_stands_between_the_prompt_and_the_users_message(
    memory: AgentMemory, context: MemoryContext
) -> None:
    memory.write_bytes(HISTORY, lines(100))
    expected = [f"{number}" for number in range(20, 100)]
    assert contents(context.build_messages(SYSTEM, "Hello")) == [SYSTEM, *expected, "Hello"]


@pytest.mark.parametrize(("last_n", "expected"), [(0, []), (1, ["2"]), (2, ["1", "2"]), (5, ["0", "1", "2"])])
def test_a_context_holds_as_much_history_as_it_is_told(memory: AgentMemory, last_n: int, expected: list[str]) -> None:
    memory.write_bytes(HISTORY, lines(3))
    context = MemoryContext(ConversationMemory(memory), last_n=last_n)
    assert contents(context.build_messages(SYSTEM, "Hello")) == [SYSTEM, *expected, "Hello"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (line("hi"), "hi"),
        (line("hi", sender_id="42"), "hi"),
        (line("hi", channel="tg", sender_id="42"), "[tg / owner]\nhi"),
        (line("hi", channel="tg", sender_id="@me:home"), "[tg / owner]\nhi"),
        (line("hi", channel="tg", sender_id="43"), "[tg / 43]\nhi"),
        (line("hi", channel="tg"), "[tg / unknown]\nhi"),
        (line("hi", channel="tg", sender_id=""), "[tg / unknown]\nhi"),
        (line("hi", "assistant", channel="tg"), "[tg / assistant]\nhi"),
        (line("hi", "assistant", channel="tg", sender_id="42"), "[tg / assistant]\nhi"),
        (line("", channel="tg", sender_id="43"), "[tg / 43]\n"),
    ],
)
def test_a_message_of_a_channel_is_shown_with_its_channel_and_sender(
    memory: AgentMemory, context: MemoryContext, stored: bytes, shown: str
) -> None:
    memory.write_bytes(HISTORY, stored)
    _, message, _ = context.build_messages(SYSTEM, "Hello")
    assert message.content == shown


def test_nothing_else_of_a_message_is_changed(memory: AgentMemory, context: MemoryContext) -> None:
    stored = Message(
        "assistant", "hi", datetime.fromisoformat(NOON), [{"id": "1"}], "0", "because", "tg", "42", {"new": 1}
    )
    memory.write(HISTORY, stored.to_line())
    _, message, _ = context.build_messages(SYSTEM, "Hello")
    assert message == Message(
        "assistant",
        "[tg / assistant]\nhi",
        datetime.fromisoformat(NOON),
        [{"id": "1"}],
        "0",
        "because",
        "tg",
        "42",
        {"new": 1},
    )
    assert memory.read(HISTORY) == stored.to_line(), "building a context changed the history"


def test_a_message_of_another_shape_is_left_out_of_the_context(memory: AgentMemory, context: MemoryContext) -> None:
    memory.write_bytes(HISTORY, line("a") + line("b", channel="tg", sender_id=["42"]) + line("c"))
    built = context.build_messages(SYSTEM, "Hello")
    assert (contents(built), built.degraded) == ([SYSTEM, "a", "c", "Hello"], False)


def test_one_owner_is_a_collection_too(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="collection"):
        MemoryContext(ConversationMemory(memory), owner="42")
