"""`rm -r`, `forget`, `redact` and `undo` ask on a terminal, and need --yes elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService, VersionLimits
from tests.cli.test_mistyped import contents

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
COMMANDS = {
    "rm -r": (["rm", "-r", "dir"], "Delete 2 files of bob at dir? Each becomes a version."),
    "forget": (
        ["forget", "dir"],
        "Erase 'dir' of agent 'bob' for good: 2 current files, 1 earlier version, and all that is kept",
    ),
    "redact": (["redact", "dir/a.md", "ID", "--reason", "a key"], "Erase the content of version ID of dir/a.md of bob"),
    "undo": (["undo", "--by", "eve"], "would be restored: dir/a.md"),
}


@pytest.fixture
def version() -> str:
    """The id of an earlier version in a new store."""
    with AgentMemoryService("store", versions=VersionLimits()) as service:
        memory = service.agent("bob")
        memory.write("dir/a.md", "x")
        memory.write("dir/b.md", "x")
        memory.acting_as("eve").write("dir/a.md", "y")
        return memory.versions.list("dir/a.md")[1].id


def words(command: str, version: str) -> list[str]:
    return ["--url", "store", "--agent", "bob", *(version if word == "ID" else word for word in COMMANDS[command][0])]


def on_a_terminal(spawn: Spawn, answer: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    try:
        return spawn(*args, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_is_asked_and_no_leaves_everything(spawn: Spawn, launch: Spawn, version: str, command: str) -> None:
    before = contents(Path("store"))
    told = on_a_terminal(launch if command == "forget" else spawn, "n\n", *words(command, version))
    assert (told.returncode, told.stdout) == (1, b"")
    assert COMMANDS[command][1].replace("ID", version) in told.stderr.decode()
    assert told.stderr.endswith(b"Error: nothing was changed\n")
    assert contents(Path("store")) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("answer", "options"), [("y\n", []), ("", ["--yes"])])
def test_a_yes_goes_on(spawn: Spawn, version: str, command: str, answer: str, options: list[str]) -> None:
    done = on_a_terminal(spawn, answer, *words(command, version), *options)
    assert done.returncode == 0, done.stderr
    assert (b"[y/N]" in done.stderr) == bool(answer)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", [[], ["--json"]])
def test_without_a_terminal_only_the_option_yes_goes_on(run: Run, version: str, command: str, how: list[str]) -> None:
    before = contents(Path("store"))
    refused = run(*how, *words(command, version), given="y\n")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{command} asks first, and there is no terminal to ask in, so nothing was changed; --yes" in refused.stderr
    assert contents(Path("store")) == before
    assert run(*how, *words(command, version), "--yes").exit_code == 0


def test_what_changes_nothing_or_one_file_does_not_ask(spawn: Spawn, run: Run, version: str) -> None:
    assert run(*words("undo", version), "--dry-run").exit_code == 0
    assert run("--url", "store", "--agent", "bob", "rm", "dir/b.md").exit_code == 0
    missing = on_a_terminal(spawn, "", "--url", "store", "--agent", "bob", "rm", "-r", "typo")
    assert (missing.returncode, b"[y/N]" in missing.stderr) == (3, False)
