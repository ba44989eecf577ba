"""Paths pasted from a model's tool: every command accepts `/memories/notes.md` and `notes.md` alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.commands import ARGUMENTS, done

Run = Callable[..., Result]
WITH_PATHS = {
    command: arguments
    for command, arguments in ARGUMENTS.items()
    if any(argument.endswith(".md") for argument in arguments)
} | {
    "audit show": ("--path", "plan.md"),
    "ls": ("plan.md",),
    "search": ("plan", "plan.md"),
    "tree": ("plan.md",),
}  # fmt: skip


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("command", WITH_PATHS)
def test_a_path_with_and_without_memories_names_the_same_file(run: Run, tmp_path: Path, command: str) -> None:
    arguments = ("--url", "store", *WITH_PATHS[command])
    pasted = [f"/memories/{argument}" if argument.endswith(".md") else argument for argument in arguments]
    plain = done(run, tmp_path, *command.split(), *arguments)
    assert plain[0] == 0
    assert done(run, tmp_path, *command.split(), *pasted) == plain


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("command", ["ls", "tree", "read --as-tool", "audit show"])
@pytest.mark.parametrize("top", ["/memories", "/memories/"])
def test_memories_alone_names_the_top_of_the_memory(run: Run, tmp_path: Path, command: str, top: str) -> None:
    words = command.split() + ["--url", "store"] + (["--path"] if command == "audit show" else [])
    assert done(run, tmp_path, *words, top) == done(run, tmp_path, *words, ".")


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("command", WITH_PATHS)
@pytest.mark.parametrize("path", ["/plan.md", "x/../plan.md", "//memories/plan.md"])
def test_another_spelling_of_memories_is_refused_with_the_right_name(
    run: Run, tmp_path: Path, command: str, path: str
) -> None:
    arguments = ["--url", "store", *WITH_PATHS[command]]
    place = next(number for number, argument in enumerate(arguments) if argument.endswith(".md"))
    name, arguments[place] = arguments[place], path
    result = run("--url", str(tmp_path / "seed"), *command.split(), *arguments[2:])
    assert (result.exit_code, "try 'plan.md'" in result.stderr) == (5, True), (name, result.stderr)


def test_no_tool_path_creates_a_directory_named_memories(run: Run, tmp_path: Path) -> None:
    assert run("write", "/memories/dir/a.md", "x").exit_code == 0
    assert run("read", "dir/a.md").stdout == "x"
    assert run("mv", "/memories/dir", "/memories/new").exit_code == 0
    assert [file.name for file in (tmp_path / ".agent-memory/agent_memory/default").iterdir()] == ["new"]
    assert run("rm", "-r", "--yes", "/memories").exit_code == 0
    assert not list((tmp_path / ".agent-memory").rglob("*.md"))
