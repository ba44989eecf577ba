"""The commands du, expire and limits: what there is, how long, and how much there may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from datetime import timedelta
from functools import partial
from typing import Any

import click

from agent_memory.cli.arguments import ask, memory_path, require_answer, yes_option
from agent_memory.cli.output import counted, moment, note, printable, row, show_json
from agent_memory.cli.settings import Access, Command, Settings, pass_settings, usage_errors
from agent_memory.core.expiring import MOST_EXPIRED
from agent_memory.core.limits.count import Usage
from agent_memory.core.limits.settings import Limits
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory
from agent_memory.service import AgentMemoryService

_NAMES = tuple(each.name for each in fields(Limits))


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@pass_settings
def du(settings: Settings, path: str | None) -> None:
    """Show how many bytes and files --agent has: in each directory, and in all, with versions and limits.

    With PATH only the directories of that directory are shown. Lists all names below it.
    """
    with settings.memory(Access.READ) as memory:
        inside = memory if path in (None, ".") else memory.subtree(str(path))
        whole = inside.usage()
        if path not in (None, ".") and not whole.files:
            raise AgentMemoryFileNotFoundError("no files below that name", path=path)
        parts = {name: used.usage() for name, used in _directories(inside)}
    if settings.json:
        directories = {name: {"files": each.files, "bytes": each.bytes} for name, each in parts.items()}
        show_json({"agent": settings.agent, "path": path or "", **_document(whole), "directories": directories})
        return
    for name, each in parts.items():
        click.echo(row(f"{each.bytes:>12,}", counted(each.files, "file"), printable(field(f"{name}/"))))
    click.echo(row(f"{whole.bytes:>12,}", *_facts(whole)))


def show_agents(settings: Settings, service: AgentMemoryService) -> None:
    """Print what each agent has, while the next one is counted."""
    rows: list[Mapping[str, Any]] = []
    for agent, usage in service.usage():
        if settings.json:
            rows.append({"agent": agent, **_document(usage)})
        else:
            click.echo(row(f"{usage.bytes:>12,}", printable(agent), *_facts(replace(usage, limits=None))))
    if settings.json:
        show_json({"agents": rows, "skipped": settings.skipped.count})


@click.command(cls=Command)
@click.argument("pattern")
@click.option("--days", type=click.FloatRange(0, min_open=True), required=True, help="Not changed for so many days.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Files that stay. Can be given several times.")
@click.option("--limit", type=click.IntRange(1), default=MOST_EXPIRED, show_default=True, help="At most so many files.")
@click.option("--dry-run", is_flag=True, help="Delete nothing, and show what would be deleted.")
@yes_option
@pass_settings
def expire(
    settings: Settings, pattern: str, days: float, keep: tuple[str, ...], limit: int, dry_run: bool, yes: bool
) -> None:
    """Delete the files that match PATTERN and did not change for some days, of all agents or of --agent.

    In PATTERN "*", "?" and "[...]" stand for a part of a name, "**" for any directories: "scratch/**". With versions
    on, what is deleted can be restored. A file that changes meanwhile stays.
    """
    if not dry_run:
        require_answer("expire", yes)
    agents = None if settings.chosen_agent is None else [settings.chosen_agent]
    access = Access.READ if dry_run else Access.CHANGE
    with settings.store(access, settings.chosen_agent) as store, usage_errors():
        ending = partial(
            store.service.expire, pattern, older_than=timedelta(days=days), keep=keep, agents=agents, limit=limit
        )
        if not dry_run:
            whose = "all agents" if agents is None else settings.agent
            ask(f"Delete the files of {whose} that match {pattern} and did not change for {days:g} days?", yes)
        found = ending(dry_run=dry_run)
    if settings.json:
        show_json({"dry_run": dry_run, "files": [asdict(each) for each in found], "limit": limit})
        return
    for each in found:
        click.echo(row(moment(each.modified), f"{each.size:>9,}", printable(each.agent), printable(field(each.path))))
    click.echo(f"{'would delete' if dry_run else 'deleted'} {counted(len(found), 'file')}")
    if len(found) == limit:
        note("there may be more: run it again, or raise --limit")


@click.command(cls=Command)
@click.argument("switch", type=click.Choice(["on", "off"]), required=False)
@click.option("--file-bytes", type=click.IntRange(1), help="With on: the most bytes of each file.")
@click.option("--agent-bytes", type=click.IntRange(1), help="With on: the most bytes of each agent's files.")
@click.option("--agent-files", type=click.IntRange(1), help="With on: the most files of each agent.")
@click.option("--count-versions/--no-count-versions", default=None, help="With on: whether kept versions count, too.")
@pass_settings
def limits(
    settings: Settings,
    switch: str | None,
    file_bytes: int | None,
    agent_bytes: int | None,
    agent_files: int | None,
    count_versions: bool | None,
) -> None:
    """Show the limits of the store, or set them with "on", or remove them with "off".

    They hold for each agent, in all programs that use the store; running ones follow within a minute. "limits on" keeps
    the limits that are not given. What is over a limit stays, and may become smaller.
    """
    given = zip(_NAMES, (file_bytes, agent_bytes, agent_files, count_versions), strict=True)
    chosen: dict[str, Any] = {name: value for name, value in given if value is not None}
    if chosen and switch != "on":
        raise click.UsageError('limits are set with "limits on"')
    with settings.store(Access.READ if switch is None else Access.MAKE) as store:
        found = store.service.limits()
        if switch == "on":
            try:
                found = replace(found or Limits(), **chosen)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            if not any(getattr(found, name) for name in _NAMES):
                raise click.UsageError("give a limit: --file-bytes, --agent-bytes or --agent-files")
        elif switch == "off":
            found = None
        if switch:
            store.service.set_limits(found)
    document = {"limits": None if found is None else asdict(found)}
    settings.show(document, _described(found) or "there are no limits")


def _directories(memory: AgentMemory) -> Iterator[tuple[str, AgentMemory]]:
    for entry in memory.list(recursive=False):
        if entry.is_directory:
            yield entry.path, memory.subtree(entry.path)


def _document(usage: Usage) -> dict[str, Any]:
    return asdict(usage)


def _facts(usage: Usage) -> list[str]:
    facts = [counted(usage.files, "file")]
    if usage.oldest is not None and usage.newest is not None:
        facts.append(f"{moment(usage.oldest)} to {moment(usage.newest)}")
    if usage.versions:
        facts.append(f"{counted(usage.versions, 'version')} ({usage.version_bytes:,} bytes)")
    return [*facts, described] if (described := _described(usage.limits)) else facts


def _described(limits: Limits | None) -> str:
    """The limits as text; "" if there are none."""
    if limits is None:
        return ""
    named = (
        (limits.file_bytes, "bytes a file"),
        (limits.agent_bytes, "bytes an agent" + (", with versions" if limits.count_versions else "")),
        (limits.agent_files, "files an agent"),
    )
    return "at most " + ", ".join(f"{most:,} {what}" for most, what in named if most is not None)
