"""Any content of a history and any query of a model: every call returns a result, and no stored data changes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryContext, Message, SearchHistoryTool
from agent_memory.tools import ToolResult
from tests.conversation import naive
from tests.conversation.histories import HISTORY, contents, line, lines, warnings

MEGABYTE = 1_000_000
NOISE = random.Random(4)
BEFORE, AFTER = line("before the bad"), line("after the bad")
BAD: dict[str, bytes] = {
    "binary garbage": NOISE.randbytes(200_000),
    "binary garbage without newlines": NOISE.randbytes(200_000).replace(b"\n", b""),
    "NUL bytes": b"\0" * 100_000,
    "every byte": bytes(range(256)),
    "concatenated JSON": line("a").strip() + line("b").strip(),
    "JSON over two lines": line("a").replace(b", ", b",\n"),
    "deep nesting": b"[" * 100_000,
    "deep nesting in a message": line("deep", extra=0).replace(b": 0}", b": " + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a huge integer": line("huge", extra=0).replace(b": 0}", b": " + b"9" * 100_000 + b"}"),
    "a huge integer for a time": line("huge").replace(b'"2026-03-01T12:00:00+00:00"', b"9" * 4000),
    "a time beyond the calendar": line("late", timestamp="99999-01-01"),
    "a lone surrogate for a time": line("late", timestamp="\ud800"),
    "UTF-16": line("wide").decode().encode("utf-16"),
    "old Mac line ends": line("a").replace(b"\n", b"\r") * 3 + b"{",
    "an overlong NUL": b"\xc0\x80",
    "JSON that is no object": b'null\n5\n"text"\n[]\n{}\nNaN',
    "values of other types": line(["a"])
    + line("a", channel=["x"])
    + line("a", sender_id={})
    + line("a", tool_calls="x"),
    "a line of 10 MB": b"x" * 10 * MEGABYTE,
}
GOOD: dict[str, bytes] = {
    "a byte order mark": b"\xef\xbb\xbf" + line("marked"),
    "blank lines": b"\n \r\n\t\n\n",
    "CRLF": BEFORE.replace(b"\n", b"\r\n"),
    "a first and a last year": line("1", timestamp="0001-01-01") + line("9999", timestamp="9999-12-31T23:59:59-23:59"),
    "a lone surrogate": line("\ud800"),
    "infinity": line("big", extra=0).replace(b": 0}", b": 1e999}"),
    "a message of 10 MB": line("x" * 10 * MEGABYTE),
    "duplicate names": line("a").replace(b'"role": "user"', b'"role": 5, "role": "user"'),
}
QUERIES = ["the bad", "x", "\0", "\ud800", "a\nb", '"', "\\", "\xff", "a" * 100_000, "[[[[", "İ"]


def every_call(conversation: ConversationMemory, queries: Sequence[str] = QUERIES) -> dict[str, Any]:
    """The results of every reading call."""
    tool = SearchHistoryTool(conversation)
    return {
        "all": conversation.load_history(),
        "last": conversation.load_history(3),
        "iterated": list(conversation.iter_history()),
        "found": conversation.search("the bad", since=0.0),
        "answers": [tool.call({"query": query}) for query in queries],
        "context": MemoryContext(conversation).build_messages("system", "user"),
    }


@pytest.mark.parametrize("between", [*BAD.values(), *GOOD.values()], ids=[*BAD, *GOOD])
def test_every_call_returns_a_result_and_loses_no_valid_line(between: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert_nothing_is_lost(AgentMemory.open("memory://"), between)
    assert not [record for record in caplog.records if record.exc_info]


def test_all_bad_lines_together_lose_no_valid_line_on_any_backend(memory: AgentMemory) -> None:
    assert_nothing_is_lost(memory, b"\n".join(data for data in [*BAD.values(), *GOOD.values()] if len(data) < MEGABYTE))


def assert_nothing_is_lost(memory: AgentMemory, between: bytes) -> None:
    data = BEFORE + between + b"\n" + AFTER
    memory.write(HISTORY, data)
    given = every_call(ConversationMemory(memory))
    expected = naive.messages(data)
    assert contents(expected)[0] == "before the bad"
    assert contents(expected)[-1] == "after the bad"
    assert given["all"] == given["iterated"] == expected
    assert given["last"] == expected[-3:]
    assert given["all"].skipped == naive.bad_lines(data)
    assert [match.hit.content for match in given["found"]] == [
        content for content in contents(expected) if "the bad" in content
    ]
    assert given["answers"] == [
        ToolResult(
            naive.answer(query, naive.search(data, query), naive.bad_lines(data)),
            data={"damaged_lines": naive.bad_lines(data)} if naive.bad_lines(data) else None,
        )
        for query in QUERIES
    ]
    assert not given["context"].degraded
    assert contents(given["context"][1:-1]) == contents(expected)
    assert memory.read_bytes(HISTORY) == data


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_lines_are_skipped_with_one_warning_at_the_end_of_a_history_too(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    memory = AgentMemory.open("memory://")
    conversation = ConversationMemory(memory)
    memory.write(HISTORY, BEFORE + bad.rstrip(b"\n"))
    for last_n in (None, 2):
        assert contents(conversation.load_history(last_n)) == ["before the bad"]
        (warning,) = warnings(caplog)
        assert len(warning) < 200
    conversation.append_message(Message("user", "after the bad"))
    assert contents(conversation.load_history(2)) == ["before the bad", "after the bad"]


def test_a_history_without_messages_is_empty(memory: AgentMemory) -> None:
    for data in (b"", b"\n", b"\n" * 100_000, b"\r\n" * 10, b" ", b"\0", b"{", b"\xef\xbb\xbf", b"\xff"):
        memory.write(HISTORY, data)
        given = every_call(ConversationMemory(memory), QUERIES[:1])
        assert given["all"] == given["last"] == given["iterated"] == given["found"] == []
        assert given["all"].skipped == given["last"].skipped == bool(naive.without_mark(data).strip())
        assert contents(given["context"]) == ["system", "user"]
        assert memory.read_bytes(HISTORY) == data


def test_a_last_line_of_40_mb_without_a_newline_loses_no_other_line(tmp_path: Path) -> None:
    torn = b"x" * 40 * MEGABYTE
    conversation = on_disk(tmp_path, BEFORE, torn)
    given = every_call(conversation)
    assert contents(given["all"]) == contents(given["last"]) == contents(given["iterated"]) == ["before the bad"]
    assert given["all"].skipped == given["last"].skipped == 1
    assert contents(given["context"]) == ["system", "before the bad", "user"]
    assert (tmp_path / HISTORY).read_bytes() == BEFORE + torn
    conversation.append_message(Message("user", "after the bad"))
    assert contents(conversation.load_history(2)) == ["before the bad", "after the bad"]
    assert [match.hit.content for match in conversation.search("the bad")] == ["before the bad", "after the bad"]


# Bounded memory.


def on_disk(tmp_path: Path, *parts: bytes) -> ConversationMemory:
    with (tmp_path / HISTORY).open("wb") as file:
        file.writelines(parts)
    return ConversationMemory(AgentMemory.open(tmp_path))


def megabytes_of(call: Callable[[], object]) -> float:
    """The peak memory of a call, in megabytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


LARGE: dict[str, tuple[bytes, ...]] = {
    "many lines": (lines(100, 10_000),) * 60,
    "one line": (b"x" * MEGABYTE,) * 60,
    "a message of one line": (line("").removesuffix(b'"}\n') + b"x" * 60 * MEGABYTE, b'"}\n'),
    "a last line without a newline": (line("first"), *(b"x" * MEGABYTE,) * 60),
}


@pytest.mark.parametrize("parts", LARGE.values(), ids=LARGE)
def test_the_end_of_60_mb_is_read_in_40_mb(tmp_path: Path, parts: tuple[bytes, ...]) -> None:
    conversation = on_disk(tmp_path, *parts)
    assert megabytes_of(lambda: conversation.load_history(5)) < 40


@pytest.mark.parametrize("parts", LARGE.values(), ids=LARGE)
def test_60_mb_are_searched_and_iterated_in_80_mb(tmp_path: Path, parts: tuple[bytes, ...]) -> None:
    conversation = on_disk(tmp_path, *parts)
    assert megabytes_of(lambda: conversation.search("not there")) < 80
    assert megabytes_of(lambda: [None for _ in conversation.iter_history()]) < 80
