"""The global options mean the same before a command, after the name of its group, and after the command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory.cli.app import app
from tests.cli.commands import ARGUMENTS, commands, done
from tests.support import sizes

pytestmark = pytest.mark.usefixtures("quick_doctor")
Run = Callable[..., Result]
STORE = ("--url", "store")
OF_ALL_AGENTS = {
    "agents", "audit close", "audit merge", "audit prune", "audit restart", "audit verify", "demo", "doctor", "limits",
    "mcp", "new", "plugins", "prove", "web",
}  # fmt: skip


def test_the_table_has_every_command() -> None:
    assert {" ".join(words) for words in commands(app)} == ARGUMENTS.keys()


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("command", ARGUMENTS)
def test_options_mean_the_same_before_and_after_a_command(run: Run, tmp_path: Path, command: str) -> None:
    words = command.split()
    arguments = ARGUMENTS[command]
    options = ["--agent", "ann", "--json", *(() if "--url" in arguments else STORE)]
    before = done(run, tmp_path, *options, *words, *arguments)
    assert done(run, tmp_path, *words, *arguments, *options) == before
    if words[1:] or sizes.is_long:
        assert done(run, tmp_path, *words, *options, *arguments) == before
        assert done(run, tmp_path, words[0], *options, *words[1:], *arguments) == before
    assert before[0] == {"audit restart": 5, "demo": 6, "mcp": 2, "prove": 6, "undo": 1, "web": 1}.get(command, 0), (
        before
    )  # undo leaves what it cannot undo
    if command not in OF_ALL_AGENTS:
        other = done(run, tmp_path, *words, *arguments, "--agent", "default", *options[2:])
        assert before != other, "the command does not ask whose memory it is about"


@pytest.mark.usefixtures("seeded")
def test_the_last_of_several_equal_options_wins(run: Run) -> None:
    shutil.copytree("seed", "store")
    assert "ann" in run(*STORE, "--agent", "default", "read", "plan.md", "--agent", "ann").stdout


@pytest.mark.parametrize("group", ["audit", "conversation"])
def test_a_group_without_a_command_prints_one_line(run: Run, group: str) -> None:
    result = run(group)
    assert (result.exit_code, result.stderr) == (2, f"Error: Missing command; try 'app {group} --help'\n")
