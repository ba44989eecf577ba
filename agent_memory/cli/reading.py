"""The commands that show what is stored: ls, tree, agents, read, search."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from agent_memory.backend import Entry
from agent_memory.cli.arguments import max_results_option, memory_path
from agent_memory.cli.files import ContentCommand
from agent_memory.cli.limiting import show_agents
from agent_memory.cli.output import COLUMNS, Exit, counted, draw, iso_moment, moment, note, printable, row, show_json
from agent_memory.cli.presence import without_files
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.versions import naming_the_list
from agent_memory.key.patterns import require_possible
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory
from agent_memory.tools.memory_tool import ROOT, MemoryTool
from agent_memory.tools.search import MAX_CONTEXT, MAX_RESULTS, RESULTS, MemorySearch, SearchResult

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
    entries = _entries(settings, path, recursive)
    if settings.json:
        show_json({"entries": [_document(entry) for entry in entries], "skipped": settings.skipped.count})
        return
    _print_lines(entries)
    _mention_skipped(settings)


@click.command(cls=Command)
@click.argument("path", type=memory_path, default="")
@pass_settings
def tree(settings: Settings, path: str) -> None:
    """Draw a directory and everything below it."""
    entries = _entries(settings, path, recursive=True)
    size = sum(entry.size for entry in entries)
    if settings.json:
        found = [_document(entry) for entry in entries]
        show_json({"entries": found, "files": len(entries), "size": size, "skipped": settings.skipped.count})
        return
    draw(_drawn(settings.agent, entries), columns=_WIDE)
    click.echo(f"{counted(len(entries), 'file')}, {counted(size, 'byte')}")
    _mention_skipped(settings)


@click.command(cls=Command)
@click.option("--long", is_flag=True, help="Also what each of them has: a listing of all files and versions.")
@pass_settings
def agents(settings: Settings, long: bool) -> None:
    """List the agents that have files."""
    with settings.store(Access.READ) as store:
        if long:
            show_agents(settings, store.service)
            return
        found = store.service.agent_ids()
    if settings.json:
        show_json({"agents": list(found), "skipped": settings.skipped.count})
        return
    for agent in found:
        click.echo(agent)
    _mention_skipped(settings)


def _entries(settings: Settings, path: str, recursive: bool) -> Sequence[Entry]:
    """The entries below a directory, with a note if there are none because the agent has no files at all."""
    with settings.store(Access.READ, settings.agent) as store:
        found = _below(store.service.agent(settings.agent), path, recursive)
        if not (found or settings.json or settings.skipped.count):
            note(without_files(store.service, store.backend, settings.agent))
    return found


def _below(memory: AgentMemory, path: str, recursive: bool = False) -> Sequence[Entry]:
    """The entries below a directory, or the file itself. A missing path is an error; an empty memory is not."""
    entries = memory.list(path, recursive=recursive)
    if entries or not path.strip("./"):
        return entries
    return [memory.stat(path.rstrip("/"))]


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


def _mention_skipped(settings: Settings) -> None:
    """Print a note with the number of names that listings left out."""
    if count := settings.skipped.count:
        note(f"{counted(count, 'name')} in storage left out: not a valid path, or no access; doctor counts them")


_LINES = re.compile(r"([0-9]{1,9}):(-1|[0-9]{0,9})")


def _range(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    match = _LINES.fullmatch(value)
    start, end = (int(match[1]), int(match[2] or -1)) if match else (0, 0)
    if not (start and (end == -1 or start <= end)):
        raise click.BadParameter(
            f"{value!r} is not START:END: lines count from 1, END may be -1 or left out", ctx, param
        )
    return [start, end]


def _glob(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            require_possible(value, of_names="/" not in value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@click.option("--version", metavar="ID", help="An earlier version of the file, also of a deleted one.")
@click.option("--as-tool", is_flag=True, help="Show the file, or the directory, as Claude's memory tool does.")
@click.option(
    "--lines", metavar="START:END", callback=_range, help="With --as-tool: only these lines; END may be -1 or left out."
)
@pass_settings
def read(settings: Settings, path: str | None, version: str | None, as_tool: bool, lines: list[int] | None) -> None:
    """Print a file, byte for byte; or with --as-tool what an agent's tool shows of a file or a directory.

    With --as-tool, control characters are escaped, and PATH may be left out: the whole memory.
    """
    if as_tool and version is not None:
        raise click.UsageError("--as-tool shows the current file; it does not go with --version")
    if lines and not as_tool:
        raise click.UsageError("--lines goes with --as-tool")
    if as_tool:
        _show_as_tool(settings, path or "", lines)
    elif path is None:
        raise click.UsageError("give a PATH; only with --as-tool it may be left out")
    else:
        _print_bytes(settings, path, version)


def _print_bytes(settings: Settings, path: str, version: str | None) -> None:
    with settings.memory(Access.READ) as memory:
        if version is None:
            data = memory.read_bytes(path)
        else:
            with naming_the_list(memory, path):
                data = memory.versions.read_bytes(path, version)
    if settings.json:
        show_json({"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **_as_json(data)})
    else:
        sys.stdout.buffer.write(data)


def _as_json(data: bytes) -> dict[str, str]:
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(data).decode()}


def _show_as_tool(settings: Settings, path: str, lines: list[int] | None) -> None:
    """Print the tool's view; PATH is /memories or a path below it, and "notes.md" is "/memories/notes.md"."""
    given, name = _named(path)
    with settings.memory(Access.READ) as memory:
        result = MemoryTool(memory, history=True).call({"command": "view", "path": given, "view_range": lines})
        if result.is_error:
            _fail(memory, name, result.output)
    if settings.json:
        show_json({"path": given, "output": result.output, "skipped": settings.skipped.count})
        return
    click.echo(printable(result.output))
    _mention_skipped(settings)


def _named(path: str) -> tuple[str, str]:
    """A path in the form of the tool, and in the form of the memory."""
    if path in ("", "."):
        return ROOT, ""
    return (path, path) if path.startswith("/") else (f"{ROOT}/{path}", path.strip("/"))


def _fail(memory: AgentMemory, name: str, answer: str) -> None:
    """Raise the original error of the operation, or else the message that the tool wrote for a model."""
    if name:
        memory.read(name)
    else:
        memory.list()
    raise click.ClickException(answer)


@click.command(cls=ContentCommand)
@click.argument("query")
@click.argument("path", type=memory_path, default="")
@click.option(
    "--glob", metavar="PATTERN", callback=_glob, help='Only files with this name, or with this path if it has a "/".'
)
@click.option(
    "-C",
    "--context",
    type=click.IntRange(0, MAX_CONTEXT),
    default=0,
    metavar="N",
    help="Lines to show around each match.",
)
@max_results_option("Maximum of matching lines", RESULTS, MAX_RESULTS)
@pass_settings
def search(settings: Settings, query: str, path: str, glob: str | None, context: int, max_results: int) -> None:
    """Print the lines that contain a text, ignoring case.

    The format is PATH:LINE: TEXT. QUERY is a plain text, not a pattern. PATH is a directory or a file. Exits with 1 if
    nothing is found, as grep does, or if a file could not be searched; it is named.
    """
    if not query:
        raise click.UsageError("QUERY is empty")
    path = _named(path)[1]
    with settings.memory(Access.READ) as memory:
        searching = MemorySearch(memory, history=True)
        found = searching.search(query, path, glob=glob, context=context, max_results=max_results)
        skipped = settings.skipped.count
        if not found.matches:
            _below(memory, path)  # a missing path is an error, but no match is not
        settings.skipped.count = skipped  # not counted twice
    if settings.json:
        facts = {"more": found.more, "skipped": settings.skipped.count}
        left_out = [each._asdict() for each in found.left_out]
        show_json({"matches": [asdict(match) for match in found.matches], **facts, "left_out": left_out})
    else:
        _print(settings, found)
    click.get_current_context().exit(Exit.OK if found.matches and not found.left_out else Exit.FAILED)


def _print(settings: Settings, found: SearchResult) -> None:
    if found.matches:
        click.echo(str(replace(found, more=False, left_out=())))
    if found.more:
        note(f"there are more matches than these {len(found.matches)}; narrow the search, or raise --max-results")
    for path, reason in found.left_out:
        note(f"left out {field(path)}: {reason}")
    _mention_skipped(settings)
