"""``agent-memory forget``: what it erases, the receipt it leaves, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.plugins.audit import AuditPlugin

Run = Callable[..., Result]
KEY = b"a key of 16 bytes at least"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with AgentMemoryService(tmp_path / "store") as service:
        for path in ("a.md", "dir/b.md"):
            service.write_memory_file("bob", path, "x")
        service.write_memory_file("eve", "a.md", "x")
    return tmp_path / "store"


def files(store: Path) -> list[str]:
    return sorted(str(path.relative_to(store / "agent_memory")) for path in store.rglob("*.md"))


def test_an_agent_is_forgotten(run: Run, store: Path) -> None:
    result = run("--url", str(store), "forget", "bob")
    assert (result.exit_code, result.stdout) == (0, "forgot 2 files of bob\n")
    assert "no receipt" in result.stderr
    assert files(store) == ["eve/a.md"]
    assert run("--url", str(store), "forget", "bob").stdout == "forgot 0 files of bob\n"


def test_a_file_is_forgotten_and_a_receipt_is_left(run: Run, store: Path) -> None:
    with AuditPlugin("log/audit.jsonl", required=True):
        pass
    result = run(
        "--url", str(store), "--json", "--actor", "ops", "forget", "bob", "dir/b.md", "--log", "log/audit.jsonl"
    )
    assert json.loads(result.stdout) == {"agent": "bob", "path": "dir/b.md", "files": 1, "skipped": 0}
    assert files(store) == ["bob/a.md", "eve/a.md"]
    shown = json.loads(run("--json", "audit", "show", "--log", "log/audit.jsonl").stdout)["records"][-1]
    assert (shown["operation"], shown["actor"], shown["path"], shown["files"]) == ("forget", "ops", "dir/b.md", 1)
    assert run("audit", "verify", "--log", "log/audit.jsonl").exit_code == 0


def test_the_log_of_the_store_gets_the_receipt(run: Run, store: Path) -> None:
    url = store.as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "y")
    salts = store / ".agent-memory" / "salts"
    assert [path.name for path in salts.iterdir()] == ["bob.salt"]
    result = run("--url", str(store), "forget", "bob")
    assert (result.exit_code, result.stderr) == (0, "")
    assert not salts.exists()
    assert "forget" in run("--url", str(store), "audit", "show").stdout
    assert "forget" in run("--url", str(store), "audit", "blame", "a.md", "--agent", "bob").stdout
    assert run("--url", str(store), "audit", "verify").exit_code == 0


def test_a_keyed_log_needs_its_key_before_anything_is_erased(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    with AuditPlugin("k.jsonl", key=KEY) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
    result = run("--url", str(store), "forget", "bob", "--log", "k.jsonl")
    assert (result.exit_code, "--key-file" in result.stderr) == (2, True)
    assert len(files(store)) == 3
    assert run("--url", str(store), "forget", "bob", "--log", "k.jsonl", "--key-file", "key").exit_code == 0
    assert run("audit", "verify", "--log", "k.jsonl", "--key-file", "key").exit_code == 0
    assert files(store) == ["eve/a.md"]


def test_a_log_of_the_configuration_gets_the_receipt_and_says_if_it_cannot_destroy_the_salt(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"audit": {"target": "log/audit.jsonl"}}')
    assert run("--url", str(store), "write", "a.md", "x").exit_code == 0
    result = run("--url", str(store), "forget", "default", "a.md")
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("--url", str(store), "write", "a.md", "x").exit_code == 0
    (tmp_path / "log/audit.jsonl.salts").rename(tmp_path / "elsewhere")
    (tmp_path / "log/audit.jsonl.salts").symlink_to(tmp_path / "elsewhere")
    result = run("--url", str(store), "forget", "default", "a.md")
    assert result.exit_code == 1
    assert "required plugin 'AuditPlugin' could not report it" in result.stderr


def test_names_that_no_key_can_name_are_told(run: Run, store: Path) -> None:
    (store / "agent_memory" / "bob" / "what?.md").write_text("x")
    result = run("--url", str(store), "forget", "bob")
    assert (result.exit_code, "1 name left" in result.stderr) == (1, True)


@pytest.mark.parametrize(("args", "code"), [(["bob", ""], 2), (["bob", "../eve"], 5), (["b/ob"], 5), ([], 2)])
def test_what_makes_no_sense_is_refused(run: Run, store: Path, args: list[str], code: int) -> None:
    assert run("--url", str(store), "forget", *args).exit_code == code
    assert len(files(store)) == 3


def test_records_of_a_content_are_found_by_its_digest(run: Run, tmp_path: Path) -> None:
    with AuditPlugin("audit.jsonl") as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "one")
        service.append_to_memory_file("bob", "a.md", "two")
        service.write_memory_file("eve", "a.md", "two")
    (tmp_path / "two").write_text("two")
    shown = json.loads(
        run("--json", "audit", "show", "--log", "audit.jsonl", "--agent", "bob", "--content", "two").stdout
    )
    assert [(record["agent"], record["operation"]) for record in shown["records"]] == [("bob", "append")]


def test_to_look_for_a_content_makes_no_salt(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("two")
    result = run("audit", "show", "--log", "none/audit.jsonl", "--agent", "typo", "--content", "two")
    assert (result.exit_code, "no salt of this agent" in result.stderr) == (1, True)
    result = run("audit", "show", "--log", "none/audit.jsonl", "--content", "two")
    assert (result.exit_code, "goes with --agent" in result.stderr) == (2, True)
    assert not (tmp_path / "none").exists()
