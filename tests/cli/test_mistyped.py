"""A path or an agent that matches nothing: the exit code is 3, and no byte of the store changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.plugins.audit import AuditPlugin
from tests.cli.commands import ARGUMENTS
from tests.support.servers import S3Server

Run = Callable[..., Result]
TYPO = "notes/typo.md"
OF_NO_FILE: dict[str, tuple[str, ...]] = {
    "audit blame": (TYPO,),
    "audit show": ("--path", TYPO),
    "conversation allow": ("--directory", "typo", "--yes"),
    "conversation search": ("river", "--directory", "typo"),
    "conversation show": ("--directory", "typo"),
    "cp": (TYPO, "new.md"),
    "diff": (TYPO,),
    "edit": (TYPO, "--replace", "a", "b"),
    "forget": ("--yes", TYPO),
    "ls": (TYPO,),
    "mv": (TYPO, "new.md"),
    "read": (TYPO,),
    "redact": (TYPO, "0" * 16, "--reason", "a key", "--yes"),
    "restore": (TYPO,),
    "rm": (TYPO,),
    "search": ("plan", TYPO),
    "tree": (TYPO,),
    "versions": (TYPO,),
}
WITH_OPTIONS: list[tuple[str, tuple[str, ...]]] = [
    ("rm", ("-r", "--yes", "typo")),
    ("read", (TYPO, "--as-tool")),
    ("read", (TYPO, "--version", "0" * 16)),
    ("diff", (TYPO, "0" * 16)),
    ("restore", (TYPO, "0" * 16)),
    ("versions", (TYPO, "--after", "0" * 16)),
    ("versions", (TYPO, "--containing", "x")),
]
CREATES = {"append", "create", "write", "conversation append"}
"""Commands with a path that need not exist."""
OF_NO_AGENT = ("conversation allow", "cp", "edit", "forget", "mv", "prune", "redact", "restore", "rm", "undo")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def mistyped(run: Run, *words: str) -> Result:
    before = contents(Path("seed"))
    result = run("--url", "seed", *words)
    assert (result.exit_code, result.stdout) == (3, ""), (result.stdout, result.stderr)
    assert result.stderr.startswith("Error: ")
    assert contents(Path("seed")) == before
    return result


def test_the_table_has_every_command_with_a_path() -> None:
    named = {command for command, words in ARGUMENTS.items() if any(word.endswith(".md") for word in words)}
    assert named - CREATES <= OF_NO_FILE.keys()


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(("command", "words"), [*OF_NO_FILE.items(), *WITH_OPTIONS])
@pytest.mark.parametrize("audit", [[], ["--no-audit"]])
def test_a_path_that_matches_nothing_is_not_found(
    run: Run, command: str, words: tuple[str, ...], audit: list[str]
) -> None:
    mistyped(run, *audit, *command.split(), *words)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("command", OF_NO_AGENT)
def test_an_agent_that_has_nothing_is_not_found(run: Run, command: str) -> None:
    words = {"rm": ("-r", "--yes", "plan.md"), "undo": ("--since", "2020-01-01", "--yes")}.get(command)
    told = mistyped(run, "--agent", "dfault", *command.split(), *(words or ARGUMENTS[command]))
    assert "agent 'dfault' has no files; there are files of ann, default" in told.stderr


@pytest.mark.usefixtures("seeded")
def test_a_whole_agent_that_has_nothing_is_not_found(run: Run) -> None:
    mistyped(run, "--agent", "dfault", "forget", "--yes")
    mistyped(run, "--agent", "dfault", "rm", "-r", ".", "--yes")
    told = mistyped(run, "forget", "ann", "--yes")
    assert "forget --agent ann" in told.stderr


@pytest.mark.usefixtures("seeded")
def test_an_export_and_a_transfer_of_an_agent_that_has_nothing_write_nothing(run: Run, tmp_path: Path) -> None:
    mistyped(run, "--agent", "dfault", "export", "folder")
    result = run("--agent", "dfault", "transfer", "seed", "other")
    assert result.exit_code == 3
    assert not (tmp_path / "folder").exists()
    assert not (tmp_path / "other").exists()


def test_an_agent_without_files_but_with_versions_or_a_mark_is_found(run: Run) -> None:
    with AgentMemoryService("store", versions=VersionLimits()) as service:
        service.write_memory_file("bob", "a.md", "x")
        service.delete_memory_file("bob", "a.md")
    assert run("--url", "store", "--agent", "bob", "restore", "a.md").exit_code == 0
    assert run("--url", "store", "--agent", "bob", "read", "a.md").stdout == "x"


def test_a_deleted_file_is_forgotten_while_its_versions_or_its_salt_are_kept(run: Run, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "dir/a.md", "x")
        service.write_memory_file("bob", "b.md", "x")
        service.delete_memory_file("bob", "dir/a.md")
    forget = ("--url", url, "--agent", "bob", "forget", "--yes")
    salts = tmp_path / "store/.agent-memory/salts"
    before = contents(tmp_path / "store")
    assert run(*forget, "typo").exit_code == 3
    assert contents(tmp_path / "store") == before
    result = run(*forget, "dir")
    assert (result.exit_code, salts.exists()) == (0, False), "the log still proves a guess of the deleted content"
    assert run(*forget, "dir").exit_code == 3


def test_a_deleted_file_with_versions_is_forgotten_by_its_directory(run: Run) -> None:
    with AgentMemoryService("store", versions=VersionLimits()) as service:
        service.write_memory_file("bob", "dir/a.md", "hunter2")
        service.delete_memory_file("bob", "dir/a.md")
    forget = ("--url", "store", "--agent", "bob", "--no-audit", "forget", "--yes")
    assert run(*forget, "di").exit_code == 3
    assert b"hunter2" in b"".join(contents(Path("store")).values())
    assert run(*forget, "dir").exit_code == 0
    assert b"hunter2" not in b"".join(contents(Path("store")).values())


@pytest.mark.long
def test_earlier_versions_of_a_bucket_are_found_although_no_listing_shows_them(
    run: Run, ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps(ministack.options))
    ministack.make_bucket("mistyped")
    url = f"s3://mistyped{ministack.new_url().removeprefix('s3://memories')}"
    ministack.client("s3").put_bucket_versioning(Bucket="mistyped", VersioningConfiguration={"Status": "Enabled"})
    with AgentMemoryService(url, storage_options=ministack.options) as service:
        service.write_memory_file("bob", "a.md", "x")
        service.write_memory_file("bob", "b.md", "x")
        service.delete_memory_file("bob", "a.md")
    forget = ("--url", url, "--agent", "bob", "forget", "--yes")
    assert run(*forget, "typo.md").exit_code == 3
    assert run("--url", url, "audit", "show").exit_code == 1, "nothing was recorded"
    result = run(*forget, "a.md")
    assert (result.exit_code, result.stdout.startswith("forgot 1 file of bob")) == (0, True), result.stderr
    assert run(*forget, "a.md").exit_code == 3
