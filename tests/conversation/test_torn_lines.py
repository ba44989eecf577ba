"""A crash during an append loses only the line that was being written."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, Message
from tests.conversation.histories import HISTORY, contents, line, lines, opened
from tests.support.servers import Root

COMPLETE = 999
FIRST = lines(COMPLETE)
TEXT = 'Grüße "メモ" \\ 😀'
LAST = Message("user", TEXT, channel="tg", sender_id="42", extra={"new": [1]}).to_line().encode() + b"\n"
NEW = Message("user", "the new one")


def cuts(step: int) -> list[int]:
    """Lengths of the partial last line: every ``step`` bytes, and the special cases."""
    return sorted({*range(0, len(LAST), step), 1, len(LAST) - 2, len(LAST) - 1, len(LAST)})


def assert_nothing_else_is_lost(memory: AgentMemory, cut: int) -> None:
    conversation = ConversationMemory(memory)
    memory.write(HISTORY, FIRST + LAST[:cut])
    conversation.append_message(NEW)
    is_whole = cut >= len(LAST) - 1
    expected = [*(f"{number}" for number in range(COMPLETE)), *([TEXT] if is_whole else []), NEW.content]
    history = conversation.load_history()
    assert contents(history) == expected
    assert history.skipped == (0 if is_whole or cut == 0 else 1)
    assert conversation.load_history(2) == history[-2:]
    assert contents(match.hit for match in conversation.search("NEW ONE")) == [NEW.content]


def test_a_torn_last_line_loses_neither_a_complete_nor_the_next_message(root: Root) -> None:
    with opened(root) as memory:
        for cut in cuts(27 if root.url.startswith("s3:") else 9):
            assert_nothing_else_is_lost(memory, cut)


@pytest.mark.long
def test_a_line_torn_at_any_byte_loses_neither_a_complete_nor_the_next_message(root: Root) -> None:
    with opened(root) as memory:
        for cut in cuts(1):
            assert_nothing_else_is_lost(memory, cut)


def test_the_next_message_is_appended_to_a_history_of_one_torn_line(root: Root) -> None:
    memory = opened(root)
    for cut in (1, len(LAST) // 2, len(LAST) - 2):
        memory.write(HISTORY, LAST[:cut])
        ConversationMemory(memory).append_messages([NEW, NEW])
        assert ConversationMemory(memory).load_history() == [NEW, NEW]


def test_an_exchange_after_a_torn_line_begins_on_a_new_line(root: Root) -> None:
    memory = opened(root)
    memory.write(HISTORY, line("whole") + LAST[:20])
    ConversationMemory(memory).append_messages([NEW, NEW])
    stored = memory.read_bytes(HISTORY)
    assert stored.split(b"\n") == [line("whole")[:-1], LAST[:20], *[NEW.to_line().encode()] * 2, b""]


def test_a_torn_line_stays_stored_unchanged(root: Root) -> None:
    memory = opened(root)
    conversation = ConversationMemory(memory)
    memory.write(HISTORY, line("whole") + LAST[:20])
    for _ in range(3):
        conversation.append_message(NEW)
    assert memory.read_bytes(HISTORY).startswith(line("whole") + LAST[:20] + b"\n{")
    assert conversation.load_history().skipped == 1


def test_a_last_line_without_a_newline_is_complete(root: Root) -> None:
    memory = opened(root)
    conversation = ConversationMemory(memory)
    memory.write(HISTORY, line("a") + line("b").rstrip(b"\n"))
    assert contents(conversation.load_history()) == ["a", "b"]
    conversation.append_message(NEW)
    assert contents(conversation.load_history()) == ["a", "b", NEW.content]
