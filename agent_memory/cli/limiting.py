"""The commands du, expire and limits: what there is, how long, and how much there may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from datetime import timedelta
from functools import partial
from typing import Any

import click

from agent_memory.cli.arguments import Days, ask, memory_path, require_answer, yes_option
from agent_memory.cli.output import counted, moment, note, printable, row, show_json
from agent_memory.cli.settings import Access, Command, Settings, pass_settings, usage_errors
from agent_memory.core.expiring import MOST_EXPIRED
from agent_memory.core.limits.count import Usage
from agent_memory.core.limits.settings import TREE, Budget, Limits
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory
from agent_memory.service import AgentMemoryService

_NAMES = tuple(each.name for each in fields(Limits) if each.name != "warn_at")
_UNITS = {each.name for each in fields(Budget)}


class _BudgetType(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """``PATTERN:UNIT=N[,UNIT=N]``, or ``PATTERN:off``, as a pattern and its budget or None."""

    name = "budget"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Budget | None]:
        if isinstance(value, tuple):
            return value
        pattern, _, amounts = value.rpartition(":")
        if pattern and amounts == "off":
            return pattern, None
        parts = dict(each.partition("=")[::2] for each in amounts.split(","))
        if not (pattern and parts.keys() <= _UNITS and all(map(str.isdecimal, parts.values()))):
            self.fail(f"{value!r} is not like MEMORY.md:lines=200, /:files=100,bytes=9000 or MEMORY.md:off", param, ctx)
        try:
            return pattern, Budget(**{unit: int(amount) for unit, amount in parts.items()})
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


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
@click.option("--days", type=Days(), required=True, help="Not changed for so many days.")
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
@click.option(
    "--warn-at",
    "budgets",
    type=_BudgetType(),
    multiple=True,
    metavar="PATTERN:UNIT=N",
    help="With on: warn a model near so many bytes or lines of a file, or with / as PATTERN so many bytes or files of "
    "an agent. PATTERN:off removes it. Can be given several times.",
)
@pass_settings
def limits(
    settings: Settings,
    switch: str | None,
    file_bytes: int | None,
    agent_bytes: int | None,
    agent_files: int | None,
    count_versions: bool | None,
    budgets: tuple[tuple[str, Budget | None], ...],
) -> None:
    """Show the limits of the store, or set them with "on", or remove them with "off".

    They hold for each agent, in all programs that use the store; running ones follow within a minute. "limits on" keeps
    the limits that are not given. What is over a limit stays, and may become smaller.
    """
    given = zip(_NAMES, (file_bytes, agent_bytes, agent_files, count_versions), strict=True)
    chosen: dict[str, Any] = {name: value for name, value in given if value is not None}
    if (chosen or budgets) and switch != "on":
        raise click.UsageError('limits are set with "limits on"')
    with settings.store(Access.READ if switch is None else Access.MAKE) as store:
        found = store.service.limits()
        if switch == "on":
            before = found or Limits()
            warn_at = {**before.warn_at, **dict(budgets)}
            chosen["warn_at"] = {pattern: budget for pattern, budget in warn_at.items() if budget}
            with usage_errors():
                found = replace(before, **chosen)
            if not (found.refuse or found.warn_at or budgets):
                raise click.UsageError("give a limit: --file-bytes, --agent-bytes, --agent-files or --warn-at")
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
    refused = ", ".join(f"{most:,} {what}" for most, what in named if most is not None)
    warned = ", ".join(
        f"{amount:,} {unit if amount != 1 else unit.removesuffix('s')} of {'an agent' if pattern == TREE else pattern}"
        for pattern, budget in limits.warn_at.items()
        for unit, amount in budget.amounts()
    )
    parts = [f"at most {refused}"] if refused else []
    return "; ".join([*parts, f"a warning near {warned}"] if warned else parts)
