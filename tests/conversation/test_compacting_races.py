"""Processes that compact one history, append to it and are killed lose no message and archive none twice."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, Message
from tests.conversation import naive
from tests.conversation.histories import HISTORY, opened
from tests.support import sizes
from tests.support.processes import in_processes, started
from tests.support.servers import Root

ARCHIVE = "2026/history.jsonl"
on_disk_and_s3 = pytest.mark.parametrize("root", ["local", "ministack"], indirect=True)


def conversation_of(root: Root) -> ConversationMemory:
    return ConversationMemory(AgentMemory.open(root.url, storage_options=root.options))


def append(number: int, root: Root, exchanges: int) -> None:
    conversation = conversation_of(root)
    for exchange in range(exchanges):
        conversation.append_messages([Message(role, f"{number}:{exchange}") for role in ("user", "assistant")])


def append_or_compact(number: int, barrier: Any, root: Root, writers: int, exchanges: int, archive: str | None) -> int:
    """Append as one of the writers; another process compacts again and again and returns the removed lines."""
    barrier.wait()
    if number < writers:
        append(number, root, exchanges)
        return 0
    conversation = conversation_of(root)
    return sum(conversation.compact(keep_last=3, archive_to=archive).removed for _ in range(exchanges))


def compact_for_ever(number: int, barrier: Any, root: Root) -> None:
    barrier.wait()
    conversation, rng = conversation_of(root), random.Random(number)
    while True:
        conversation.compact(keep_last=rng.randint(1, 4), archive_to=ARCHIVE)


def messages_in(memory: AgentMemory, *paths: str) -> list[str]:
    data = b"".join(memory.read_bytes(path) for path in paths if memory.exists(path))
    assert b"removal" not in data
    assert naive.bad_lines(data) == 0
    return [message.content for message in naive.messages(data)]


def assert_each_once_and_in_order(found: list[str], writers: int, exchanges: int) -> None:
    for number in range(writers):
        own = [text for text in found if text.startswith(f"{number}:")]
        assert own == [f"{number}:{exchange}" for exchange in range(exchanges) for _ in range(2)]
    assert len(found) == 2 * writers * exchanges


@on_disk_and_s3
def test_processes_that_append_and_compact_at_once_lose_no_message(root: Root) -> None:
    rounds, exchanges = (5, 100) if sizes.is_long else (2, 15)
    for number in range(rounds):
        own = Root(f"{root.url}/{number}", root.options)
        removed = in_processes(5, append_or_compact, own, 3, exchanges, ARCHIVE)
        memory = opened(own)
        conversation_of(own).compact(keep_last=3, archive_to=ARCHIVE)  # removes the note of an unfinished call, if any
        assert_each_once_and_in_order(messages_in(memory, ARCHIVE, HISTORY), 3, exchanges)
        assert sum(removed) <= len(messages_in(memory, ARCHIVE))
        assert len(messages_in(memory, HISTORY)) == 3


@on_disk_and_s3
def test_a_removal_without_an_archive_loses_no_line_of_another_process(root: Root) -> None:
    exchanges = 100 if sizes.is_long else 15
    removed = in_processes(4, append_or_compact, root, 3, exchanges, None)
    kept = messages_in(opened(root), HISTORY)
    assert sum(removed) + len(kept) == 2 * 3 * exchanges


@on_disk_and_s3
def test_compacting_processes_that_are_killed_lose_no_message(root: Root) -> None:
    rounds = 100 if sizes.is_long else 6
    memory, rng = opened(root), random.Random(1)
    for number in range(rounds):
        with started(2, compact_for_ever, root) as workers:
            begun = time.monotonic()
            for exchange in range(5):
                ConversationMemory(memory).append_message(Message("user", f"{number}:{exchange}"))
                time.sleep(rng.random() / 50)
            time.sleep(max(0.0, rng.random() / 5 - time.monotonic() + begun))
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
    ConversationMemory(memory).compact(keep_last=2, archive_to=ARCHIVE)
    assert messages_in(memory, ARCHIVE, HISTORY) == [
        f"{number}:{exchange}" for number in range(rounds) for exchange in range(5)
    ]
