"""doctor tells what a store says about itself, and which of its own files git tracks."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService, VersionLimits

pytestmark = pytest.mark.usefixtures("quick_doctor")
Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with earlier versions."""
    with AgentMemoryService(tmp_path / "store", versions=VersionLimits()) as service:
        service.write_memory_file("default", "a.md", "one")
        service.write_memory_file("default", "a.md", "two")
    return tmp_path / "store"


def change(store: Path, **fields: object) -> None:
    record = store / ".agent-memory" / "store.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **fields}))


def content(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_the_record_is_shown(run: Run, store: Path) -> None:
    facts = json.loads((store / ".agent-memory" / "store.json").read_text())
    document = json.loads(run("--url", "store", "--json", "doctor", "--rounds", "1").stdout)
    assert document["store"] == {
        "id": facts["id"], "format": 1,
        "features": ["no-conversation", "receipts", "versions"], "least_release": "0.1", "problem": None,
    }  # fmt: skip
    assert document["healthy"] is True
    shown = run("--url", "store", "doctor", "--rounds", "1").stdout
    assert f"Store: id {facts['id']}, format 1, features: no-conversation, receipts, versions\n" in shown


def test_a_store_without_a_record_stays_without_one(run: Run, tmp_path: Path) -> None:
    run("--url", "plain", "--no-audit", "write", "a.md", "x")
    result = run("--url", "plain", "--json", "doctor", "--rounds", "1")
    assert json.loads(result.stdout)["store"] is None
    assert result.exit_code == 0
    assert not list(tmp_path.rglob("store.json"))


@pytest.mark.parametrize("fields", [{"features": ["dreams", "versions"], "least_release": "99.1"}, {"format": 9}])
def test_a_store_that_needs_a_newer_release_is_looked_at_and_not_tried(
    run: Run, store: Path, fields: dict[str, object]
) -> None:
    change(store, **fields)
    before = content(store)
    result = run("--url", "store", "doctor", "--rounds", "1")
    assert result.exit_code == 1
    assert "may change it" in result.stdout
    assert "Nothing was tried, because this release may not change the store." in result.stdout
    assert "In storage: 1 agent, 1 file" in result.stdout
    for command in ("write a.md x", "append a.md x", "rm a.md", "forget --yes a.md", "versions off", "mv a.md b.md"):
        refused = run("--url", "store", *command.split())
        assert refused.exit_code == 6, command
        assert "only agent-memory" in refused.stderr
    assert run("--url", "store", "read", "a.md").stdout.strip() == "two"
    assert content(store) == before


@pytest.mark.parametrize("data", ["", "{}", "[1]"])
def test_how_to_repair_a_damaged_record_is_told(run: Run, store: Path, data: str) -> None:
    (store / ".agent-memory" / "store.json").write_text(data)
    refused = run("--url", "store", "write", "a.md", "x")
    assert "'agent-memory doctor' tells how to repair it" in refused.stderr
    result = run("--url", "store", "doctor", "--rounds", "1")
    assert result.exit_code == 1
    assert ".agent-memory/store.json, is damaged" in " ".join(result.stdout.split())
    assert "Restore it from a backup." in result.stdout
    (store / ".agent-memory" / "store.json").rename(store / "damaged.json")
    assert run("--url", "store", "write", "a.md", "x").exit_code == 0


def git(directory: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], cwd=directory, env=environment, capture_output=True, check=True)


def tracked(run: Run) -> list[str]:
    found: list[str] = json.loads(run("--url", "store", "--json", "doctor", "--rounds", "1").stdout)["tracked_by_git"]
    return found


@pytest.mark.usefixtures("store")
def test_own_files_that_git_tracks_are_told(run: Run, tmp_path: Path) -> None:
    assert tracked(run) == []
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    assert tracked(run) == []
    git(tmp_path, "add", "-f", "store/.agent-memory/store.json")
    assert tracked(run) == [".agent-memory/store.json"]
    result = run("--url", "store", "doctor", "--rounds", "1")
    assert "Git tracks 1 file of the store's own data: '.agent-memory/store.json'; 'git rm -r --cached" in result.stdout
    assert result.exit_code == 0


@pytest.mark.usefixtures("store")
def test_no_program_of_the_repositorys_configuration_runs(run: Run, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "store/.agent-memory/store.json")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "pager.ls-files", "core.askPass"):
        git(tmp_path, "config", name, str(program))
    git(tmp_path, "config", "alias.ls-files", f"!{program}")
    assert tracked(run) == [".agent-memory/store.json"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("store")
def test_a_repository_in_the_environment_is_not_asked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "store/.agent-memory/store.json")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert tracked(run) == [".agent-memory/store.json"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracked(run) == []


# The default store


@pytest.mark.parametrize(
    "command", [("ls",), ("write", "a.md", "x"), ("doctor",), ("versions", "on"), ("mcp",), ("audit", "show")]
)
def test_the_default_store_is_not_opened_in_the_directory_of_another_program(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    theirs = tmp_path / ".agent-memory"
    (theirs / "memories").mkdir(parents=True)
    (theirs / "config.json").write_text("{}")
    result = run(*command)
    assert result.exit_code == 2
    assert "another program may use it" in result.stderr
    assert "--url ./.agent-memory" in result.stderr
    assert content(theirs) == {"config.json": b"{}"}


def test_a_url_opens_a_store_beside_the_files_of_another_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".agent-memory").mkdir()
    (tmp_path / ".agent-memory" / "config.json").write_text("{}")
    assert run("--url", "./.agent-memory", "write", "a.md", "x").exit_code == 0
    assert run("read", "a.md").stdout.strip() == "x", "it is a store now"


@pytest.mark.parametrize("name", [None, ".gitignore", ".DS_Store"])
def test_an_empty_directory_is_the_default_store(run: Run, tmp_path: Path, name: str | None) -> None:
    (tmp_path / ".agent-memory").mkdir()
    if name:
        (tmp_path / ".agent-memory" / name).write_text("x")
    assert run("write", "a.md", "x").exit_code == 0
    assert run("read", "a.md").stdout.strip() == "x"


def test_the_own_data_of_a_tree_without_agents_is_no_default_store(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "agent_memory").rename(store / "notes")
    before = content(store)
    monkeypatch.chdir(store)
    result = run("write", "a.md", "x")
    assert result.exit_code == 2
    assert "own data of another store" in result.stderr
    assert content(store) == before
