"""view and search: output, exit codes, and hostile names and contents."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.output import printable
from agent_memory.tools import MemoryTool
from agent_memory.tools._file_search import _is_shown as is_shown
from tests.cli.test_process import closed_pipe
from tests.support.sizes import also

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
FILES = {
    "MEMORY.md": "# Tea\nloose leaf\n",
    "notes/a.md": "one\nTEA\nthree\nfour\ntea, again",
    "notes/deep/b.txt": "coffee\r\ntea\r\n",
}


@pytest.fixture
def files(run: Run) -> None:
    for path, content in FILES.items():
        run("write", path, content)


def put(path: str, data: bytes) -> None:
    with AgentMemoryService(".agent-memory") as service:
        service.agent("default").write(path, data)


def test_view_shows_a_person_the_files_of_a_conversation(run: Run) -> None:
    run("conversation", "append", "--role", "user", "by the river")
    assert "by the river" in run("read", "--as-tool", "history.jsonl").stdout
    assert "history.jsonl" in run("read", "--as-tool").stdout
    assert run("search", "RIVER").stdout.startswith("history.jsonl:1: ")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (["", "/memories", "/memories/", "."], "/memories"),
        (["notes", "notes/", "/memories/notes"], "/memories/notes"),
        (["notes/a.md", "/memories/notes/a.md"], "/memories/notes/a.md"),
    ],
)
def test_view_shows_the_same_as_the_tool_for_every_form_of_the_path(run: Run, paths: list[str], named: str) -> None:
    with AgentMemoryService(".agent-memory") as service:
        answer = MemoryTool(service.agent("default")).call({"command": "view", "path": named})
    assert not answer.is_error
    for path in paths:
        result = run("read", "--as-tool", path)
        assert (result.exit_code, result.stdout, result.stderr) == (0, answer.output + "\n", "")
        assert json.loads(run("read", "--as-tool", path, "--json").stdout)["output"] == answer.output


def test_view_of_an_empty_memory_shows_its_root_and_creates_nothing(run: Run, empty_store: Path) -> None:
    result = run("read", "--as-tool")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "0B\t/memories")
    assert list(empty_store.iterdir()) == []


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("lines", "numbers"), [("2:3", [2, 3]), ("4:", [4, 5]), ("4:-1", [4, 5]), ("5:99", [5]), ("99:", []), ("2:2", [2])]
)
def test_view_shows_the_requested_lines(run: Run, lines: str, numbers: list[int]) -> None:
    result = run("read", "--as-tool", "notes/a.md", "--lines", lines)
    assert result.exit_code == 0
    assert [int(row.split("\t")[0]) for row in result.stdout.splitlines()[1:] if row] == numbers


@pytest.mark.parametrize(
    "lines", ["", "3", ":3", "0:3", "3:2", "-1:3", "1:-2", "1:2:3", "x:y", "1:\u0663", "9" * 5000 + ":"]
)
def test_an_invalid_range_of_lines_is_a_usage_error(run: Run, lines: str) -> None:
    result = run("read", "--as-tool", "a.md", "--lines", lines)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "START:END" in result.stderr


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("path", "code", "kind"),
    [
        ("missing.md", 3, "file_not_found"),
        ("/memories/missing/deep", 3, "file_not_found"),
        ("memories/notes", 3, "file_not_found"),
        ("../x", 5, "path_traversal"),
        ("/memories/../x", 5, "path_traversal"),
        ("/memories/%2e%2e/x", 5, "path_traversal"),
        ("/memoriesX/a", 5, "path_traversal"),
        ("/etc/passwd", 5, "path_traversal"),
        ("notes/a.md?", 5, "invalid_path"),
        ("a\x1b[2J.md", 5, "invalid_path"),
        ("\udce9.md", 5, "invalid_path"),
        ("x" * 10_000, 5, "invalid_path"),
    ],
)
def test_a_failed_view_prints_an_error_and_has_its_exit_code(
    run: Run, tmp_path: Path, path: str, code: int, kind: str
) -> None:
    result = run("read", "--as-tool", path)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("Error: ")
    assert "\x1b" not in result.stderr
    assert str(tmp_path) not in result.stderr
    error = json.loads(run("read", "--as-tool", path, "--json").stderr)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)


def test_a_file_that_is_no_text_is_not_shown(run: Run, tmp_path: Path) -> None:
    put("raw", bytes(range(256)))
    result = run("read", "--as-tool", "raw")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert str(tmp_path) not in result.stderr


def test_a_file_with_too_many_lines_is_refused_with_the_tools_message(run: Run) -> None:
    put("long.md", b"\n" * 1_000_000)
    result = run("read", "--as-tool", "long.md")
    assert result.exit_code == 1
    assert result.stderr == "Error: File /memories/long.md exceeds maximum line limit of 999,999 lines.\n"


def test_a_link_is_refused_without_showing_a_host_path(run: Run, tmp_path: Path) -> None:
    put("a.md", b"x")
    (tmp_path / ".agent-memory/agent_memory/default/link.md").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret")
    result = run("read", "--as-tool", "link.md")
    assert (result.exit_code, result.stdout) == (5, "")
    assert str(tmp_path) not in result.stderr
    assert "secret" not in run("search", "secret").output


def test_view_escapes_the_control_and_format_characters_that_search_replaces() -> None:
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    characters = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in hidden]
    kept = [character for character in characters if printable(character) == character]
    assert kept == list("\t\n\u200c\u200d")
    assert [character for character in characters if is_shown(character)] == list("\t\u200c\u200d")


def test_no_stored_content_can_hide_text_or_change_its_direction(run: Run) -> None:
    put("a.md", "tea \u200ea\u200fb\u061cc\ufeffd\U000e0041e\u00adf".encode())
    assert r"tea \u200ea\u200fb\u061cc\ufeffd\U000e0041e\xadf" in run("read", "--as-tool", "a.md").stdout


def test_no_stored_content_can_control_the_terminal(run: Run) -> None:
    put("a.md", "red \x1b[31m \x9b1A \u202e \x00 \x7f \u2028 over\rwrite\r\nnext\ttab".encode())
    text = run("read", "--as-tool", "a.md").stdout_bytes.decode()
    assert r"red \x1b[31m \x9b1A \u202e \x00 \x7f \u2028 over\rwrite" + "\n     2\tnext\ttab\n" in text
    assert "\x1b[31m" in json.loads(run("read", "--as-tool", "a.md", "--json").stdout)["output"]
    found = run("search", "red").stdout
    assert found.startswith("a.md:1: red ")
    assert found.count("\n") == 1
    assert not set(found) & set("\x1b\x9b\u202e\x00\x7f\u2028\r")


@pytest.mark.usefixtures("files")
def test_search_prints_path_line_and_text(run: Run) -> None:
    result = run("search", "tEa")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "MEMORY.md:1: # Tea\nnotes/a.md:2: TEA\nnotes/a.md:5: tea, again\nnotes/deep/b.txt:2: tea\n"
    )


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("args", "paths"),
    [
        (["notes"], ["notes/a.md", "notes/a.md", "notes/deep/b.txt"]),
        (["notes/"], ["notes/a.md", "notes/a.md", "notes/deep/b.txt"]),
        (["notes/deep/b.txt"], ["notes/deep/b.txt"]),
        (["."], ["MEMORY.md", "notes/a.md", "notes/a.md", "notes/deep/b.txt"]),
        (["--glob", "*.md"], ["MEMORY.md", "notes/a.md", "notes/a.md"]),
        (["--glob", "notes/*.txt"], ["notes/deep/b.txt"]),
    ],
)
def test_search_can_be_limited_by_path_and_glob(run: Run, args: list[str], paths: list[str]) -> None:
    assert [row.split(":")[0] for row in run("search", "tea", *args).stdout.splitlines()] == paths
    found = json.loads(run("search", "tea", "--json", *args).stdout)
    assert [match["path"] for match in found["matches"]] == paths


@pytest.mark.usefixtures("files")
def test_search_shows_the_lines_around_a_match(run: Run) -> None:
    expected = "notes/a.md-1- one\nnotes/a.md:2: TEA\nnotes/a.md-3- three\n--\n"
    for option in (["-C", "1"], ["-C1"], ["--context", "1"]):
        assert run("search", "tea", *option, "notes").stdout.startswith(expected)
    (match, *_) = json.loads(run("search", "tea", "-C1", "notes", "--json").stdout)["matches"]
    assert match == {"path": "notes/a.md", "line": 2, "text": "TEA", "before": ["one"], "after": ["three"]}


@pytest.mark.usefixtures("files")
def test_search_reports_that_there_are_more_matches(run: Run) -> None:
    result = run("search", "tea", "--max-results", "2")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 2)
    assert result.stderr.startswith("Note: there are more matches than these 2; ")
    found = json.loads(run("search", "tea", "--max-results", "2", "--json").stdout)
    assert (len(found["matches"]), found["more"], found["skipped"]) == (2, True, 0)
    assert json.loads(run("search", "tea", "--json").stdout)["more"] is False


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("args", [["nothing like it"], ["loose", "notes"], ["loose", "--glob", "*.txt"], ["a.*b"]])
def test_search_without_a_match_exits_with_1_like_grep_and_prints_no_error(run: Run, args: list[str]) -> None:
    result = run("search", *args)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")
    result = run("search", "--json", *args)
    assert (result.exit_code, result.stderr) == (1, "")
    assert json.loads(result.stdout) == {"matches": [], "more": False, "skipped": 0, "left_out": []}


def test_search_of_an_empty_memory_finds_nothing(run: Run, empty_store: Path) -> None:
    assert run("search", "x").exit_code == 1
    assert list(empty_store.iterdir()) == []


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["tea", "nowhere"], 3),
        (["tea", "notes/a.md/x"], 3),
        (["tea", "../x"], 5),
        (["tea", "/etc"], 5),
        (["tea", "x" * 10_000], 5),
        (["tea", "\udce9"], 5),
        ([], 2),
        ([""], 2),
        (["tea", "-C", "11"], 2),
        (["tea", "-C", "x"], 2),
        (["tea", "--max-results", "0"], 2),
        (["tea", "--max-results", "201"], 2),
        (["tea", "notes", "more"], 2),
    ],
)
def test_an_invalid_search_prints_one_error(run: Run, tmp_path: Path, args: list[str], code: int) -> None:
    result = run("search", *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("Error: ")
    assert str(tmp_path) not in result.stderr
    assert json.loads(run("search", "--json", *args).stderr)["error"]["exit_code"] == code


@pytest.mark.parametrize("query", ["- [ ] buy tea", "--- rule", "[x", "(", "\\", "\x1b[31m"])
def test_a_query_is_literal_text_not_a_pattern(run: Run, query: str) -> None:
    put("a.md", f"other\n{query}\n".encode())
    assert run("search", query).stdout.startswith("a.md:2: ")


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 100, b"\xef\xbb\xbftea", b"tea\xff", b"x" * 5_000_000 + b"tea", b"\ntea" * 1000, b"\0tea\0"],
    ids=["binary", "byte order mark", "latin", "a long line", "many", "NUL"],
)
def test_search_works_on_any_content(run: Run, data: bytes) -> None:
    put("a.md", data)
    result = run("search", "tea", "-C2")
    assert result.exit_code == (0 if b"tea" in data else 1)
    assert "Error" not in result.stderr
    assert max(map(len, result.stdout.splitlines()), default=0) < 400


def test_spaces_and_joiners_of_any_script_are_shown_unchanged(run: Run) -> None:
    text = (
        "tea \u30e1\u3000\u30e2 \u0645\u06cc\u200c\u0631\u0648\u0645 10\u202f000\u00a0\u20ac \U0001f469\u200d\U0001f4bb"
    )
    put("a.md", text.encode())
    assert run("search", "tea").stdout == f"a.md:1: {text}\n"
    assert text in run("read", "--as-tool", "a.md").stdout


@pytest.mark.parametrize("command", [["read", "--as-tool"], ["search", "x"], ["search", "nothing"]])
def test_names_that_are_no_keys_are_mentioned(run: Run, tmp_path: Path, command: list[str]) -> None:
    put("a.md", b"x")
    (tmp_path / ".agent-memory/agent_memory/default/what?.md").write_text("x")
    result = run(*command)
    assert "what" not in result.stdout
    assert "1 name in storage left out" in result.stderr
    assert json.loads(run(*command, "--json").stdout)["skipped"] == 1


@pytest.mark.usefixtures("files")
def test_global_options_may_be_before_or_after_the_command(run: Run) -> None:
    run("--url", "elsewhere", "--agent", "ann", "write", "a.md", "tea")
    for args in (
        ["--url", "elsewhere", "search", "--agent", "ann", "tea"],
        ["search", "tea", "--url", "elsewhere", "--agent", "ann"],
    ):
        assert run(*args).stdout == "a.md:1: tea\n"
    assert "3B\t/memories/a.md" in run("read", "--as-tool", "--agent", "ann", "--url", "elsewhere").stdout
    assert run("read", "--as-tool", "--agent", "../x").exit_code == run("search", "x", "--agent", "../x").exit_code == 5


@pytest.mark.parametrize(
    "command", [["read", "--as-tool"], ["read", "--as-tool", "--json"], ["search", "x"], ["search", "x", "--json"]]
)
def test_a_closed_output_pipe_ends_the_command_silently(spawn: Spawn, command: list[str]) -> None:
    put("a.md", b"x" * 100 + b"\nx" * 1000)
    target = closed_pipe()
    done = spawn(*command, stdout=target)
    os.close(target)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "command", [["search", "\u30e1"], *also([["read", "--as-tool"], ["read", "--as-tool", "\u30e1.md"]])]
)
def test_a_character_that_the_terminal_cannot_show_is_escaped(spawn: Spawn, command: list[str]) -> None:
    put("\u30e1.md", "caf\u00e9 \u30e1".encode())
    done = spawn(*command, env={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u30e1" in done.stdout


def test_the_examples_of_the_page_print_the_documented_output(run: Run) -> None:
    run("write", "notes/today.md", "# Today\n- learnt to pipe\n")
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    examples = re.findall(r"^\$ agent-memory ((?:read --as-tool|search) .*)\n((?:[^$`].*\n|\n)+)", page, re.MULTILINE)
    assert len(examples) >= 2
    for command, output in examples:
        assert run(*shlex.split(command)).stdout == output
