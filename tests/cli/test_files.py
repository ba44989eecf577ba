"""read, write, append, create, rm, mv and cp: every source of content, exit codes, and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService

Run = Callable[..., Result]
EXACT = "\ufeffline\r\nnext\n\nno newline at the end \u00e9".encode()


def stored(agent: str = "default", url: str = ".agent-memory") -> dict[str, bytes]:
    with AgentMemoryService(url) as service:
        memory = service.agent(agent)
        return {entry.path: memory.read_bytes(entry.path) for entry in memory.list()}


def test_content_given_as_an_argument_is_stored(run: Run) -> None:
    assert run("write", "notes/a.md", "hello").exit_code == 0
    assert stored() == {"notes/a.md": b"hello"}


@pytest.mark.parametrize("dash", [(), ("-",), ("--file", "-")])
def test_stdin_is_stored_byte_for_byte(run: Run, dash: tuple[str, ...]) -> None:
    assert run("write", "a.md", *dash, given=EXACT).exit_code == 0
    assert stored() == {"a.md": EXACT}


def test_a_host_file_is_stored_byte_for_byte(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(EXACT)
    assert run("create", "a.md", "--file", "source").exit_code == 0
    assert run("append", "a.md", "--file", "source").exit_code == 0
    assert stored() == {"a.md": EXACT + EXACT}


def test_read_prints_exactly_the_bytes(run: Run) -> None:
    data = bytes(range(256))
    with AgentMemoryService(".agent-memory") as service:
        service.agent("default").write("raw", data)
    assert run("read", "raw").stdout_bytes == data
    document = json.loads(run("read", "raw", "--json").stdout)
    assert base64.b64decode(document["content_base64"]) == data
    assert document["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("content", ["- a list item", "---\ntitle: x\n---\n", "-\tx", "-- signed"])
def test_content_may_start_with_dashes(run: Run, content: str) -> None:
    assert run("write", "--json", "a.md", content).exit_code == 0
    assert stored() == {"a.md": content.encode()}


def test_two_dashes_end_the_options(run: Run) -> None:
    assert run("write", "--", "a.md", "--json").exit_code == 0
    assert run("append", "a.md", "--", "-r").exit_code == 0
    assert stored() == {"a.md": b"--json-r"}


def test_an_empty_argument_is_empty_content(run: Run) -> None:
    assert run("write", "a.md", "").exit_code == 0
    assert stored() == {"a.md": b""}


def test_content_that_is_no_utf8_is_refused_and_not_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for result in (run("write", "a.md", given=b"caf\xe9"), run("write", "a.md", "--file", "latin")):
        assert result.exit_code == 5
        assert "not UTF-8" in result.stderr
    assert stored() == {}


def test_two_sources_of_content_are_a_usage_error(run: Run) -> None:
    assert run("write", "a.md", "x", "--file", "y").exit_code == 2


def test_a_missing_source_file_prints_one_line(run: Run) -> None:
    result = run("write", "a.md", "--file", "nowhere")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "nowhere" in result.stderr


def test_a_precondition_applies_to_write_append_and_rm(run: Run) -> None:
    run("write", "a.md", "one")
    right, wrong = hashlib.sha256(b"one").hexdigest(), hashlib.sha256(b"other").hexdigest()
    for command in (["write", "a.md", "two"], ["append", "a.md", "two"], ["rm", "a.md"]):
        assert run(*command, "--expected-sha256", wrong).exit_code == 4
    assert stored() == {"a.md": b"one"}
    assert run("rm", "a.md", "--expected-sha256", right.upper()).exit_code == 0
    assert stored() == {}


def test_a_malformed_precondition_is_a_usage_error(run: Run) -> None:
    assert run("write", "a.md", "x", "--expected-sha256", "abc").exit_code == 2


def test_create_refuses_a_name_that_is_taken(run: Run) -> None:
    run("write", "a.md", "mine")
    result = run("create", "a.md", "yours")
    assert (result.exit_code, result.stderr) == (4, "Error: 'a.md': the file exists\n")


def test_a_missing_file_is_not_found(run: Run) -> None:
    for command in (["read", "a.md"], ["rm", "a.md"], ["rm", "-r", "--yes", "a"], ["mv", "a.md", "b.md"], ["ls", "a"]):
        result = run(*command)
        assert (result.exit_code, result.stderr.startswith("Error: ")) == (3, True), command


@pytest.mark.parametrize(("path", "suggestion"), [("../x.md", "x.md"), ("/etc/x", "etc/x"), ("12:30.md", "12-30.md")])
def test_the_refusal_of_a_name_has_a_suggestion(run: Run, path: str, suggestion: str) -> None:
    result = run("write", path, "x")
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: ")
    assert suggestion in result.stderr
    error = json.loads(run("write", path, "x", "--json").stderr)["error"]
    assert error["suggestion"] == suggestion
    assert error["exit_code"] == 5
    assert error["rule"]


def test_an_invalid_agent_id_is_refused(run: Run) -> None:
    assert run("--agent", "../other", "ls").exit_code == 5


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--url", "nosuchscheme://x", "ls"], 6),
        (["--url", "s3://", "ls"], 2),
        (["--url", "", "ls"], 2),
        (["--url", "\0", "ls"], 2),
        (["-o", "unknown=1", "ls"], 2),
        (["-o", "unknown", "ls"], 2),
        (["nosuchcommand"], 2),
        (["read"], 2),
        (["ls", "--nosuchoption"], 2),
    ],
)
def test_a_usage_error_prints_one_line_on_stderr(run: Run, args: list[str], code: int) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    error = json.loads(run("--json", *args).stderr)["error"]
    assert error["exit_code"] == code


def test_rm_deletes_a_directory_only_with_its_option(run: Run) -> None:
    run("write", "a/b.md", "x")
    run("write", "a/c.md", "x")
    assert "-r" in run("rm", "a").stderr
    assert len(stored()) == 2
    assert "2 files" in run("rm", "-r", "--yes", "a").stdout
    assert stored() == {}


def test_rm_r_deletes_a_file_too(run: Run) -> None:
    run("write", "a.md", "x")
    assert run("rm", "-r", "--yes", "a.md").exit_code == 0
    assert stored() == {}


def test_rm_of_an_empty_name_deletes_nothing_and_rm_of_a_dot_deletes_everything(run: Run) -> None:
    run("write", "a/b.md", "x")
    assert run("rm", "-r", "--yes", "").exit_code == 2
    assert run("rm", "-r", "--yes", "/").exit_code == 2
    assert len(stored()) == 1
    assert run("rm", "-r", "--yes", ".").exit_code == 0
    assert stored() == {}


def test_mv_and_cp_accept_files_and_directories_and_never_overwrite(run: Run) -> None:
    run("write", "a/b.md", "b")
    run("write", "c.md", "c")
    assert run("cp", "a", "copy").exit_code == 0
    assert run("mv", "a", "moved").exit_code == 0
    assert run("mv", "c.md", "moved/b.md").exit_code == 4
    assert run("cp", "c.md", "copy/b.md").exit_code == 4
    assert stored() == {"copy/b.md": b"b", "moved/b.md": b"b", "c.md": b"c"}


def test_results_are_json_documents_with_the_json_option(run: Run) -> None:
    digest = hashlib.sha256(b"hello").hexdigest()
    assert json.loads(run("write", "a.md", "hello", "--json").stdout) == {"path": "a.md", "size": 5, "sha256": digest}
    assert json.loads(run("read", "a.md", "--json").stdout)["content"] == "hello"
    assert json.loads(run("mv", "a.md", "b.md", "--json").stdout) == {"path": "b.md", "files": 1, "skipped": 0}
    assert json.loads(run("rm", "b.md", "--json").stdout) == {"path": "b.md", "files": 1, "skipped": 0}


def test_global_options_may_be_before_or_after_the_command(run: Run) -> None:
    run("--url", "elsewhere", "--agent", "ann", "write", "a.md", "x")
    run("write", "--url", "elsewhere", "b.md", "y", "--agent", "ann")
    assert stored("ann", "elsewhere") == {"a.md": b"x", "b.md": b"y"}


def test_the_url_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_MEMORY_URL", "from-environment")
    run("write", "a.md", "x")
    run("--url", "from-option", "write", "a.md", "y")
    assert stored(url="from-environment") == {"a.md": b"x"}
    assert stored(url="from-option") == {"a.md": b"y"}


@pytest.mark.usefixtures("empty_store")
def test_storage_options_come_from_the_environment_and_the_command_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", '{"durability": "none"}')
    assert "durability" in run("ls").stderr
    assert run("ls", "-o", "durability=process").exit_code == 0
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", "[1]")
    assert run("ls").exit_code == 2


@pytest.mark.usefixtures("empty_store")
def test_the_log_is_shown_only_with_its_option(run: Run) -> None:
    assert run("read", "../x").stderr.count("\n") == 1
    shown = run("read", "../x", "-v").stderr
    assert "WARNING refused" in shown
    assert "INFO write" in run("-v", "write", "a.md", "x").stderr
    assert run("write", "a.md", "x").stderr == ""


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Exit codes" in result.stdout
    assert run("--help").exit_code == 0
    assert run("write", "-h").exit_code == 0


def test_a_path_or_option_value_that_starts_with_dashes_shifts_no_argument(run: Run) -> None:
    run("write", "todo", "precious")
    assert run("write", "- item.md", "todo").exit_code == 2
    assert run("write", "real.md", "--actor", "- bot", "real text").exit_code == 0
    assert run("read", "todo").stdout == "precious"
    assert run("read", "real.md").stdout == "real text"


@pytest.mark.parametrize(
    "command", [("write", "a.md", "x"), ("ls",), ("agents",), ("doctor",), ("audit", "verify"), ("demo",)]
)
def test_a_default_store_that_is_a_link_is_not_followed(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    outside = tmp_path / "outside"
    with AgentMemoryService(outside) as service:
        service.agent("secret").write("a.md", "of others")
    before = sorted(outside.rglob("*"))
    (tmp_path / ".agent-memory").symlink_to("outside")
    result = run(*command)
    assert result.exit_code != 0
    assert "symbolic link" in result.output
    assert "secret" not in result.output
    assert str(tmp_path) not in result.output
    assert sorted(outside.rglob("*")) == before


def test_a_store_named_by_the_user_may_be_a_link(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".agent-memory").symlink_to("other")
    assert run("--url", "./.agent-memory", "write", "a.md", "x").exit_code == 0
    assert stored(url="other") == {"a.md": b"x"}
    monkeypatch.setenv("AGENT_MEMORY_URL", ".agent-memory")
    assert run("read", "a.md").stdout == "x"
