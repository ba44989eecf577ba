"""The audit log that the command line writes by default, and that `audit show` prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.settings import login_name
from agent_memory.plugins.audit import AuditPlugin
from tests.cli.commands import ARGUMENTS
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("quick_doctor")
Run = Callable[..., Result]
KEY = b"a key of 16 bytes at least"
CHANGING = {
    "append": "append", "cp": "copy", "create": "create", "edit": "edit", "expire": "delete",
    "forget": "forget",
    "conversation append": "append", "conversation compact": "edit",
    "import": "create", "mv": "rename", "prune": "prune", "redact": "redact",
    "restore": "restore", "rm": "delete", "undo": "delete", "write": "write",
}  # fmt: skip
LOG = Path(".agent-memory/.agent-memory/audit")


def records(run: Run, *options: str) -> list[dict[str, Any]]:
    result = run(*options, "--json", "audit", "show")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["records"]
    return found


def test_three_writes_are_shown_with_their_actors(run: Run) -> None:
    for name in ("a.md", "b.md", "c.md"):
        result = run("write", name, "x")
        assert (result.exit_code, result.stderr) == (0, "")
    assert run("--actor", "ann", "append", "a.md", "y").exit_code == 0
    found = [(record["actor"], record["operation"], record["path"]) for record in records(run)]
    me = login_name()
    assert found == [(me, "write", "a.md"), (me, "write", "b.md"), (me, "write", "c.md"), ("ann", "append", "a.md")]
    assert run("audit", "verify").exit_code == 0


def test_show_prints_all_operations_or_the_last_n(run: Run) -> None:
    for name in ("a.md", "b.md", "c.md"):
        run("write", name, "x")
    lines = run("audit", "show").stdout.splitlines()
    assert [line.split("  ")[4] for line in lines] == ["a.md", "b.md", "c.md"]
    assert run("audit", "show", "-n", "2").stdout.splitlines() == lines[1:]
    assert run("audit", "show", "-n", "5", "--path", "a.md").stdout.splitlines() == lines[:1]
    assert run("audit", "show", "-n", "0").exit_code == 2


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    "command", sorted(ARGUMENTS.keys() - {"audit restart", "demo", "mcp", "prove", "transfer", "web"})
)
def test_every_change_is_recorded_but_no_read(run: Run, command: str) -> None:
    before = len(records(run, "--url", "seed"))
    arguments = ARGUMENTS[command]
    told = run("--url", "seed", *command.split(), *arguments)
    assert told.exit_code == (command == "undo"), "undo leaves what it cannot undo"
    new = {record["operation"] for record in records(run, "--url", "seed")[before:]}
    assert new == ({CHANGING[command]} if command in CHANGING else set())
    assert run("--url", "seed", "audit", "verify").exit_code == 0


@pytest.mark.usefixtures("seeded")
def test_a_copy_of_a_store_is_recorded_in_the_target(run: Run) -> None:
    before = records(run, "--url", "seed")
    assert run("transfer", "seed", "other").exit_code == 0
    assert {record["operation"] for record in records(run, "--url", "other")} == {"create"}
    assert records(run, "--url", "seed") == before


def test_refusals_by_a_guard_and_by_the_grammar_are_recorded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("write", "a.md", "x")
    assert run("write", "../b.md", "x").exit_code == 5
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"readonly": {"patterns": ["a.md"]}}')
    assert run("rm", "a.md").exit_code == 5
    refused, denied = records(run)[1:]
    assert (refused["rule"], denied["outcome"]) == ("parent", "denied")


@pytest.mark.parametrize("how", [["--no-audit"], []])
def test_with_no_audit_no_log_is_written_and_show_explains_how_to_get_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    if not how:
        monkeypatch.setenv("AGENT_MEMORY_NO_AUDIT", "1")
    assert run(*how, "write", "a.md", "x").exit_code == 0
    result = run("audit", "show")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a command that changes something creates it, unless --no-audit" in result.stderr
    assert not LOG.exists()


def test_a_configured_log_replaces_the_stores_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"audit": {"target": "log/audit.jsonl"}}')
    assert run("write", "a.md", "x").exit_code == 0
    assert not LOG.exists()
    assert "write" in run("audit", "show", "--log", "log/audit.jsonl").stdout


def test_a_configured_checkpoint_file_gets_the_checkpoints_of_the_stores_log(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"checkpoint-file": {"path": "heads.jsonl"}}')
    assert run("write", "a.md", "x").exit_code == 0
    result = run("audit", "verify", "--checkpoints", "heads.jsonl")
    assert (result.exit_code, result.stdout) == (0, "2 records of 1 writer: nothing found\n")
    assert run("forget", "a.md", "--yes").exit_code == 0
    result = run("audit", "verify", "--checkpoints", "heads.jsonl")
    assert (result.exit_code, result.stdout) == (0, "4 records of 2 writers: nothing found\n")


def test_the_command_line_does_not_change_a_keyed_log(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    url = (tmp_path / "store").as_uri()
    with AuditPlugin(url, key=KEY) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
    result = run("--url", url, "write", "b.md", "x")
    assert (result.exit_code, "keyed" in result.stderr) == (0, True)
    assert run("--url", url, "audit", "verify", "--key-file", "key").exit_code == 0


def test_a_log_that_cannot_be_written_gives_a_note_and_the_change_stays(run: Run, empty_store: Path) -> None:
    (empty_store / ".agent-memory").write_text("in the way")
    result = run("write", "a.md", "x")
    assert (result.exit_code, result.stdout) == (0, "wrote a.md (1 byte)\n")
    assert result.stderr.startswith("Note: the audit log could not be written: ")
    assert result.stderr.count("\n") == 1
    assert run("read", "a.md").stdout == "x"
    assert run("--no-audit", "write", "a.md", "x").stderr == ""


def test_a_storage_failure_prints_one_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = run("--url", "file/below", "write", "a.md", "x")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_doctor_shows_the_size_of_the_log(run: Run) -> None:
    run("write", "a.md", "x")
    size = sum(file.stat().st_size for file in LOG.iterdir())
    assert f"Audit log: {size} bytes in 1 file\n" in run("doctor", "--rounds", "1").stdout
    assert json.loads(run("--json", "doctor", "--rounds", "1").stdout)["audit"] == {"files": 1, "bytes": size}


@pytest.mark.long
def test_changes_on_s3_are_recorded_as_objects(run: Run, ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps(ministack.options))
    url = ("--url", ministack.new_url())
    for number in range(3):
        result = run(*url, "write", f"{number}.md", "x")
        assert (result.exit_code, result.stderr) == (0, "")
    assert [record["path"] for record in records(run, *url)] == ["0.md", "1.md", "2.md"]
    assert run(*url, "audit", "verify").exit_code == 0
    assert "in 3 files" in run(*url, "doctor", "--rounds", "1").stdout


def test_changes_by_a_model_over_mcp_are_recorded(spawn: Callable[..., Any], run: Run) -> None:
    call = {"name": "create", "arguments": {"path": "/memories/a.md", "file_text": "x"}}
    messages: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
         "clientInfo": {"name": "test", "version": "1"}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]  # fmt: skip
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    done = spawn("mcp", given=lines.encode())
    assert done.returncode == 0, done.stderr
    assert [(record["operation"], record["path"]) for record in records(run)] == [("create", "a.md")]
