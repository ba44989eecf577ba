"""Suggestions for mistyped commands and mistyped names of files."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final

import click

from agent_memory.backend import AnyBackend
from agent_memory.cli.inspection import first_page
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.tools._protected import KEPT

READING: Final = frozenset(
    {
        "agents", "audit", "audit blame", "audit show", "audit verify", "connect", "conversation",
        "conversation search", "conversation show", "diff", "ls", "plugins", "read", "s3-policy", "search",
        "tree", "versions",
    }
)  # fmt: skip
"""The commands that change nothing as they stand. Of a mistyped one no changing command is suggested."""
_NEAR: Final = 0.6
_SURELY_NEAR: Final = 0.7
_ALMOST_THE_SAME: Final = 0.85
_NEAR_NAME: Final = 0.75
_MOST_NAMES: Final = 1000


class SuggestingGroup(click.Group):
    """A group that suggests a command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            near = near_command(name, self.list_commands(ctx), ctx.command_path.split()[1:])
            hint = f": did you mean {near}?" if near else ""
            raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def near_command(word: str, commands: Collection[str], above: Collection[str] = ()) -> str | None:
    """The command that was probably meant; a changing one only if it is almost the same and no reading one is near.

    Args:
        word: the unknown command.
        commands: the commands of its group.
        above: the names of the groups above, without the program.
    """
    nearness = {name: (_ratio(word, name), name[:1] == word[:1]) for name in sorted(commands)}
    reading = [name for name in nearness if " ".join([*above, name]) in READING]
    best = max(reading, key=nearness.__getitem__, default=None)
    if best and nearness[best][0] >= _SURELY_NEAR:
        return best
    changing = max((name for name in nearness if name not in reading), key=nearness.__getitem__, default=None)
    if changing and nearness[changing][0] >= _ALMOST_THE_SAME:
        return changing
    return best if best and nearness[best][0] >= _NEAR else None


def near_name(backend: AnyBackend, agent: str, path: str) -> str | None:
    """The path of the file, or else of the directory, with the nearest name in the directory of a missing path.

    Hidden files and the files of a conversation are never suggested. Only the first 1,000 names of the directory
    are compared. None if there is no near name, or if the directory cannot be listed.
    """
    try:
        missing = Key.agent(agent).join(path)
        page = first_page(backend, missing.parent, limit=_MOST_NAMES)
    except AgentMemoryError:
        return None
    if missing in page.directories or any(entry.key == missing for entry in page.entries):
        return None  # the name is right, and a version of it is missing
    hidden = ProtectedNames(map(Key.agent(agent).join, KEPT), readable=False)
    for keys in ([entry.key for entry in page.entries], page.directories):
        names = {key.name: key for key in keys if not key.name.startswith(".") and not hidden.holds(key)}
        nearness = {name: _ratio(*_stems(missing.name, name)) for name in names}
        best = max(nearness, key=nearness.__getitem__, default=None)
        if best and nearness[best] >= _NEAR_NAME:
            return names[best].relative_to(Key.agent(agent)).path
    return None


def _stems(one: str, other: str) -> tuple[str, str]:
    """Two names without case, and without an ending that they share: it would make short names alike."""
    one, other = one.casefold(), other.casefold()
    ending = PurePosixPath(one).suffix
    if ending and ending == PurePosixPath(other).suffix:
        return one.removesuffix(ending), other.removesuffix(ending)
    return one, other


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
