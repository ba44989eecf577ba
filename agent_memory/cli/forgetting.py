"""The command forget: a file or an agent erased, and a receipt in the audit log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from agent_memory._fields import field
from agent_memory.audit import LogLocation, Salts
from agent_memory.cli.audit import key_option, location_of, log_option
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Command, Settings, open_store, pass_settings
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.memory import TreeResult
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.runners import close_backend


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; needed where there is no terminal.")
@log_option
@key_option
@pass_settings
def forget(settings: Settings, path: str | None, yes: bool, target: str | None, key_file: Path | None) -> None:
    """Erase a file or directory of --agent, or without PATH all of it, wherever the store keeps something of it.

    That is earlier versions and incomplete uploads on S3 too. The audit log keeps its records, with digests that
    nobody can check any more, and gets a receipt. A store that may keep more than it shows is refused. May be run
    again; exits with 1 if it found nothing. The salt of the agent goes in any case, also where PATH is mistyped;
    that of a log elsewhere only if --log names it.
    """
    Key.agent(settings.agent)
    path = _named(settings, path)
    with (
        settings.configured() as configured,
        _audits(settings, target, key_file, _required(configured)) as audits,
        open_store(settings.url, settings.storage_options(), settings, [*configured, *audits]) as store,
    ):
        memory = store.service.agent(settings.agent)
        require_store(store.backend, settings.url, settings.agent)
        _ask_first(settings, path, yes)
        logs = [plugin for plugin in [*configured, *audits] if isinstance(plugin, AuditPlugin)]
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
        return True  # forgetting goes on, and then says that the salt could not be destroyed


def _named(settings: Settings, path: str | None) -> str:
    if path is None and settings.chosen_agent is None:
        raise click.UsageError("name a PATH, or with --agent the agent whose whole memory is to be forgotten")
    if path is not None and not path.strip("/"):
        raise click.UsageError("PATH is empty; leave it out to forget the whole agent")
    return "" if path in (None, ".") else str(path)


def _ask_first(settings: Settings, path: str, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("forget asks first, and there is no terminal to ask in; --yes erases without a question")
    what = f"{field(path)} of {settings.agent}" if path else f"all of {settings.agent}"
    if not click.confirm(printable(f"Erase {what} for good?"), err=True):
        raise click.ClickException("nothing was erased")


def _show(settings: Settings, done: TreeResult, had_salt: bool) -> None:
    if settings.json:
        facts = {"agent": settings.agent, "path": done.path, "files": done.files, "skipped": done.skipped}
        show_json({**facts, "salt": had_salt})
    elif done.files or done.skipped or had_salt:
        salt = ", and the salt of its digests in the audit log" if had_salt else ""
        click.echo(f"forgot {counted(done.files, 'file')} of {settings.agent}{salt}")
    else:
        click.echo(f"nothing to forget: the store keeps nothing of {_shown(settings, done)}")
    if done.skipped:
        note(f"{counted(done.skipped, 'name')} left that no key can name: not written by agent-memory")


def _shown(settings: Settings, done: TreeResult) -> str:
    return f"{field(done.path)} of {settings.agent}" if done.path else settings.agent


def _required(plugins: Iterable[object]) -> bool:
    """Let a log of the configuration say so if it cannot destroy the salt; whether there is one."""
    audits = [plugin for plugin in plugins if isinstance(plugin, AuditPlugin)]
    for audit in audits:
        audit.required = True
    return bool(audits)


@contextmanager
def _audits(
    settings: Settings, target: str | None, key_file: Path | None, configured: bool
) -> Iterator[list[AuditPlugin]]:
    """What writes the receipts: into the log of ``--log``, and into the store's own, which has salts to destroy.

    The store's own is begun only if no other log is named or configured, and never with ``--no-audit``.
    """
    with ExitStack() as stack:
        audits: list[AuditPlugin] = []
        if target is not None:
            audits.append(stack.enter_context(_opened(location_of(settings, target), key_file)))
        own = location_of(settings, None)
        stack.callback(close_backend, own.backend)
        is_keyed = own.is_keyed()
        is_there = is_keyed is not None or Salts(own).known_commitment(settings.agent) is not None
        if is_there or not (audits or configured or settings.no_audit):
            key = key_file if is_keyed or target is None else None
            audits.append(stack.enter_context(_opened(own, key)))
        if not (audits or configured):
            note("no audit log here, so no receipt; --log names another")
        yield audits


def _opened(location: LogLocation, key_file: Path | None) -> AuditPlugin:
    key = key_file.read_bytes() if key_file else None
    try:
        if (is_keyed := location.is_keyed()) is not None and is_keyed != (key is not None):
            raise click.UsageError(f"the log's records are {'keyed: name the --key-file' if is_keyed else 'not keyed'}")
        return AuditPlugin(location, required=True, key=key)
    except BaseException as error:
        close_backend(location.backend)
        if isinstance(error, ValueError) and not isinstance(error, AgentMemoryError):
            raise click.UsageError(str(error)) from None
        raise
