"""Suggestions for mistyped commands and names of files."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.app import app
from agent_memory.cli.settings import READING, near_command
from tests.cli.commands import commands, commands_of
from tests.cli.test_auditing import CHANGING
from tests.cli.test_mistyped import contents

Run = Callable[..., Result]
OF_THE_HOST = {
    "audit close", "audit merge", "audit prune", "audit restart", "conversation allow",
    "demo", "doctor", "expire", "export", "mcp", "new", "prove", "transfer",
}  # fmt: skip
"""Commands that make or change something elsewhere than in the files of one agent."""
OTHERS = {"get", "cat", "less", "list", "show", "view", "head", "find", "grep", "stat", "dir", "print", "open", "log"}
"""Reading commands of other programs."""


def typos(word: str) -> Iterator[str]:
    """All words with one letter less, one more or another one, or with two letters exchanged."""
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in string.ascii_lowercase:
            yield before + letter + after
            yield before + letter + after[1:]


def groups() -> Iterator[tuple[click.Group, tuple[str, ...]]]:
    yield app, ()
    for name, command in commands_of(app).items():
        if isinstance(command, click.Group):
            yield command, (name,)


def test_each_command_is_known_as_reading_or_changing() -> None:
    names = {" ".join(words) for words in commands(app)}
    assert names - READING == CHANGING.keys() | OF_THE_HOST
    assert not READING & (CHANGING.keys() | OF_THE_HOST)
    assert READING - names == {"audit", "conversation"}, "groups"


def test_no_typo_of_a_reading_command_suggests_a_changing_one() -> None:
    tried = 0
    for group, above in groups():
        for name in commands_of(group):
            if " ".join([*above, name]) in READING:
                for typo in {*typos(name)} - commands_of(group).keys():
                    near = near_command(typo, commands_of(group), above)
                    assert near is None or " ".join([*above, near]) in READING, (typo, near)
                    tried += 1
    assert tried > 1000
    for word in OTHERS:
        assert near_command(word, commands_of(app)) in {None, *READING}, word


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("reed", "read"), ("raed", "read"), ("lss", "ls"), ("serch", "search"), ("versoins", "versions"),
     ("writ", "write"), ("apend", "append"), ("forgte", None), ("nonsense", None), ("rm2", None)],
)  # fmt: skip
def test_a_near_command_is_suggested(run: Run, typed: str, meant: str | None) -> None:
    result = run(typed)
    hint = f": did you mean {meant}?" if meant else ""
    assert (result.exit_code, result.stderr) == (2, f"Error: No such command {typed!r}{hint}; try 'app --help'\n")


def test_a_near_command_of_a_group_is_suggested(run: Run) -> None:
    assert "did you mean verify?" in run("audit", "verfy").stderr
    assert "did you mean show?" in run("conversation", "shwo").stderr


@pytest.fixture
def files() -> None:
    with AgentMemoryService(".agent-memory") as service:
        memory = service.agent("default")
        for path in ("MEMORY.md", "notes/plan.md", ".hidden.md", "history.jsonl", "cron/jobs.json", "a.md", "2.md"):
            memory.write(path, "x")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("path", "meant"),
    [("MEMROY.md", "MEMORY.md"), ("memory.md", "MEMORY.md"), ("/memories/MEMROY.md", "MEMORY.md"),
     ("notes/plna.md", "notes/plan.md"), ("notse", "notes"), ("hidden.md", None), (".hiden.md", None),
     ("histroy.jsonl", None), ("cron/job.json", None), ("b.md", None), ("plan.md", None), ("3.md", None),
     ("notes", None), ("typo/plan.md", None)],
)  # fmt: skip
def test_a_near_name_in_the_same_directory_is_suggested(run: Run, path: str, meant: str | None) -> None:
    before = contents(Path.cwd())
    for command in (["read"], ["rm"], ["read", "--as-tool"], ["versions"]):
        if (path, command) == ("notes", ["rm"]) or (path, command[-1]) == ("notes", "--as-tool"):
            continue
        result = run(*command, path)
        assert result.exit_code == 3, result.output
        assert ("did you mean" in result.stderr) == bool(meant), result.stderr
        assert meant is None or result.stderr.endswith(f"; did you mean {meant!r}?\n")
    assert contents(Path.cwd()) == before
    if meant:
        assert json.loads(run("--json", "read", path).stderr)["error"]["suggestion"] == meant


@pytest.mark.usefixtures("files")
def test_a_missing_version_of_an_existing_file_suggests_no_file(run: Run) -> None:
    assert "did you mean" not in run("read", "MEMORY.md", "--version", "0" * 16).stderr


@pytest.mark.parametrize("words", [[""], [], ["-"], ["--file", "empty"], ["", "--newline"]])
def test_append_of_nothing_says_so_and_changes_nothing(run: Run, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "empty").touch()
    for command in (["append", "a.md"], ["append", "/memories/a.md"]):
        result = run(*command, *words)
        assert (result.exit_code, result.stdout) == (0, "nothing to append: a.md is unchanged\n")
    assert json.loads(run("--json", "append", "a.md", *words).stdout) == {"path": "a.md", "unchanged": True}
    assert run("append", "../a.md", *words).exit_code == 5
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
