"""conversation show, append, compact and search: output, stored messages, errors, exit codes, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.conversation import ConversationMemory, SearchHistoryTool

Run = Callable[..., Result]
History = Callable[[bytes], Path]
NOON = "2026-03-01T12:00:00+00:00"
EVERY_FIELD = {
    "role": "assistant",
    "content": "caf\u00e9\nand more",
    "timestamp": NOON,
    "tool_calls": [{"id": "1", "name": "read", "arguments": {"path": "a.md"}}],
    "tool_call_id": "0",
    "reasoning_content": "hm",
    "channel": "slack",
    "sender_id": "ann",
    "written_by": {"another": ["program"]},
}


def line(content: object, role: str = "user", timestamp: str = NOON, **fields: object) -> bytes:
    return json.dumps({"role": role, "content": content, "timestamp": timestamp, **fields}).encode() + b"\n"


def stored() -> list[dict[str, Any]]:
    with AgentMemoryService(".agent-memory") as service:
        return [json.loads(text) for text in service.agent("default").read("history.jsonl").splitlines()]


def shown(result: Result) -> list[str]:
    return [row.rpartition(" ")[2] for row in result.stdout.splitlines()]


def test_show_prints_one_line_per_message(run: Run, history: History) -> None:
    history(line("hello", channel="slack", sender_id="ann") + line("hi", "assistant", "2026-03-01T12:00:00.5"))
    assert run("conversation", "show").stdout == (
        "2026-03-01T12:00:00+00:00 [slack / ann] USER: hello\n2026-03-01T12:00:00 [unknown / unknown] ASSISTANT: hi\n"
    )


def test_show_prints_the_last_20_the_last_n_or_all_messages(run: Run, history: History) -> None:
    history(b"".join(line(str(number)) for number in range(30)))
    numbers = [str(number) for number in range(30)]
    assert shown(run("conversation", "show")) == numbers[-20:]
    assert shown(run("conversation", "show", "-n", "3")) == numbers[-3:]
    assert shown(run("conversation", "show", "-n", "99")) == numbers
    assert shown(run("conversation", "show", "-n", "0")) == []
    assert shown(run("conversation", "show", "--all")) == numbers


def test_json_output_has_every_stored_field_with_one_object_per_line(run: Run, history: History) -> None:
    history(line("x") + json.dumps(EVERY_FIELD).encode() + b"\n")
    for how in (["--all"], ["-n", "2"]):
        result = run("conversation", "show", "--json", *how)
        assert [json.loads(row) for row in result.stdout.splitlines()] == [json.loads(line("x")), EVERY_FIELD]
        assert result.stdout.isascii()


@pytest.mark.parametrize("how", [[], ["--all"]])
def test_system_messages_are_shown_to_a_person(run: Run, history: History, how: list[str]) -> None:
    history(line("obey", "system") + line("hi"))
    result = run("conversation", "show", *how)
    assert (shown(result), result.stderr) == (["obey", "hi"], "")


@pytest.mark.parametrize("how", [[], ["--all"]])
def test_lines_without_a_message_are_counted_on_stderr(run: Run, history: History, how: list[str]) -> None:
    history(b"\n" + line("one") + b"\x1b[31m{torn\n" + line("x", sender_id=["ann"]) + line("two"))
    result = run("conversation", "show", *how)
    assert (result.exit_code, shown(result)) == (0, ["one", "two"])
    assert result.stderr.startswith("Note: history.jsonl: 2 lines without a message skipped; one begins: ")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
    result = run("conversation", "show", "--json", *how)
    assert len([json.loads(row) for row in result.stdout.splitlines()]) == 2
    assert json.loads(result.stderr)["skipped"] == 2


@pytest.mark.parametrize("how", [[], ["--all"], ["--json"]])
def test_a_missing_history_has_no_messages(run: Run, empty_store: Path, how: list[str]) -> None:
    result = run("conversation", "show", *how)
    advice = "has no messages at the top of its memory; --directory selects another directory\n"
    told = "" if how == ["--json"] else advice
    assert (result.exit_code, result.stdout, result.stderr.partition("'default' ")[2]) == (0, "", told)
    assert list(empty_store.iterdir()) == []


def test_append_stores_a_message_with_the_current_time(run: Run) -> None:
    before = datetime.now(UTC)
    result = run(
        "conversation", "append", "--role", "user", "--channel", "cli", "--sender", "ann", "- caf\u00e9\nand more"
    )
    assert (result.exit_code, result.stdout) == (0, "appended to history.jsonl\n")
    (message,) = stored()
    assert before <= datetime.fromisoformat(message.pop("timestamp")) <= datetime.now(UTC)
    assert message == {"role": "user", "content": "- caf\u00e9\nand more", "channel": "cli", "sender_id": "ann"}


def test_compact_removes_the_oldest_messages_and_archives_them(run: Run, history: History) -> None:
    now = datetime.now(UTC)
    history(b"".join(line(str(days), timestamp=(now - timedelta(days=days)).isoformat()) for days in (9, 8, 2, 1)))
    result = run("conversation", "compact", "--days", "8.5", "--archive-to", "old/history.jsonl", "--yes")
    assert (result.exit_code, result.stdout) == (0, "removed 1 line, archived in old/history.jsonl; 3 stay\n")
    assert shown(run("conversation", "show", "--directory", "old")) == ["9"]
    result = run("conversation", "compact", "--keep-last", "1", "--yes", "--json")
    assert json.loads(result.stdout) == {"kept": 1, "removed": 2, "archived": 0}
    assert shown(run("conversation", "show")) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--yes"], 2, "give --keep-last, --days, or both"),
        (["--keep-last", "1"], 2, "conversation compact asks first"),
        (["--keep-last", "0", "--yes"], 2, "0 is not in the range"),
        (["--days", "1e9", "--yes"], 2, "not in the range"),
        (["--keep-last", "1", "--archive-to", "history.jsonl", "--yes"], 2, "archive_to must be another file"),
        (["--keep-last", "1", "--archive-to", "a:b", "--yes"], 5, "try 'a-b'"),
        (["--keep-last", "1", "--directory", "nowhere", "--yes"], 3, "no such directory"),
    ],
)
def test_a_wrong_compaction_is_refused_and_changes_nothing(
    run: Run, history: History, arguments: list[str], code: int, told: str
) -> None:
    path = history(line("one") + line("two"))
    result = run("conversation", "compact", *arguments)
    assert (result.exit_code, told in result.stderr) == (code, True), result.stderr
    assert path.read_bytes() == line("one") + line("two")


def test_append_accepts_the_same_sources_of_content_as_write(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"from a file\r\n")
    run("conversation", "append", "--role", "user", "--file", "source")
    run("conversation", "append", "--role", "user", given=b"from stdin\n")
    run("conversation", "append", "--role", "user", "-", given=b"from stdin too")
    assert [message["content"] for message in stored()] == ["from a file\r\n", "from stdin\n", "from stdin too"]


@pytest.mark.parametrize("words", [[""], [], ["-"]])
def test_append_of_nothing_says_so_and_stores_no_message(run: Run, tmp_path: Path, words: list[str]) -> None:
    result = run("conversation", "append", "--role", "user", *words)
    assert (result.exit_code, result.stdout) == (0, "nothing to append: history.jsonl is unchanged\n")
    assert list(tmp_path.iterdir()) == []


def test_append_prints_the_stored_message_as_json(run: Run) -> None:
    told = json.loads(run("conversation", "append", "--json", "--role", "user", "x").stdout)
    assert [told] == stored()


def test_append_after_a_torn_line_starts_a_new_line(run: Run, history: History) -> None:
    history(line("one") + b'{"role": "us')
    run("conversation", "append", "--role", "user", "two")
    assert shown(run("conversation", "show")) == ["one", "two"]


@pytest.mark.parametrize(
    ("args", "given", "code"),
    [
        (["x"], b"", 2),
        (["--role", "user", "x", "--file", "y"], b"", 2),
        (["--role", "user", "--file", "nowhere"], b"", 1),
        (["--role", "", "x"], b"", 5),
        (["--role", "user"], b"caf\xe9", 5),
        (["--role", "user"], b"x" * 17_000_000, 5),
        (["--role", "user", "\udce9"], b"", 5),
        (["--role", "\udce9", "x"], b"", 5),
    ],
)
def test_the_refusal_of_an_invalid_message_is_one_line(
    run: Run, tmp_path: Path, args: list[str], given: bytes, code: int
) -> None:
    result = run("conversation", "append", *args, given=given)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert result.stderr.startswith("Error: ")
    assert json.loads(run("conversation", "append", "--json", *args, given=given).stderr)["error"]["exit_code"] == code
    assert not (tmp_path / ".agent-memory").exists()


def test_search_prints_the_answer_of_the_tool(run: Run, history: History) -> None:
    history(line("before", "system") + line("Tea?", channel="slack", sender_id="ann") + line("x" * 400, "assistant"))
    with AgentMemoryService(".agent-memory") as service:
        tool = SearchHistoryTool(ConversationMemory(service.agent("default")))
        found, nothing = (tool.call({"query": query}).output for query in ("TEA", "coffee"))
    result = run("conversation", "search", " TEA ")
    assert (result.exit_code, result.stdout, result.stderr) == (0, found + "\n", "")
    result = run("conversation", "search", "coffee")
    assert (result.exit_code, result.stdout, result.stderr) == (1, nothing + "\n", "")


def test_search_prints_json(run: Run, history: History) -> None:
    history(line("before", "system") + json.dumps(EVERY_FIELD).encode() + b"\n" + line("other"))
    result = run("conversation", "search", "CAF\u00c9", "--json")
    before = json.loads(line("before", "system"))
    assert json.loads(result.stdout) == {
        "matches": [{"before": before, "hit": EVERY_FIELD, "after": json.loads(line("other"))}],
        "skipped": 0,
    }
    result = run("conversation", "search", "other", "--json", "--max-results", "1")
    assert json.loads(result.stdout)["matches"][0]["after"] is None
    result = run("conversation", "search", "coffee", "--json")
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (1, {"matches": [], "skipped": 0}, "")


def test_search_can_be_limited_by_days_and_by_results(run: Run, history: History) -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1, hours=1)).isoformat()
    history(line("old x", timestamp="1999-01-01T00:00:00") + line("new x", timestamp=yesterday) * 3)

    def hits(*args: str) -> list[str]:
        return [
            match["hit"]["content"]
            for match in json.loads(run("conversation", "search", "x", "--json", *args).stdout)["matches"]
        ]

    assert hits() == hits("--days", "0") == hits("--days", "9" * 400) == ["old x", "new x", "new x", "new x"]
    assert hits("--days", "2") == ["new x"] * 3
    assert hits("--days", "1") == []
    assert hits("--max-results", "2") == ["old x", "new x"]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nosuchcommand"],
        ["show", "-n", "-1"],
        ["show", "-n", "x"],
        ["show", "-n", "9" * 5000],
        ["show", "-n", "1", "--all"],
        ["show", "extra"],
        ["search"],
        ["search", ""],
        ["search", " \n"],
        ["search", "x", "--max-results", "0"],
        ["search", "x", "--max-results", "51"],
        ["search", "x", "--days", "-1"],
    ],
)
def test_invalid_arguments_are_a_usage_error(run: Run, args: list[str]) -> None:
    result = run("conversation", *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert json.loads(run("--json", "conversation", *args).stderr)["error"]["kind"] == "usage"


def test_global_options_may_be_anywhere(run: Run) -> None:
    run("--url", "elsewhere", "conversation", "--agent", "ann", "append", "--role", "user", "x")
    run("conversation", "append", "--role", "user", "y", "--url", "elsewhere", "--agent", "ann")
    run("conversation", "--url", "elsewhere", "append", "--agent", "ann", "--role", "user", "z")
    with AgentMemoryService("elsewhere") as service:
        messages = ConversationMemory(service.agent("ann")).load_history()
    assert [message.content for message in messages] == ["x", "y", "z"]
    assert run("conversation", "--json", "--url", "elsewhere", "show", "--agent", "ann").stdout.count('"role"') == 3


@pytest.mark.parametrize("args", [["--agent", "a b"], ["--url", "nosuchscheme://x"], ["--url", "s3://"]])
@pytest.mark.parametrize("command", [["show"], ["show", "--all"], ["append", "--role", "user", "x"], ["search", "x"]])
def test_a_store_that_cannot_be_opened_prints_one_line(run: Run, args: list[str], command: list[str]) -> None:
    result = run("conversation", *command, *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (run("ls", *args).exit_code, "", 1)
    assert result.stderr.startswith("Error: ")


def test_a_search_counts_the_damaged_lines(run: Run, history: History) -> None:
    history(line("tea") + b"{\n")
    result = run("conversation", "search", "tea")
    assert (result.exit_code, result.stderr) == (0, "Note: history.jsonl: 1 line without a message skipped\n")
    assert json.loads(run("conversation", "search", "none", "--json").stdout) == {"matches": [], "skipped": 1}
