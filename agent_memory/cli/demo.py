"""The command demo: processes append to one file at once, ways out are refused, and the audit log has it all."""

from __future__ import annotations

import logging
import multiprocessing
import shlex
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Final

import click

from agent_memory.audit.filtering import time_of
from agent_memory.audit.records import Record
from agent_memory.cli.audit import log_records
from agent_memory.cli.output import Exit, printable, show_json
from agent_memory.cli.presence import local_root, shown_path
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.errors import AppendError, InvalidPathError, UnsupportedOperationError
from agent_memory.key import RULES, Key
from agent_memory.memory import AgentMemory

_AGENT: Final = "demo"
JOURNAL: Final = "session/journal.md"
_LINK: Final = "session/link"
LINES: Final = {n: [f"- process {n}, line {number}" for number in range(1, 26)] for n in range(1, 5)}
_start: Barrier


@click.command(cls=Command)
@pass_settings
def demo(settings: Settings) -> None:
    """Run a short session on the store and show what happened.

    Appends from several processes at once, tries to leave the agent's tree, and prints what the audit log has of it.
    Uses the agent "demo" and its directory "session". Can be run again.
    """
    if settings.url.lower().startswith("memory://"):
        raise UnsupportedOperationError("memory:// exists in one process only; the demo needs several")
    settings = replace(settings, chosen_agent=_AGENT, actor=settings.actor or "demo")
    begun = datetime.now(UTC)
    with settings.memory(Access.MAKE) as memory:
        memory.write(JOURNAL, "# Journal\n")
        append_at_once(replace(settings, in_services=[]))  # each process has services of its own
        found = Counter(memory.read(JOURNAL).splitlines())
        escapes = _escapes(memory, local_root(settings.url))
    log = [] if settings.no_audit else [each for each in log_records(settings) if each.get("agent") == _AGENT]
    log = [each for each in log if "path" in each and time_of(each) >= begun]
    expected = [line for lines in LINES.values() for line in lines]
    present = sum(found[line] == 1 for line in expected)
    held = present == len(expected) and None not in escapes.values()
    if settings.json:
        facts = {"store": settings.url, "agent": _AGENT, "expected_lines": len(expected), "present_lines": present}
        show_json({**facts, "escapes": escapes, "audit": log, "held": held})
    else:
        _show(f"{present} of {len(expected)} lines are there, each whole and once", escapes, log, held=held)
        _show_commands(settings)
    click.get_current_context().exit(Exit.OK if held else Exit.FAILED)


def append_at_once(settings: Settings) -> None:
    """Append `LINES` to `JOURNAL`, each process its own; all start when all are ready, and ignore an interrupt."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(LINES), context, _share, (context.Barrier(len(LINES)),)) as pool:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the processes inherit this
        try:
            faults = pool.map(_append, [settings] * len(LINES), LINES)
        finally:
            signal.signal(signal.SIGINT, before)
        for fault in sorted({*faults} - {""}, key="BrokenBarrierError".__eq__):  # that one is never the cause
            raise AppendError(f"a process could not append: {fault}")


def _share(start: Barrier) -> None:
    global _start
    _start = start
    logging.disable()  # the parent prints the error


def _append(settings: Settings, process: int) -> str:
    """Append the lines of a process; returns the message of an error, or ""."""
    try:
        with replace(settings, actor=f"process-{process}").memory(Access.CHANGE) as memory:
            _start.wait(60)
            for line in LINES[process]:
                memory.append(JOURNAL, line + "\n")
    except Exception as error:  # noqa: BLE001 - the parent reports it
        _start.abort()  # the others wait no longer
        return str(error) or type(error).__name__
    return ""


def _escapes(memory: AgentMemory, root: Path | None) -> dict[str, str | None]:
    """Ways out of the agent's tree, each with the rule that refuses it, or None; on local disk also a symbolic link."""
    found = {"read ../ben/notes.md": _refusal(lambda: memory.read("../ben/notes.md"))}
    if root:
        link = root / Key.agent(_AGENT).join(_LINK).storage
        link.unlink(missing_ok=True)
        link.symlink_to("/etc/passwd")
        try:
            found[f"append {_LINK} -> /etc/passwd"] = _refusal(lambda: memory.append(_LINK, ""))
        finally:
            link.unlink()
    return found


def _refusal(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except InvalidPathError as error:
        return error.rule
    return None


def _show(lines: str, escapes: dict[str, str | None], log: list[Record], *, held: bool) -> None:
    click.secho(f"{len(LINES)} processes append {len(LINES[1])} lines each to one file, at once", fg="cyan")
    click.echo(f"  {lines}")
    click.secho("An agent tries to leave its tree", fg="cyan")
    for what, rule in escapes.items():
        click.echo(f"  {what}: {f'refused: {RULES[rule]}' if rule else 'NOT REFUSED'}")
    click.secho("The audit log: actor, operation, path and outcome", fg="cyan")
    for facts, times in sorted(Counter(map(_facts, log)).items()):
        click.echo(f"  {facts}{f', {times} times' if times > 1 else ''}")
    text = "Nothing was lost or torn, and nothing got out." if held else "Something was lost or torn, or got out."
    click.secho(text, fg="green" if held else "red", bold=True)


def _facts(record: Record) -> str:
    what, end = record.get("operation") or record["event"], record.get("rule") or record.get("error")
    return printable(f"{record.get('actor'):<10} {what:<8} {record['path']:<20} {end or record.get('outcome')}")


def _show_commands(settings: Settings) -> None:
    root, directory = local_root(settings.url), Key.agent(_AGENT).join("session").storage
    place = f"{settings.url.rstrip('/')}/{directory}" if root is None else shown_path(root / directory)
    click.echo(f"The files are plain text, in\n  {place}\nLook around:")
    found = shutil.which("agent-memory") == sys.argv[0]
    program = "agent-memory" if found else f"{shlex.quote(sys.executable)} -m agent_memory"
    options = "" if settings.chosen_url is None else f" --url {shlex.quote(settings.url)}"
    for command in (f"read {JOURNAL}", "audit show", "audit verify"):
        click.echo(f"  {program}{options} --agent {_AGENT} {command}")
