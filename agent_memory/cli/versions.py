"""The commands versions, diff, restore, prune and undo: earlier versions of files."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import click
from rich.cells import cell_len, set_cell_size

from agent_memory.audit import LogLocation
from agent_memory.cli.arguments import Days, Moment, ask, memory_path, require_answer, yes_option
from agent_memory.cli.files import show_written
from agent_memory.cli.log_options import location_of, log_option
from agent_memory.cli.output import Exit, Explained, argument, counted, moment, note, printable, row, show_json
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.core.one_file import fails_alone
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.core.versions.states import FileVersion
from agent_memory.core.versions.undo import Undone, UndoResult
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileTooLargeError, ReadError
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory
from agent_memory.tools._each_file import reason_of

_SHOWN = 20
_MOST_STEPS = 20
_MOST_OF_ACTOR = 30
"""Columns of an actor; --json prints it in full."""


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@click.option("-n", "limit", type=click.IntRange(1), default=_SHOWN, show_default=True, help="Maximum number.")
@click.option("--after", metavar="ID", help="Only versions after this one in the list.")
@click.option("--containing", metavar="TEXT", help="Only versions whose content contains exactly this text.")
@click.option("--keep", type=click.IntRange(1), help="With on: at most so many of each file.")
@click.option("--days", type=Days(), help="With on: none that ended longer ago.")
@click.option("--bytes", "most", type=click.IntRange(1), help="With on: at most so many bytes for each agent.")
@pass_settings
def versions(
    settings: Settings,
    path: str | None,
    limit: int,
    after: str | None,
    containing: str | None,
    keep: int | None,
    days: float | None,
    most: int | None,
) -> None:
    """List the versions of a file, newest first; or turn versions "on" or "off" for the whole store.

    Without PATH, list what was replaced or deleted last, in all files of --agent; the current files are not among them.
    With --containing, exits with 1 if there is none. When versions are on, each state of a file that is replaced or
    deleted is kept, for all agents and all programs that use the store. "versions on" keeps the limits that are not
    given; "versions status" prints them. A file that is named "on" is ./on.
    """
    given: dict[str, Any] = {
        name: value for name, value in (("keep", keep), ("days", days), ("max_bytes", most)) if value is not None
    }
    if containing is not None and path in ("on", "off", "status"):
        raise click.UsageError("--containing goes with a list of versions")
    if given and path != "on":
        raise click.UsageError('--keep, --days and --bytes go with "versions on"')
    if path in ("on", "off"):
        _turn(settings, given if path == "on" else None)
    elif path == "status":
        with settings.memory(Access.READ) as memory:
            _show_limits(settings, memory.versions.limits())
    else:
        _list(settings, "" if path in (None, ".") else str(path), limit, after, containing)


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.argument("old", required=False)
@click.argument("new", required=False)
@pass_settings
def diff(settings: Settings, path: str, old: str | None, new: str | None) -> None:
    """Compare two versions of a file, or without NEW a version with the current file, line by line.

    Without OLD, the last earlier version is compared.
    """
    with settings.memory(Access.READ) as memory:
        old = old or _earlier_version(settings, memory, path)
        with naming_the_list(memory, path):
            text = memory.versions.diff(path, old, new)
    if settings.json:
        show_json({"path": path, "old": old, "new": new, "diff": text})
        return
    for line in text.removesuffix("\n").split("\n") if text else ():
        click.secho(printable(line), fg=_colour(line))


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.argument("version", required=False)
@pass_settings
def restore(settings: Settings, path: str, version: str | None) -> None:
    """Write the content of an earlier version as the current file; the file's current content becomes a version.

    Without VERSION, the last earlier version is restored; so a second restore takes the first one back.
    """
    with settings.memory(Access.CHANGE) as memory:
        version = version or _earlier_version(settings, memory, path)
        with naming_the_list(memory, path):
            result = memory.versions.restore(path, version)
        show_written(settings, "restored", result)
        _note_off(memory)


@click.command(cls=Command)
@pass_settings
def prune(settings: Settings) -> None:
    """Delete the versions of --agent that the limits of "versions on" no longer keep.

    All that ended less than an hour ago stay.
    """
    with settings.memory(Access.CHANGE) as memory:
        count = memory.versions.prune()
        if memory.versions.limits() is None:
            note('this store keeps no versions, so it has no limits of them: "agent-memory versions on" sets them')
    pruned = f"pruned {counted(count, 'version')} of {settings.agent}"
    settings.show({"agent": settings.agent, "pruned": count}, pruned)


@click.command(cls=Command)
@click.option("--by", metavar="ACTOR", help="Only operations for this actor.")
@click.option("--tool-call", metavar="ID", help="Only operations of this tool call.")
@click.option("--since", type=Moment(), help="Only operations from this time on, in UTC.")
@click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
@yes_option
@log_option
@pass_settings
def undo(
    settings: Settings,
    by: str | None,
    tool_call: str | None,
    since: float | None,
    dry_run: bool,
    yes: bool,
    target: str | None,
) -> None:
    """Take back what an actor or a tool call changed in the files of --agent, or everything since a time.

    Needs "versions on". A file that another operation replaced afterwards is left, and named. The audit log tells which
    actor appended which bytes, and those of others stay. Each step is recorded and becomes a version, so that it can be
    undone too. Exits with 1 if a file was left, or if there was nothing to undo.
    """
    if (by, tool_call, since) == (None, None, None):
        raise click.UsageError("give --by, --tool-call or --since: without one, undo would take back everything")
    settings.no_audit |= dry_run
    if not dry_run:
        require_answer("undo", yes)
    with settings.memory(Access.CHANGE) as memory, _log(settings, target) as log:
        call = partial(memory.versions.undo, actor=by, tool_call_id=tool_call, since=since, audit=log)
        if not (dry_run or yes) and (steps := call(dry_run=True).done):
            _ask_about(settings, steps)
        result = call(dry_run=dry_run)
        if result.done:
            _note_off(memory)
    _show_undone(settings, result, dry_run)
    if result.left or not result.done:
        raise click.exceptions.Exit(Exit.FAILED)


def _note_off(memory: AgentMemory) -> None:
    """Say that the store does not keep what a command replaced."""
    if memory.versions.limits() is None:
        note('this store keeps no versions, so what was replaced is not kept: "agent-memory versions on" turns them on')


@contextmanager
def naming_the_list(memory: AgentMemory, path: str) -> Iterator[None]:
    """Add to an error about a missing version, or a deleted file, which command lists the versions."""
    try:
        yield
    except AgentMemoryFileNotFoundError as error:
        if not memory.versions.list(path, limit=1):
            raise
        command = f"agent-memory versions {name}" if (name := argument(path)) else "the command versions"
        raise Explained(error, f"see {command}", {}) from error


def _earlier_version(settings: Settings, memory: AgentMemory, path: str) -> str:
    """The id of the last earlier version of a file.

    Raises:
        AgentMemoryFileNotFoundError: no earlier version is kept, or there is no such file.
        ReadError: a record of a version cannot be read, and may be the one of the last earlier version.
    """
    found = require_versions(settings, memory, path, limit=2)
    if count := settings.skipped.count:
        raise ReadError(f"the last earlier version is not known, because {_left_out(count)}; give a version", path=path)
    earlier = next((each.id for each in found if each.ended_by), None)
    if earlier is None:
        raise AgentMemoryFileNotFoundError("no earlier version of this file is kept", path=path)
    return earlier


def require_versions(settings: Settings, memory: AgentMemory, path: str, limit: int = 1) -> Sequence[FileVersion]:
    """The first versions of a file that can be read; raises `AgentMemoryFileNotFoundError` if none is kept."""
    found = memory.versions.list(path, limit=limit)
    if found or settings.skipped.count:
        return found
    raise AgentMemoryFileNotFoundError("there is no such file, and no version of it is kept", path=path)


def _list(settings: Settings, path: str, limit: int, after: str | None, text: str | None) -> None:
    left_out: list[tuple[FileVersion, AgentMemoryError]] = []
    with settings.memory(Access.READ) as memory:
        found = memory.versions.list(path, limit=limit + 1 if text is None else None, after=after)
        is_off = not any(each.ended_by for each in found) and memory.versions.limits() is None
        if path and not found:
            require_versions(settings, memory, path)
        if text is not None:
            found = tuple(itertools.islice(_containing(memory, found, text, left_out), limit + 1))
        found, has_more = found[:limit], len(found) > limit
    for each, error in left_out:
        note(f"version {each.id} of {field(each.path)} {_reason(each, error)}")
    skipped = settings.skipped.count
    if skipped:
        note(_left_out(skipped))
    if settings.json:
        show_json({"path": path, "versions": [asdict(each) for each in found], "skipped": skipped})
    else:
        _print(path, found, has_more)
        if is_off and not skipped:
            note('this store keeps no versions: "agent-memory versions on" turns them on')
        elif not (found or left_out or skipped):
            of = f"of {field(path)}" if path else f"of agent {settings.agent!r}"
            of += f" after {after}" if after else ""
            note(f"no earlier version {of}" if text is None else f"no kept version {of} contains this text")
    if text is not None and (left_out or skipped or not found):
        raise click.exceptions.Exit(Exit.FAILED)


def _left_out(count: int) -> str:
    return f"{counted(count, 'record')} of versions cannot be read: damaged, or no access"


def _reason(version: FileVersion, error: AgentMemoryError) -> str:
    if isinstance(error, FileTooLargeError):
        return f"is too large to be searched: {counted(version.size, 'byte')}"
    return f"could not be searched: {reason_of(error)}"


def _print(path: str, found: Sequence[FileVersion], has_more: bool) -> None:
    for each in found:
        click.echo(printable(_line(each, path)))
    if has_more:
        last = found[-1].id if path else f"{found[-1].path}@{found[-1].id}"
        note(f"{counted(len(found), 'version')}; --after {shlex.quote(last)} shows the next ones")


def _containing(
    memory: AgentMemory,
    versions: Sequence[FileVersion],
    text: str,
    left_out: list[tuple[FileVersion, AgentMemoryError]],
) -> Iterator[FileVersion]:
    """Yield the versions whose content contains a text; collects those that cannot be read.

    The search skips a version whose content was erased, before it or during it.
    """
    data = os.fsencode(text)
    for each in versions:
        try:
            if each.reason is None and data in _content(memory, each):
                yield each
        except AgentMemoryFileNotFoundError:
            continue
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            left_out.append((each, error))


def _content(memory: AgentMemory, version: FileVersion) -> bytes:
    if version.ended_by is None:
        return memory.read_bytes(version.path)
    return memory.versions.read_bytes(version.path, version.id)


def _turn(settings: Settings, given: dict[str, Any] | None) -> None:
    with settings.memory(Access.MAKE) as memory:
        limits = None if given is None else replace(memory.versions.limits() or VersionLimits(), **given)
        memory.versions.set_limits(limits)
    _show_limits(settings, limits)


def _show_limits(settings: Settings, limits: VersionLimits | None) -> None:
    if limits is None:
        settings.show({"versions": False}, "versions are off: nothing more is kept, and what is kept stays")
        return
    most = f"{limits.keep:,} of each file, {limits.days:g} days, {limits.max_bytes:,} bytes"
    settings.show({"versions": True, **asdict(limits)}, f"versions are on: {most}")


def _line(version: FileVersion, path: str) -> str:
    name = [] if version.path == path else [f"{'as ' if path else ''}{field(version.path)}"]
    ended = f"until {_by(version.ended_by)}" if version.ended_by else "present"
    redacted = "redacted" if version.redacted_by else "redaction did not end"
    size = redacted if version.reason is not None else f"{version.size:,}"
    appended = [f"{counted(version.appended_bytes, 'byte')} appended"] if version.appended_bytes else []
    return row(f"{version.id or '-':<16}", f"{size:>9}", _by(version.made_by), *appended, ended, *name)


def _by(by: MadeBy | None) -> str:
    if by is None:
        return "unknown"
    return f"{moment(by.time)} {by.operation} {_shortened(field(by.actor)) if by.actor else '-'}"


def _shortened(actor: str) -> str:
    return actor if cell_len(actor) <= _MOST_OF_ACTOR else set_cell_size(actor, _MOST_OF_ACTOR - 1) + "…"


def _colour(line: str) -> str | None:
    if line.startswith(("+++", "---")):
        return None
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])


def _ask_about(settings: Settings, steps: Sequence[Undone]) -> None:
    for each in steps[:_MOST_STEPS]:
        note(f"would be {_step(each)}")
    if len(steps) > _MOST_STEPS:
        note(f"and {len(steps) - _MOST_STEPS:,} more; --dry-run prints all")
    ask(f"Make {counted(len(steps), 'change')} in the files of {settings.agent}? Each becomes a version.", yes=False)


@contextmanager
def _log(settings: Settings, target: str | None) -> Iterator[LogLocation | None]:
    """The log that ``--log`` names, or the store's own one; None if there is none."""
    location = location_of(settings, target)
    with closing(location.store):
        is_there = bool(location.parts())
        if target is not None and not is_there:
            raise click.ClickException("there is no audit log")
        yield location if is_there else None


def _show_undone(settings: Settings, result: UndoResult, dry_run: bool) -> None:
    if settings.json:
        steps = {"done": [_document(each) for each in result.done], "left": [asdict(each) for each in result.left]}
        show_json({"agent": settings.agent, "dry_run": dry_run, **steps})
        return
    for each in result.done:
        click.echo(printable(f"{'would be ' if dry_run else ''}{_step(each)}"))
    for left in result.left:
        note(f"left {field(left.path)}: {left.reason}")
    if not result.done and not result.left:
        click.echo(f"nothing to undo of agent {settings.agent!r}")


def _document(step: Undone) -> dict[str, Any]:
    """A step for ``--json``, without the token of a state."""
    return {name: fact for name, fact in asdict(step).items() if name != "etag"}


def _step(step: Undone) -> str:
    path = field(step.path)
    cut = f"{step.cut_bytes:,} appended bytes"
    match step.action:
        case "restore":
            return f"restored: {path} to version {step.version}{f' without {cut}' if step.cut_bytes else ''}"
        case "delete":
            return f"deleted: {path}"
        case "cut":
            return f"cut: {path} by {cut}"
