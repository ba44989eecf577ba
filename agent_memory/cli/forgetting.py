"""The command forget: erases a file or an agent, and writes a receipt to the audit log."""

from __future__ import annotations

from pathlib import Path

import click

from agent_memory.cli.audit import key_option, log_option
from agent_memory.cli.erasing import ask_first, erasing, note_versions
from agent_memory.cli.output import Exit, counted, note, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.settings import Command, Settings, pass_settings
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.memory import TreeResult
from agent_memory.plugins.audit import AuditPlugin


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; required without a terminal.")
@log_option
@key_option
@pass_settings
def forget(settings: Settings, path: str | None, yes: bool, target: str | None, key_file: Path | None) -> None:
    """Erase a file or directory of --agent, or without PATH the whole agent, everywhere in the store.

    On S3 this includes earlier versions and incomplete uploads. The audit log keeps its records and gets a receipt, but
    the digests in it can no longer be checked. A store that may keep hidden copies is refused. Can be run again; exits
    with 1 if nothing was found. The salt of the agent is always destroyed, even if PATH is mistyped; the salt in a log
    elsewhere only if --log names that log.
    """
    Key.agent(settings.agent)
    path = _named(settings, path)
    with erasing(settings, target, key_file) as (store, logs):
        memory = store.service.agent(settings.agent)
        subject = f"{field(path)} of {settings.agent}" if path else f"all of {settings.agent}"
        ask_first(f"Erase {subject} for good?", yes, "forget")
        had_salt = any(_has_salt(log, settings.agent) for log in logs)
        done = memory.forget(path)
        found_nothing = not (done.files or done.skipped or had_salt)
        namesake = found_nothing and path in store.service.agent_ids()
    _show(settings, done, had_salt)
    if namesake:
        note(f"there is an agent of that name: agent-memory forget --agent {path}")
    if done.skipped or found_nothing:
        raise click.exceptions.Exit(Exit.FAILED)


def _has_salt(log: AuditPlugin, agent: str) -> bool:
    try:
        return log.has_salt(agent)
    except AgentMemoryError:
        return True  # `forget` continues, and then reports that the salt could not be destroyed


def _named(settings: Settings, path: str | None) -> str:
    if path is None and settings.chosen_agent is None:
        raise click.UsageError("give a PATH, or give --agent to forget the whole memory of that agent")
    if path is not None and not path.strip("/"):
        raise click.UsageError("PATH is empty; leave it out to forget the whole agent")
    return "" if path in (None, ".") else str(path)


def _show(settings: Settings, done: TreeResult, had_salt: bool) -> None:
    if settings.json:
        facts = {"agent": settings.agent, "path": done.path, "files": done.files, "skipped": done.skipped}
        show_json({**facts, "salt": had_salt, "versions_searched": done.versions_searched})
    elif done.files or done.skipped or had_salt:
        salt = ", and the salt of its digests in the audit log" if had_salt else ""
        click.echo(f"forgot {counted(done.files, 'file')} of {settings.agent}{salt}")
    else:
        click.echo(f"nothing to forget: the store keeps nothing of {_shown(settings, done)}")
    note_versions(done.versions_searched)
    if done.skipped:
        note(f"{counted(done.skipped, 'name')} not erased: not a valid key, so not written by agent-memory")


def _shown(settings: Settings, done: TreeResult) -> str:
    return f"{field(done.path)} of {settings.agent}" if done.path else settings.agent
