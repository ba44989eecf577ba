"""Appending to a history: an exchange is one append and stays contiguous beside any number of other writers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_memory import AgentMemory, OperationDenied
from agent_memory.conversation import ConversationMemory, MemoryContext, Message
from agent_memory.testing import RecordingPlugin
from tests.conversation.histories import HISTORY, KINDS, Failing, Kind, contents, line, opened, root_on
from tests.support.processes import in_processes
from tests.support.servers import ATOMIC, Root

sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
MANY = [Message("user", "a"), Message("assistant", "b"), Message("tool", "c")]


@pytest.fixture(params=["local", "memory", "ministack"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return root_on(request, tmp_path)


@sync_and_async
def test_appended_messages_are_loaded_again(root: Root, kind: Kind) -> None:
    conversation = kind(root).conversation
    conversation.append_message(MANY[0])
    conversation.append_messages(MANY[1:])
    conversation.append_messages(iter(MANY))
    assert conversation.load_history() == MANY * 2
    assert opened(root).read_bytes(HISTORY).count(b"\n") == 6


@sync_and_async
def test_an_exchange_is_one_append_and_nothing_else(root: Root, kind: Kind) -> None:
    recorder = RecordingPlugin()
    surfaces = kind(root, recorder)
    surfaces.conversation.append_messages(MANY)
    assert surfaces.context.persist_exchange("Hello", "Hi", channel="tg", sender_id="42")
    asked = [(operation.kind, operation.path) for operation in recorder.before]
    assert asked == [("append", HISTORY)] * 2
    assert [outcome.status for _, outcome in recorder.after] == ["ok", "ok"]


@sync_and_async
def test_appending_no_messages_makes_no_operation(root: Root, kind: Kind) -> None:
    recorder = RecordingPlugin()
    kind(root, recorder).conversation.append_messages([])
    assert recorder.before == []
    assert opened(root).list() == ()


def test_an_exchange_is_the_users_message_and_the_final_text() -> None:
    conversation = ConversationMemory(AgentMemory.open("memory://"))
    assert MemoryContext(conversation).persist_exchange("Hello", "Hi", channel="tg", sender_id="42")
    user, assistant = conversation.load_history()
    assert (user.role, user.content, user.channel, user.sender_id) == ("user", "Hello", "tg", "42")
    assert (assistant.role, assistant.content, assistant.channel, assistant.sender_id) == (
        "assistant",
        "Hi",
        "tg",
        None,
    )
    assert user.timestamp <= assistant.timestamp


def test_a_refused_append_stores_none_of_its_messages(root: Root) -> None:
    opened(root).write(HISTORY, line("before"))
    with pytest.raises(OperationDenied):
        ConversationMemory(opened(root, Failing("append", HISTORY))).append_messages(MANY)
    assert opened(root).read_bytes(HISTORY) == line("before")


def test_an_append_does_not_change_the_existing_content(root: Root) -> None:
    before = b"\xff garbage\r\n\n" + line("a") + b"torn"
    opened(root).write(HISTORY, before)
    ConversationMemory(opened(root)).append_messages(MANY)
    assert opened(root).read_bytes(HISTORY).startswith(before + b"\n{")


# Many writers.


@pytest.fixture(params=ATOMIC)
def racing_root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root on every backend with atomic writes."""
    return root_on(request, tmp_path)


def append_exchanges(number: int, _: object, root: Root, exchanges: int) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        context = MemoryContext(ConversationMemory(memory))
        for exchange in range(exchanges):
            text = f"{number}:{exchange}"
            assert context.persist_exchange(f"{text} " + "x" * 5000, f"{text} " + "y" * 5000)


def assert_whole_and_adjacent(root: Root, writers: int, exchanges: int) -> None:
    history = ConversationMemory(opened(root)).load_history()
    assert history.skipped == 0
    said = [content.split()[0] for content in contents(history)]
    assert [message.role for message in history] == ["user", "assistant"] * writers * exchanges
    assert said[::2] == said[1::2], "an exchange was torn apart"
    for number in range(writers):
        own = [text for text in said[::2] if text.startswith(f"{number}:")]
        assert own == [f"{number}:{exchange}" for exchange in range(exchanges)]


@pytest.mark.parametrize("exchanges", [10, pytest.param(200, marks=pytest.mark.long)])
def test_exchanges_of_many_processes_are_complete_and_contiguous(tmp_path: Path, exchanges: int) -> None:
    root = Root(str(tmp_path), {})
    in_processes(8, append_exchanges, root, exchanges)
    assert_whole_and_adjacent(root, 8, exchanges)


@pytest.mark.parametrize(("writers", "exchanges"), [(8, 2), pytest.param(16, 20, marks=pytest.mark.long)])
def test_exchanges_of_many_threads_are_complete_and_contiguous(racing_root: Root, writers: int, exchanges: int) -> None:
    barrier = threading.Barrier(writers)

    def work(number: int) -> None:
        barrier.wait(60)
        append_exchanges(number, barrier, racing_root, exchanges)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(work, range(writers)))
    assert_whole_and_adjacent(racing_root, writers, exchanges)


def test_a_reader_never_sees_a_partial_exchange(racing_root: Root) -> None:
    done = threading.Event()

    def read() -> None:
        conversation = ConversationMemory(opened(racing_root))
        while not done.is_set():
            history = conversation.load_history()
            assert history.skipped == 0
            assert len(history) % 2 == 0

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        append_exchanges(0, None, racing_root, 20)
        done.set()
        reading.result()
