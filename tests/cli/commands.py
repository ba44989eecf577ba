"""Every command with arguments that work in a seeded store, and the effect of a command line on a fresh copy of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.plugins.audit import AuditPlugin

Run = Callable[..., Result]
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "agents": (),
    "append": ("plan.md", "more"),
    "audit blame": ("plan.md",),
    "audit show": (),
    "audit verify": (),
    "connect": ("claude-code",),
    "copy": ("store", "other"),
    "cp": ("plan.md", "copy.md"),
    "create": ("new.md", "x"),
    "demo": ("--url", "memory://"),
    "doctor": ("--rounds", "1"),
    "edit": ("plan.md", "--replace", "the", "a"),
    "export": ("folder",),
    "forget": ("--yes", "plan.md"),
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
    "search": ("plan",),
    "tree": (),
    "view": ("plan.md",),
    "write": ("plan.md", "new"),
}
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?|(?<=in )\d+(?= replacements)")


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name)


def seed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/file.md").write_text("of the host")
    url = (tmp_path / "seed").as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit], actor="ops") as service:
        for agent in ("ann", "default"):
            service.write_memory_file(agent, "plan.md", f"the plan of {agent}")
            ConversationMemory(service.agent(agent)).append_message(Message("user", f"{agent} at the river"))


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
