"""The global options mean the same before the name of every command, after that of a group, and after it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.app import app
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.plugins.audit import AuditPlugin

Run = Callable[..., Result]
STORE = ("--url", "store")
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "agents": (),
    "append": ("plan.md", "more"),
    "audit blame": ("plan.md",),
    "audit show": (),
    "audit verify": (),
    "copy": ("store", "other"),
    "cp": ("plan.md", "copy.md"),
    "create": ("new.md", "x"),
    "demo": ("--url", "memory://"),
    "doctor": ("--rounds", "1"),
    "edit": ("plan.md", "--replace", "ann", "bob"),
    "export": ("folder",),
    "forget": ("plan.md",),
    "history append": ("hello", "--role", "user"),
    "history search": ("river",),
    "history show": (),
    "import": ("files",),
    "ls": (),
    "mcp": ("--http", "--token-env", "NOT_SET"),
    "mv": ("plan.md", "moved.md"),
    "plugins": (),
    "read": ("plan.md",),
    "rm": ("plan.md",),
    "s3-policy": ("--url", "s3://bucket/x"),
    "search": ("ann",),
    "tree": (),
    "view": ("plan.md",),
    "write": ("plan.md", "new"),
}
OF_ALL_AGENTS = {"agents", "audit verify", "demo", "doctor", "mcp", "plugins"}
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?")


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name)


@pytest.fixture(autouse=True)
def _stores(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/file.md").write_text("of the host")
    url = (tmp_path / "seed").as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit], actor="ops") as service:
        for agent in ("ann", "default"):
            service.write_memory_file(agent, "plan.md", f"the plan of {agent}")
            ConversationMemory(service.agent(agent)).append_message(Message("user", f"{agent} at the river"))


def done(run: Run, tmp_path: Path, *args: str) -> tuple[int, str, dict[str, bytes]]:
    """What a command line ends with, prints and leaves in a fresh copy of the store; without moments in time."""
    for made in ("store", "other", "folder"):
        shutil.rmtree(tmp_path / made, ignore_errors=True)
    shutil.copytree(tmp_path / "seed", tmp_path / "store")
    result = run(*args)
    left = {
        str(file.relative_to(tmp_path)): MOMENT.sub("", file.read_text()).encode()
        for made in ("store/agent_memory", "other/agent_memory", "folder")
        for file in (tmp_path / made).rglob("*")
        if file.is_file()
    }
    return result.exit_code, MOMENT.sub("", result.stdout), left


def test_the_table_has_every_command() -> None:
    assert {" ".join(words) for words in commands(app)} == ARGUMENTS.keys()


@pytest.mark.parametrize("command", ARGUMENTS)
def test_options_mean_the_same_before_and_after_a_command(run: Run, tmp_path: Path, command: str) -> None:
    words = command.split()
    arguments = ARGUMENTS[command]
    options = ["--agent", "ann", "--json", *(() if "--url" in arguments else STORE)]
    before = done(run, tmp_path, *options, *words, *arguments)
    assert done(run, tmp_path, *words, *options, *arguments) == before
    assert done(run, tmp_path, *words, *arguments, *options) == before
    assert done(run, tmp_path, words[0], *options, *words[1:], *arguments) == before
    assert before[0] == {"demo": 6, "mcp": 2}.get(command, 0), before
    if command not in OF_ALL_AGENTS:
        other = done(run, tmp_path, *words, *arguments, "--agent", "default", *options[2:])
        assert before != other, "the command does not ask whose memory it is about"


def test_the_last_of_several_options_holds(run: Run) -> None:
    shutil.copytree("seed", "store")
    assert "ann" in run(*STORE, "--agent", "default", "read", "plan.md", "--agent", "ann").stdout


@pytest.mark.parametrize("group", ["audit", "history"])
def test_a_group_without_a_command_is_one_line(run: Run, group: str) -> None:
    result = run(group)
    assert (result.exit_code, result.stderr) == (2, f"Error: Missing command; try 'app {group} --help'\n")
