"""Reading a history: its last messages, all messages, and an iteration in bounded memory while it grows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, ConflictError
from agent_memory.conversation import ConversationMemory, History, Message
from agent_memory.conversation.messages import Skipped
from agent_memory.reading.lines import BLOCK, TAIL
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.conversation import naive
from tests.conversation.histories import (
    HISTORY,
    KINDS,
    Kind,
    contents,
    line,
    lines,
    opened,
    root_on,
    warnings,
)
from tests.conversation.strategies import cases
from tests.support.servers import Root
from tests.support.sizes import examples

sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
Change = Callable[[AgentMemory], object]


@pytest.fixture(params=["local", "memory", "ministack"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return root_on(request, tmp_path)


# The last messages.


def stored(data: bytes) -> ConversationMemory:
    memory = AgentMemory.open(MemoryBackend())
    memory.write(HISTORY, data)
    return ConversationMemory(memory)


@examples(200)
@given(cases(), st.none() | st.integers(-1, 12))
def test_load_history_equals_parsing_every_line(case: tuple[bytes, str], last_n: int | None) -> None:
    data, _ = case
    assert stored(data).load_history(last_n) == naive.last_messages(data, last_n)


@examples(100)
@given(cases())
def test_load_history_counts_all_skipped_lines(case: tuple[bytes, str]) -> None:
    data, _ = case
    conversation = stored(data)
    history = conversation.load_history()
    assert history.skipped == naive.bad_lines(data)
    assert bool(history.preview) == bool(history.skipped)
    assert list(conversation.iter_history()) == history


@sync_and_async
def test_the_last_messages_are_given_oldest_first(root: Root, kind: Kind) -> None:
    opened(root).write(HISTORY, lines(5))
    conversation = kind(root).conversation
    for last_n, expected in [(None, "01234"), (-1, ""), (0, ""), (1, "4"), (3, "234"), (5, "01234"), (10**30, "01234")]:
        assert contents(conversation.load_history(last_n)) == list(expected)


@sync_and_async
def test_a_missing_history_loads_as_an_empty_one(root: Root, kind: Kind) -> None:
    conversation = kind(root).conversation
    for last_n in (None, 0, 5):
        assert conversation.load_history(last_n) == History()
    assert list(conversation.iter_history()) == []
    assert conversation.search("x") == []
    assert opened(root).list() == (), "reading created something"


@pytest.mark.parametrize("length", [TAIL, 3 * TAIL, BLOCK, 3 * BLOCK])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
def test_messages_at_block_borders_are_neither_lost_nor_given_twice(length: int, beyond: int) -> None:
    shortest = len(line("last", filler=""))
    last = line("last", filler="." * (length + beyond - shortest))
    assert len(last) == length + beyond
    data = lines(50, 1000) + last
    conversation = stored(data)
    expected = [*(f"{number}" for number in range(50)), "last"]
    assert contents(conversation.load_history()) == expected
    assert contents(conversation.iter_history()) == expected
    for last_n in (1, 2, 50, 51, 52):
        assert contents(conversation.load_history(last_n)) == expected[-last_n:]


def test_the_last_messages_of_a_large_history_are_read_from_its_end(
    memory: AgentMemory, conversation: ConversationMemory
) -> None:
    memory.write(HISTORY, b"bad\n" * 1000 + lines(3000, 1000))
    history = conversation.load_history(200)
    assert contents(history) == [f"{number}" for number in range(2800, 3000)]
    assert history.skipped == 0, "it was read from its beginning"


# Skipped lines.


@sync_and_async
def test_skipped_lines_are_counted_and_logged_in_one_warning_per_call(
    root: Root, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    opened(root).write(HISTORY, b"first bad\n\n \r\n" + line("a") + b"\xffbad\n" + line("b") + b"{\n")
    conversation = kind(root).conversation
    for last_n, skipped, preview in [(None, 3, "first bad"), (1, 1, "{"), (2, 2, "{")]:
        history = conversation.load_history(last_n)
        assert (history.skipped, history.preview) == (skipped, preview)
        (warning,) = warnings(caplog)
        assert warning.startswith("WARNING")
        assert f"{skipped} lines" in warning
        assert warning.endswith(preview)


def test_a_history_without_bad_lines_is_loaded_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    conversation = stored(line("a") + b"\n\r\n  \n" + line("b"))
    for last_n in (None, 2):
        history = conversation.load_history(last_n)
        assert (contents(history), history.skipped, history.preview) == (["a", "b"], 0, "")
    assert warnings(caplog) == []


@pytest.mark.parametrize("bad", [b"x" * 1000, b"\xff" * 1000, "é".encode() * 1000, b"\x00\x1b[2J\r" * 100, b'"' * 1000])
def test_a_preview_has_at_most_80_printable_characters(bad: bytes, caplog: pytest.LogCaptureFixture) -> None:
    conversation = stored(bad + b"SECRET\n")
    for last_n in (None, 5):
        preview = conversation.load_history(last_n).preview
        assert 0 < len(preview) <= 80
        assert preview.isascii()
        assert preview.isprintable()
    assert "SECRET" not in caplog.text
    assert "\x1b" not in caplog.text


# All messages, while the history grows.


@sync_and_async
def test_iter_history_equals_load_history(root: Root, kind: Kind) -> None:
    opened(root).write(HISTORY, b"bad\n" + lines(2500, 1000) + b"torn")
    conversation = kind(root).conversation
    assert list(conversation.iter_history()) == conversation.load_history()


def test_iter_history_includes_messages_appended_during_the_iteration(
    root: Root, memory: AgentMemory, conversation: ConversationMemory
) -> None:
    memory.write(HISTORY, lines(2500, 1000))
    found: list[str] = []
    with opened(root) as other, ThreadPoolExecutor(1) as somebody_else:
        for message in conversation.iter_history():
            if len(found) in {0, 1000, 2499}:
                somebody_else.submit(ConversationMemory(other).append_message, Message("user", "more")).result()
            found.append(message.content)
    assert found == [*(f"{number}" for number in range(2500)), "more", "more", "more"]


def test_iter_history_continues_after_a_torn_line(memory: AgentMemory, conversation: ConversationMemory) -> None:
    memory.write(HISTORY, line("a") + b"torn")
    found: list[str] = []
    for message in conversation.iter_history():
        if message.content == "a":
            conversation.append_message(Message("user", "b"))
        found.append(message.content)
    assert found == ["a", "b"]


def test_iter_history_counts_each_skipped_line_when_it_reaches_it(memory: AgentMemory) -> None:
    memory.write(HISTORY, b"bad\n" + lines(2500, 1000) + b"torn")
    skipped = Skipped()
    messages = ConversationMemory(memory).iter_history(skipped)
    next(messages)
    assert (skipped.count, skipped.preview) == (1, "bad")
    assert len(list(messages)) == 2499
    assert (skipped.count, skipped.preview) == (2, "bad")


def test_iter_history_reads_each_block_in_its_own_operation() -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.write(HISTORY, lines(2500, 1000))
    messages = ConversationMemory(memory).iter_history()
    recorder.before.clear()
    next(messages)
    assert len(recorder.before) == 1
    assert len(list(messages)) == 2499
    assert {operation.kind for operation in recorder.before} == {"read"}
    assert 3 <= len(recorder.before) <= 6


REWRITES: dict[str, Change] = {
    "as long": lambda memory: memory.write(HISTORY, lines(2500, 1000).swapcase()),
    "longer": lambda memory: memory.write(HISTORY, b"\n" + lines(2500, 1000)),
    "shorter": lambda memory: memory.write(HISTORY, lines(100, 1000)),
    "deleted": lambda memory: memory.delete(HISTORY),
}


@pytest.mark.parametrize("change", REWRITES.values(), ids=REWRITES)
def test_a_history_rewritten_during_iteration_is_a_conflict(
    memory: AgentMemory, conversation: ConversationMemory, change: Change
) -> None:
    memory.write(HISTORY, lines(2500, 1000))
    messages = conversation.iter_history()
    assert next(messages).content == "0"
    change(memory)
    with pytest.raises(ConflictError):
        list(messages)


def test_an_abandoned_iteration_leaves_the_history_usable(conversation: ConversationMemory) -> None:
    conversation.append_messages([Message("user", "a"), Message("user", "b")])
    for _ in range(3):
        assert next(conversation.iter_history()).content == "a"
    conversation.append_message(Message("user", "c"))
    assert contents(conversation.iter_history()) == ["a", "b", "c"]
