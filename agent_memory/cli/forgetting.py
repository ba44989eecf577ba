"""The command forget: erases a file or an agent, and writes a receipt to the audit log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from agent_memory.cli.asking import ask, require_answer, yes_option
from agent_memory.cli.audit import key_option, log_option
from agent_memory.cli.erasing import Erasing, erasing, note_versions
from agent_memory.cli.listing import files_at
from agent_memory.cli.output import Exit, counted, note, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.presence import has_own_data, lists_everything, without_files
from agent_memory.cli.settings import Command, OpenStore, Settings, pass_settings
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileOperationError
from agent_memory.key import Key, is_at_or_below
from agent_memory.key.quoting import field
from agent_memory.memory import TreeResult
from agent_memory.plugins.audit import AuditPlugin


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@yes_option
@log_option
@key_option
@pass_settings
def forget(settings: Settings, path: str | None, yes: bool, target: str | None, key_file: Path | None) -> None:
    """Erase a file or directory of --agent, or without PATH the whole agent, everywhere in the store.

    On S3 this includes earlier versions and incomplete uploads. The audit log keeps its records and gets a receipt, but
    the digests in it can no longer be checked, because the salt of the agent is destroyed; the salt in a log elsewhere
    only if --log names that log. A store that may keep hidden copies is refused. Can be run again; if there is nothing
    of PATH, exits with 3 and changes nothing.
    """
    Key.agent(settings.agent)
    path = _named(settings, path)
    require_answer("forget", yes)
    with erasing(settings, target, key_file) as opened:
        had_salt = any(_has_salt(log, settings.agent) for log in opened.logs)
        files = files_at(opened.seen, path)
        subject = f"{field(path)} of {settings.agent}" if path else f"all of {settings.agent}"
        unlisted = 0
        if files or settings.skipped.count or _is_kept(settings, opened, path):
            now = counted(files, "current file")
            ask(f"Erase {subject} for good: {now}, and all that is kept of earlier ones? This cannot be undone.", yes)
        else:
            unlisted = _erase_unlisted(settings, opened, path, subject, yes)
        done = opened.memory.forget(path)
    done = replace(done, files=done.files + unlisted)
    _show(settings, done, had_salt)
    if done.skipped:
        raise click.exceptions.Exit(Exit.FAILED)


def _is_kept(settings: Settings, opened: Erasing, path: str) -> bool:
    """Whether something is kept of files that are gone: versions, receipts, or digests that a log can still check."""
    if any(_has_salt(log, settings.agent, path) for log in opened.logs):
        return True
    if not path:
        return has_own_data(opened.store.backend, settings.agent)
    versions = opened.seen.versions.list(path, limit=1) or opened.seen.versions.list()
    return any(is_at_or_below(each.path, path) for each in versions)


def _has_salt(log: AuditPlugin, agent: str, path: str = "") -> bool:
    try:
        return log.has_salt(agent, path)
    except AgentMemoryError:
        return True  # `forget` continues, and then reports that the salt could not be destroyed


def _erase_unlisted(settings: Settings, opened: Erasing, path: str, subject: str, yes: bool) -> int:
    """Erase what a storage keeps of a name although it lists no such file; return of how many files.

    An object store finds it only by erasing. The audit logs stay as they are, because there may be nothing.

    Raises:
        AgentMemoryFileNotFoundError: there is nothing.
    """
    found = 0
    if not lists_everything(settings.url):
        ask(f"The store lists no {subject}. Erase what the storage may keep of it, such as earlier versions?", yes)
        found = opened.seen.forget(path).files
    if not found:
        hint = _hint(opened.store, settings.agent, path)
        raise AgentMemoryFileNotFoundError(f"nothing to forget: the store keeps nothing of {subject}{hint}")
    return found


def _hint(store: OpenStore, agent: str, path: str) -> str:
    try:
        agents = store.service.agent_ids()
    except FileOperationError:  # the credentials may allow listing only the agent's tree
        return ""
    if path in agents:
        return f"; there is an agent of that name: agent-memory forget --agent {path}"
    return "" if agent in agents else f"; {without_files(store.service, store.backend, agent)}"


def _named(settings: Settings, path: str | None) -> str:
    if path is None and settings.chosen_agent is None:
        raise click.UsageError("give a PATH, or give --agent to forget the whole memory of that agent")
    if path is not None and not path.strip("/"):
        raise click.UsageError("PATH is empty; leave it out to forget the whole agent")
    return "" if path in (None, ".") else Key.tree().join_prefix(str(path)).path


def _show(settings: Settings, done: TreeResult, had_salt: bool) -> None:
    if settings.json:
        facts = {"agent": settings.agent, "path": done.path, "files": done.files, "skipped": done.skipped}
        show_json({**facts, "salt": had_salt, "versions_searched": done.versions_searched})
    else:
        salt = ", and the salt of its digests in the audit log" if had_salt else ""
        click.echo(f"forgot {counted(done.files, 'file')} of {settings.agent}{salt}")
    note_versions(done.versions_searched)
    if done.skipped:
        note(f"{counted(done.skipped, 'name')} not erased: not a valid key, so not written by agent-memory")
