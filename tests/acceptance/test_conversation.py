"""The listed tests and acceptance criteria of the conversation memory, on every backend.

They ask for a history that survives malformed lines, documents for the global memory and the cron jobs, a context
that degrades instead of failing, and a search in the history.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, CronJob, MemoryContext, Message, SearchHistoryTool
from agent_memory.tools import ToolResult
from tests.conversation.histories import (
    HISTORY,
    JOBS,
    KINDS,
    MEMORY,
    Failing,
    Kind,
    contents,
    line,
    lines,
    opened,
    sync_surfaces,
    warnings,
)
from tests.support.servers import Root

Search = Callable[..., ToolResult]
sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
BAD_LINES = [
    b'{"role": "user", "content": \n',
    line("half")[:20] + b"\n",
    b'["user", "hi"]\n',
    b'{"content": "no role", "timestamp": "2026-03-01T12:00:00"}\n',
    line("no such time", timestamp="yesterday"),
    b"\xff\xfe\x80 \xc3\n",
    line("find me").replace(b"me", b"\xff"),
]
BAD = b"".join(BAD_LINES)
WRONG_JOBS = [
    b"\xff[]",
    b"[{",
    b'{"id": "1"}',
    b'["job"]',
    b'[{"id": "1", "name": "n", "message": "m"}]',
    b'[{"id": 1, "name": "n", "message": "m", "schedule": "* * * * *"}]',
]
JOB = CronJob("1", "tea", "Make tea", "0 16 * * *")
NO_JOB = replace(JOB, message="there is no job")


@pytest.fixture
def search(conversation: ConversationMemory) -> Search:
    """Call the tool as a model does."""
    tool = SearchHistoryTool(conversation)
    return lambda query, **arguments: tool.call(json.dumps({"query": query, **arguments}))


def said(*messages: str) -> bytes:
    """A history of ``role: content`` messages, a minute apart."""
    pairs = (message.split(": ", 1) for message in messages)
    return b"".join(
        line(content, role, f"2026-03-01T12:{minute:02}:00") for minute, (role, content) in enumerate(pairs)
    )


# The history.


def test_malformed_lines_are_skipped(memory: AgentMemory, conversation: ConversationMemory) -> None:
    memory.write(HISTORY, line("first") + BAD + line("second") + BAD + line("third"))
    history = conversation.load_history()
    assert contents(history) == ["first", "second", "third"]
    assert history.skipped == 2 * len(BAD_LINES)


def test_last_n_gives_the_last_n_valid_messages(memory: AgentMemory, conversation: ConversationMemory) -> None:
    memory.write(HISTORY, line("first") + line("second") + BAD + line("third") + BAD)
    assert contents(conversation.load_history(2)) == ["second", "third"]


def test_one_malformed_line_does_not_prevent_loading_subsequent_valid_messages(
    memory: AgentMemory, conversation: ConversationMemory
) -> None:
    memory.write(HISTORY, b"{torn" + b"\n" + lines(100))
    assert contents(conversation.load_history()) == [f"{number}" for number in range(100)]


def test_invalid_utf8_bytes_do_not_crash_history_load(memory: AgentMemory, conversation: ConversationMemory) -> None:
    memory.write(HISTORY, bytes(range(128, 256)) * 10 + b"\n" + line("valid") + b"\xc3")
    for last_n in (None, 5):
        history = conversation.load_history(last_n)
        assert (contents(history), history.skipped) == (["valid"], 2)


# The documents.


@sync_and_async
def test_save_global_memory_works_when_parent_directories_do_not_exist(root: Root, kind: Kind) -> None:
    conversation = kind(root).conversation
    assert conversation.load_global_memory() == ""
    conversation.save_global_memory("# Memory\nGrüße, メモ\r\n")
    assert conversation.load_global_memory() == "# Memory\nGrüße, メモ\r\n"
    assert opened(root).list()[0].path == MEMORY


@sync_and_async
def test_cron_jobs_are_stored_and_come_back(root: Root, kind: Kind) -> None:
    jobs = [JOB, CronJob("2", "é", "m", "@daily", "tg:1", False, "UTC", "2026-03-01T12:00:00", {"a": [1]}, {"new": 2})]
    kind(root).conversation.save_cron_jobs(jobs)
    assert kind(root).conversation.load_cron_jobs() == jobs


@sync_and_async
def test_cron_jobs_that_were_never_stored_load_as_an_empty_list(
    root: Root, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    assert kind(root).conversation.load_cron_jobs() == []
    assert warnings(caplog) == []


def test_cron_jobs_that_do_not_parse_load_as_an_empty_list_with_a_warning(
    memory: AgentMemory, conversation: ConversationMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for stored in WRONG_JOBS:
        memory.write(JOBS, stored)
        assert conversation.load_cron_jobs() == []
        (warning,) = warnings(caplog)
        assert warning.startswith(f"WARNING {JOBS}: ")
        assert memory.read_bytes(JOBS) == stored


def test_a_read_during_a_save_sees_the_old_or_the_new_document(root: Root) -> None:
    small, large = "x", "long " * 20_000
    saved = threading.Event()

    def read() -> set[str]:
        reader, seen = sync_surfaces(root).conversation, set()
        while not saved.is_set():
            seen |= {reader.load_global_memory(), *(job.message for job in reader.load_cron_jobs() or [NO_JOB])}
        return seen

    save_both(root, small)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for _ in range(3):
            save_both(root, large)
            save_both(root, small)
        saved.set()
        assert reading.result() <= {small, large}


def save_both(root: Root, text: str) -> None:
    writer = sync_surfaces(root).conversation
    writer.save_global_memory(text)
    writer.save_cron_jobs([replace(JOB, message=text)])


# Degraded mode.


@sync_and_async
@pytest.mark.parametrize(("operation", "path"), [("read", MEMORY), ("read", HISTORY)])
def test_build_messages_failure_still_yields_a_usable_context(
    root: Root, kind: Kind, operation: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened(root).write(MEMORY, "I like tea")
    opened(root).write(HISTORY, line("before"))
    context = kind(root, Failing(operation, path)).context
    built = context.build_messages("Be kind.", "Hello")
    assert [(message.role, message.content) for message in built] == [("system", "Be kind."), ("user", "Hello")]
    assert built.degraded
    assert any(warning.startswith("WARNING memory could not be read") for warning in warnings(caplog))


def test_a_memory_document_that_is_not_utf8_degrades_the_context(
    memory: AgentMemory, conversation: ConversationMemory
) -> None:
    memory.write(MEMORY, b"\xff")
    built = MemoryContext(conversation).build_messages("Be kind.", "Hello")
    assert (contents(built), built.degraded) == (["Be kind.", "Hello"], True)


@sync_and_async
def test_persist_exchange_failure_does_not_crash(root: Root, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    context = kind(root, Failing("append", HISTORY)).context
    assert context.persist_exchange("Hello", "Hi") is False
    assert any(warning.startswith("WARNING the exchange could not be stored") for warning in warnings(caplog))
    assert not opened(root).exists(HISTORY)


@sync_and_async
def test_a_context_that_works_is_not_degraded(root: Root, kind: Kind) -> None:
    context = kind(root).context
    assert context.persist_exchange("Hello", "Hi") is True
    built = context.build_messages("Be kind.", "And now?")
    assert (contents(built), built.degraded) == (["Be kind.", "Hello", "Hi", "And now?"], False)


# The tool search_history.


def test_the_earliest_matches_come_first(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, said("user: tea one", "user: tea two", "user: tea three"))
    output = search("tea", max_results=2).output
    assert [row for row in output.splitlines() if row.startswith("**")] == ["**USER: tea one**", "**USER: tea two**"]


def test_search_shows_the_message_after_the_last_match(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, said("user: tea", "assistant: with milk?", "user: tea again"))
    assert "ASSISTANT: with milk?" in search("tea", max_results=1).output


def test_context_is_the_adjacent_message_of_any_role(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, said("user: far", "tool: near", "user: tea", "system: near", "assistant: far"))
    assert search("tea").output == "## Match 1 — [unknown / unknown] | 2026-03-01 12:02\n\n**USER: tea**\n---"


def test_an_adjacent_message_without_content_is_not_shown(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, said("user: far", "assistant: ", "user: tea", "user: "))
    assert search("tea").output.splitlines()[2:] == ["**USER: tea**", "---"]


def test_only_users_and_assistants_match(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, said("tool: tea", "system: tea", "User: tea"))
    assert search("tea") == ToolResult("No matches found for 'tea'.")
    memory.write(HISTORY, said("user: tea", "assistant: tea"))
    assert search("tea").output.count("## Match") == 2


def test_the_days_limit_drops_old_messages_from_matches_and_from_context(memory: AgentMemory, search: Search) -> None:
    now = datetime.now(tz=UTC)
    ages = {"tea of old": 10, "tea of late": 1, "and cake": 10, "scones": 0}
    messages = (Message("user", content, now - timedelta(days=age)) for content, age in ages.items())
    memory.write(HISTORY, "".join(message.to_line() + "\n" for message in messages))
    assert search("tea", days=5).output.splitlines()[2:] == ["**USER: tea of late**", "USER: scones", "---"]
    for all_time in ({"days": 0}, {"days": -1}, {}):
        assert search("tea", **all_time).output.count("## Match") == 2


def test_max_results_is_clamped(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, lines(60).replace(b'"content": "', b'"content": "tea '))
    assert search("tea").output.count("## Match") == 10
    for asked, given in [(-1, 1), (0, 1), (1, 1), (50, 50), (51, 50), (10**30, 50), (None, 10)]:
        assert search("tea", max_results=asked).output.count("## Match") == given


def test_the_output_has_the_documented_format_word_for_word(memory: AgentMemory, search: Search) -> None:
    long = "é" * 300
    memory.write(
        HISTORY,
        line("Before", timestamp="2026-03-01T08:59:59")
        + line("a TEA", timestamp="2026-03-01T09:00:00", channel="matrix", sender_id="@alex:matrix.org")
        + line(long, "assistant", "2026-03-01T09:01:00", channel="matrix")
        + line("tea" + long, "assistant", "2026-03-01T09:02:30+05:00", channel="matrix"),
    )
    assert search("  tea ") == ToolResult(
        "## Match 1 — [matrix / @alex:matrix.org] | 2026-03-01 09:00\n"
        "\n"
        "USER: Before\n"
        "**USER: a TEA**\n"
        f"ASSISTANT: {long}\n"
        "---\n"
        "## Match 2 — [matrix / unknown] | 2026-03-01 09:02\n"
        "\n"
        f"ASSISTANT: {long}\n"
        f"**ASSISTANT: tea{long[:297]}...**\n"
        "---"
    )


def test_the_message_for_no_match_shows_the_stripped_query(search: Search) -> None:
    assert search("  Green Tea\n") == ToolResult("No matches found for 'Green Tea'.")


def test_a_query_is_required(search: Search) -> None:
    for query in ("", "  \n", None, 5, ["tea"]):
        assert search(query) == ToolResult("Error: query is required", is_error=True)


def test_malformed_lines_do_not_crash_search_history(memory: AgentMemory, search: Search) -> None:
    memory.write(HISTORY, BAD + line("before") + BAD + line("find me") + BAD + line("after") + BAD)
    assert search("find me").output.splitlines()[2:] == ["USER: before", "**USER: find me**", "USER: after", "---"]
