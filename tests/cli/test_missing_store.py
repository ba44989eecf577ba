"""A mistyped path or URL: commands that need a store report that it is missing, and create nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from tests.cli.commands import ARGUMENTS
from tests.support.servers import S3Server

Run = Callable[..., Result]
MAY_BE_THE_FIRST = {
    "append",
    "connect",
    "create",
    "demo",
    "doctor",
    "conversation append",
    "import",
    "mcp",
    "new",
    "plugins",
    "prove",
    "s3-policy",
    "write",
}
NEED_A_STORE = [command for command in ARGUMENTS if command not in MAY_BE_THE_FIRST]


def told(result: Result, url: str) -> bool:
    return result.exit_code == 3 and f"there is no store at '{url}'" in result.stderr and not result.stdout


@pytest.mark.parametrize("command", NEED_A_STORE)
def test_a_typo_in_the_path_of_a_store_is_reported(run: Run, tmp_path: Path, command: str) -> None:
    url = "store" if command == "transfer" else "typo"
    assert told(run("--url", url, *command.split(), *ARGUMENTS[command]), url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["ls", "agents", "rm", "audit show"])
def test_a_typo_in_a_file_url_and_a_missing_default_store_are_reported(run: Run, tmp_path: Path, command: str) -> None:
    url = (tmp_path / "not there").as_uri()
    assert told(run("--url", url, *command.split(), *ARGUMENTS[command]), url)
    assert told(run(*command.split(), *ARGUMENTS[command]), "./.agent-memory")
    assert json.loads(run("--json", "ls").stderr)["error"]["kind"] == "file_not_found"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("command", [command for command in NEED_A_STORE if command != "transfer"])
def test_a_typo_in_the_prefix_of_a_bucket_is_reported(
    run: Run, ministack: S3Server, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps(ministack.options))
    url = ministack.new_url()
    with AgentMemoryService(url, storage_options=ministack.options) as service:
        service.write_memory_file("ann", "a.md", "x")
    assert told(run("--url", url + "typo", *command.split(), *ARGUMENTS[command]), url + "typo")
    assert run("--url", url, "--agent", "ann", "ls").exit_code == 0
    result = run("--url", url, "--agent", "bob", "ls")
    assert (result.exit_code, result.stdout) == (0, "")


def test_an_existing_empty_store_is_listed_as_empty(run: Run, empty_store: Path) -> None:
    assert run("ls").exit_code == 0
    assert run("--url", "memory://new", "ls").exit_code == 0
    assert list(empty_store.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--no-audit"]])
@pytest.mark.parametrize("command", ["ls", "write", "audit show", "versions", "doctor"])
def test_a_command_in_the_directory_of_a_store_is_told_how_to_use_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: list[str]
) -> None:
    run("--url", "store", *options, "write", "a.md", "x")
    monkeypatch.chdir(tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    refused = run(*command.split(), *ARGUMENTS[command])
    assert refused.exit_code == 2
    assert "the current directory is itself a store: '--url .' opens it" in refused.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert run("--url", ".", "read", "a.md").stdout == "x"


def test_a_python_package_with_the_name_of_the_agents_directory_is_no_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "agent_memory" / "core").mkdir(parents=True)
    (tmp_path / "agent_memory" / "__init__.py").touch()
    assert run("write", "a.md", "x").exit_code == 0
    assert run("read", "a.md").stdout == "x"
