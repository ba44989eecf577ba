"""The commands that list: ls, tree, agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from agent_memory.backend import Entry
from agent_memory.cli.output import COLUMNS, counted, draw, iso_moment, moment, note, row, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.presence import without_files
from agent_memory.cli.settings import Access, Command, OpenStore, Settings, pass_settings
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory

if TYPE_CHECKING:
    from rich.tree import Tree


_WIDE = 10_000
"""Columns of a tree if there is no terminal: no name is cut."""


@click.command(cls=Command)
@click.argument("path", type=memory_path, default="")
@click.option("-r", "--recursive", is_flag=True, help="All files below, not only this level.")
@pass_settings
def ls(settings: Settings, path: str, recursive: bool) -> None:
    """List a directory: size in bytes, modification time, path."""
    with settings.store(Access.READ, settings.agent) as store:
        entries = below(store.service.agent(settings.agent), path, recursive)
        mention_no_files(settings, store, entries)
    if settings.json:
        show_json({"entries": [_document(entry) for entry in entries], "skipped": settings.skipped.count})
        return
    _print_lines(entries)
    mention_skipped(settings)


@click.command(cls=Command)
@click.argument("path", type=memory_path, default="")
@pass_settings
def tree(settings: Settings, path: str) -> None:
    """Draw a directory and everything below it."""
    with settings.store(Access.READ, settings.agent) as store:
        entries = below(store.service.agent(settings.agent), path, recursive=True)
        mention_no_files(settings, store, entries)
    size = sum(entry.size for entry in entries)
    if settings.json:
        found = [_document(entry) for entry in entries]
        show_json({"entries": found, "files": len(entries), "size": size, "skipped": settings.skipped.count})
        return
    draw(_drawn(settings.agent, entries), columns=_WIDE)
    click.echo(f"{counted(len(entries), 'file')}, {counted(size, 'byte')}")
    mention_skipped(settings)


@click.command(cls=Command)
@pass_settings
def agents(settings: Settings) -> None:
    """List the agents that have files."""
    with settings.store(Access.READ) as store:
        found = store.service.agent_ids()
    if settings.json:
        show_json({"agents": list(found), "skipped": settings.skipped.count})
        return
    for agent in found:
        click.echo(agent)
    mention_skipped(settings)


def below(memory: AgentMemory, path: str, recursive: bool = False) -> Sequence[Entry]:
    """The entries below a directory, or the file itself. A missing path is an error; an empty memory is not."""
    entries = memory.list(path, recursive=recursive)
    if entries or not path.strip("./"):
        return entries
    return [memory.stat(path.rstrip("/"))]


def files_at(memory: AgentMemory, path: str) -> int:
    """The number of files at and below a path; 0 if there are none."""
    return len(memory.list(path)) or int(path.strip("./") != "" and memory.exists(path))


def _print_lines(entries: Sequence[Entry]) -> None:
    width = max((len(str(entry.size)) for entry in entries), default=0)
    for entry in entries:
        if entry.is_directory:
            click.echo(row(f"{'-':>{width}}", " " * len(moment(0)), f"{entry.path}/"))
        else:
            click.echo(row(f"{entry.size:>{width}}", moment(entry.modified), entry.path))


def _document(entry: Entry) -> dict[str, Any]:
    if entry.is_directory:
        return {"path": entry.path, "directory": True}
    return {"path": entry.path, "size": entry.size, "modified": iso_moment(entry.modified)}


def _drawn(name: str, entries: Sequence[Entry]) -> Tree:
    from rich.cells import cell_len
    from rich.text import Text
    from rich.tree import Tree

    top = Tree(Text(field(name)))
    directories: dict[tuple[str, ...], Tree] = {(): top}
    for entry in entries:
        *above, last = entry.path.split("/")
        for depth in range(1, len(above) + 1):
            here = tuple(above[:depth])
            if here not in directories:
                directories[here] = directories[here[:-1]].add(Text(f"{field(here[-1])}/"))
        facts = f"{entry.size}  {moment(entry.modified)}"
        fits = 4 * (len(above) + 1) + cell_len(f"{field(last)}  {facts}") <= COLUMNS
        label = Text.assemble(field(last), ("  " if fits else "\n"), (facts, "dim"))
        directories[tuple(above)].add(label)
    return top


def mention_no_files(settings: Settings, store: OpenStore, found: Sequence[object]) -> None:
    """If nothing was found, print a note that the agent has no files at all."""
    if not (found or settings.json or settings.skipped.count):
        note(without_files(store.service, store.backend, settings.agent))


def mention_skipped(settings: Settings) -> None:
    """Print a note with the number of names that listings left out."""
    if count := settings.skipped.count:
        note(f"{counted(count, 'name')} in storage left out: not a valid path, or no access; doctor counts them")
