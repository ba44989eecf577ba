"""The messages of one model call: the memory document, the history, and labels of channels and senders."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import datetime

import pytest

from agent_memory import AgentMemory, ReadError, hookimpl
from agent_memory.conversation import ConversationMemory, MemoryContext, Message
from tests.conversation.histories import HISTORY, MEMORY, NOON, contents, line, lines

SYSTEM = "Be kind."
BOT = """
from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryContext

memory = AgentMemory.open("s3://bot-memories/bot")
context = MemoryContext(ConversationMemory(memory))
for text in ("one", "two", "three"):
    messages = context.build_messages("Be kind.", text)
    assert messages.degraded
    assert context.persist_exchange(text, "reply") is False
memory.close()
"""


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://")


@pytest.fixture
def context(memory: AgentMemory) -> MemoryContext:
    return MemoryContext(ConversationMemory(memory), owner=["@me:home", "42"])


def test_the_context_of_an_empty_memory_is_the_prompt_and_the_users_message(context: MemoryContext) -> None:
    built = context.build_messages(SYSTEM, "Hello")
    assert [(message.role, message.content) for message in built] == [("system", SYSTEM), ("user", "Hello")]
    assert not built.degraded


def test_the_memory_document_follows_the_prompt(memory: AgentMemory, context: MemoryContext) -> None:
    memory.write(MEMORY, "# Me\n\nI like tea.\n")
    system, _ = context.build_messages(SYSTEM, "Hello")
    assert system.content == "Be kind.\n\n## Your Memory\n\n# Me\n\nI like tea.\n"


@pytest.mark.parametrize("blank", ["", " ", "\n\n\t"])
def test_a_blank_memory_document_is_omitted(memory: AgentMemory, context: MemoryContext, blank: str) -> None:
    memory.write(MEMORY, blank)
    assert context.build_messages(SYSTEM, "Hello")[0].content == SYSTEM


def test_the_history_is_between_the_prompt_and_the_users_message(memory: AgentMemory, context: MemoryContext) -> None:
    memory.write(HISTORY, lines(100))
    expected = [f"{number}" for number in range(20, 100)]
    assert contents(context.build_messages(SYSTEM, "Hello")) == [SYSTEM, *expected, "Hello"]


@pytest.mark.parametrize(("last_n", "expected"), [(0, []), (1, ["2"]), (2, ["1", "2"]), (5, ["0", "1", "2"])])
def test_last_n_limits_the_history_in_a_context(memory: AgentMemory, last_n: int, expected: list[str]) -> None:
    memory.write(HISTORY, lines(3))
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
def test_a_message_of_a_channel_is_labelled_with_its_channel_and_sender(
    memory: AgentMemory, context: MemoryContext, stored: bytes, shown: str
) -> None:
    memory.write(HISTORY, stored)
    _, message, _ = context.build_messages(SYSTEM, "Hello")
    assert message.content == shown


def test_only_the_content_of_a_labelled_message_changes(memory: AgentMemory, context: MemoryContext) -> None:
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


def test_a_line_of_another_shape_is_omitted_from_the_context(memory: AgentMemory, context: MemoryContext) -> None:
    memory.write(HISTORY, line("a") + line("b", channel="tg", sender_id=["42"]) + line("c"))
    built = context.build_messages(SYSTEM, "Hello")
    assert (contents(built), built.degraded) == ([SYSTEM, "a", "c", "Hello"], False)


def test_an_owner_that_is_a_plain_str_is_refused(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="collection"):
        MemoryContext(ConversationMemory(memory), owner="42")


class Outage:
    """A guard that refuses every operation for the same cause."""

    @hookimpl
    def agent_memory_before_operation(self) -> None:
        raise ReadError("the store is out of reach, 7 requests in 3.1 s")


def test_a_bot_without_credentials_prints_one_message_per_failure_on_standard_error() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    environment |= {"AWS_CONFIG_FILE": os.devnull}
    done = subprocess.run([sys.executable, "-c", BOT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert sum(line.startswith("memory could not be read (ReadError: ") for line in lines) == 1
    assert sum(line.startswith("the exchange could not be stored (AppendError: ") for line in lines) == 1
    assert "credentials" in done.stderr
    assert "bot-memories" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_degraded_context_has_its_cause_and_each_cause_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent_memory")
    context = MemoryContext(ConversationMemory(AgentMemory.open("memory://", plugins=[Outage()])))
    causes = [context.build_messages(SYSTEM, "Hello").cause for _ in range(3)]
    assert all("out of reach" in str(cause) for cause in causes)
    told = [record for record in caplog.records if record.getMessage().startswith("memory could not be read")]
    assert [record.levelname for record in told] == ["WARNING", "INFO", "INFO"]
    assert "out of reach" in told[0].getMessage()


def test_a_context_with_a_readable_memory_has_no_cause(context: MemoryContext) -> None:
    built = context.build_messages(SYSTEM, "Hello")
    assert (built.degraded, built.cause) == (False, None)
