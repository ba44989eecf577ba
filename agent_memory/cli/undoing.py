"""The commands undo and redact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from agent_memory.audit import LogLocation
from agent_memory.cli.arguments import Moment, memory_path
from agent_memory.cli.asking import ask, require_answer, yes_option
from agent_memory.cli.audit import key_option, location_of, log_option
from agent_memory.cli.erasing import erasing, note_versions
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.presence import require_agent
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.versions import require_versions
from agent_memory.core.versions.redact import RedactResult
from agent_memory.core.versions.undo import Undone, UndoResult
from agent_memory.key import Key
from agent_memory.key.quoting import field

_MOST_STEPS = 20


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
    _show_undone(settings, result, dry_run)
    if result.left or not result.done:
        raise click.exceptions.Exit(Exit.FAILED)


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.argument("version")
@click.option("--reason", required=True, help="Why; it is stored in the place of the content.")
@yes_option
@log_option
@key_option
@pass_settings
def redact(
    settings: Settings, path: str, version: str, reason: str, yes: bool, target: str | None, key_file: Path | None
) -> None:
    """Erase the content of an earlier version of a file; its facts stay, without a digest.

    Names the other versions of the file, and the current file, that still contain the same content: they stay. The
    digests of --agent in the audit log can no longer be checked afterwards.
    """
    Key.agent(settings.agent)
    require_answer("redact", yes)
    with erasing(settings, target, key_file) as opened:
        require_agent(opened.store.service, opened.store.backend, settings.url, settings.agent)
        require_versions(settings, opened.seen, path)
        ask(
            f"Erase the content of version {version} of {field(path)} of {settings.agent} for good? "
            "This cannot be undone.",
            yes,
        )
        result = opened.memory.versions.redact(path, version, reason=reason)
    _show_redacted(settings, result)


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
    try:
        if not location.parts():
            if target is not None:
                raise click.ClickException("there is no audit log")
            yield None
        else:
            yield location
    finally:
        location.store.close()


def _show_undone(settings: Settings, result: UndoResult, dry_run: bool) -> None:
    if settings.json:
        show_json(
            {
                "agent": settings.agent,
                "dry_run": dry_run,
                "done": [asdict(each) for each in result.done],
                "left": [asdict(each) for each in result.left],
            }
        )
        return
    for each in result.done:
        click.echo(printable(f"{'would be ' if dry_run else ''}{_step(each)}"))
    for left in result.left:
        note(f"left {field(left.path)}: {left.reason}")
    if not result.done and not result.left:
        click.echo(f"nothing to undo of agent {settings.agent!r}")


def _step(step: Undone) -> str:
    path = field(step.path)
    cut = f"{step.cut_bytes:,} appended bytes"
    match step.action:
        case "restore":
            name = f" as {field(step.new_path)}" if step.new_path else ""
            return f"restored: {path} to version {step.version}{name}{f' without {cut}' if step.cut_bytes else ''}"
        case "rename":
            return f"renamed: {path} to {field(step.new_path or '')}"
        case "delete":
            return f"deleted: {path}"
        case "cut":
            return f"cut: {path} by {cut}"


def _show_redacted(settings: Settings, result: RedactResult) -> None:
    if settings.json:
        still_in = [{"path": each.path, "id": each.id, "present": not each.ended_by} for each in result.still_in]
        facts = {"agent": settings.agent, "path": result.path, "redacted": result.version}
        show_json({**facts, "still_in": still_in, "versions_searched": result.versions_searched})
        return
    click.echo(printable(f"redacted version {result.version} of {field(result.path)}"))
    note_versions(result.versions_searched)
    for each in result.still_in:
        where = f"version {each.id} of {field(each.path)}" if each.ended_by else f"the current file {field(each.path)}"
        note(f"{where} still contains this content")
