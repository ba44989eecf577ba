"""Every command with arguments that work in a seeded store, and the effect of a command line on a fresh copy of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from click.testing import Result

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.core.versions import origin
from agent_memory.plugins.audit import AuditPlugin

Run = Callable[..., Result]
FIRST = "0" * 16
"""The id of the first version of ``kept.md``."""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "agents": (),
    "append": ("plan.md", "more"),
    "audit blame": ("plan.md",),
    "audit close": (),
    "audit merge": (),
    "audit prune": ("--before", "2000-01-01"),
    "audit restart": ("--reason", "a test"),
    "audit show": (),
    "audit verify": (),
    "connect": ("claude-code",),
    "conversation allow": (),
    "cp": ("plan.md", "copy.md"),
    "create": ("new.md", "x"),
    "demo": ("--url", "memory://"),
    "diff": ("kept.md", FIRST),
    "doctor": ("--rounds", "1"),
    "du": (),
    "edit": ("plan.md", "--replace", "the", "a"),
    "expire": ("**", "--days", "1e-9", "--yes"),
    "export": ("folder",),
    "forget": ("--yes", "plan.md"),
    "conversation append": ("hello", "--role", "user"),
    "conversation compact": ("--keep-last", "1", "--yes"),
    "conversation search": ("river",),
    "conversation show": (),
    "import": ("files",),
    "limits": (),
    "ls": (),
    "mcp": ("--http", "--token-env", "NOT_SET"),
    "mv": ("plan.md", "moved.md"),
    "new": ("plugin", "quota", "--directory", "folder"),
    "plugins": (),
    "prove": ("--url", "memory://"),
    "prune": (),
    "read": ("plan.md",),
    "redact": ("kept.md", FIRST, "--reason", "a key", "--yes"),
    "restore": ("kept.md", FIRST),
    "rm": ("plan.md",),
    "s3-policy": ("--url", "s3://bucket/x"),
    "search": ("plan",),
    "transfer": ("store", "other"),
    "tree": (),
    "undo": ("--since", "2020-01-01", "--yes"),
    "versions": ("plan.md",),
    "web": ("--log", "none.jsonl"),
    "write": ("plan.md", "new"),
}
MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?|(?<=in )\d+(?= replacements)|(?<=none of )\d+(?= edits)"
)


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group, by name; those of the program are imported when they are looked up."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command}


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in commands_of(group).items():
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name)


def seed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/file.md").write_text("of the host")
    url = (tmp_path / "seed").as_uri()
    seed_versions(url)
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit], actor="ops") as service:
        for agent in ("ann", "default"):
            service.write_memory_file(agent, "plan.md", f"the plan of {agent}")
            messages = [Message(role, f"{agent} at the river") for role in ("user", "assistant")]
            ConversationMemory(service.agent(agent)).append_messages(messages)


def seed_versions(url: str) -> None:
    """A file of each agent with an earlier version. Versions are off again, because their names differ in each run."""
    made = origin._made

    def numbered(*facts: Any) -> origin.Origin:
        new = made(*facts)
        return new if new.number else replace(new, id=FIRST)

    kept = patch.object(origin.Origin, "of_another_state", lambda self, _: self)
    with patch.object(origin, "_made", numbered), kept, AgentMemoryService(url, versions=VersionLimits()) as service:
        for agent in ("ann", "default"):
            service.write_memory_file(agent, "kept.md", f"of {agent}")
            service.write_memory_file(agent, "kept.md", "changed")
        service.agent("ann").versions.set_limits(None)


def done(run: Run, tmp_path: Path, *args: str) -> tuple[int, str, dict[str, bytes]]:
    """The exit code, the output and the files of a command line on a fresh copy of the store, without times."""
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


def rows(result: Result) -> list[str]:
    """The rows of a table, each as one line: a further line of a row is indented."""
    return result.stdout.replace("\n    ", "  ").splitlines()
