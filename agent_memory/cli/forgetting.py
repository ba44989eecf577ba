"""The command forget: a file or an agent erased, and a receipt in the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent_memory.audit import LogLocation, head
from agent_memory.cli.audit import key_option, location_of, log_option
from agent_memory.cli.output import Exit, counted, note, show_json
from agent_memory.cli.settings import Command, Settings, open_store, pass_settings
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.runners import close_backend


@click.command(cls=Command)
@click.argument("agent")
@click.argument("path", required=False)
@log_option
@key_option
@pass_settings
def forget(settings: Settings, agent: str, path: str | None, target: str | None, key_file: Path | None) -> None:
    """Erase all of AGENT, or a file or directory of it, wherever the store keeps something of it.

    That is earlier versions and incomplete uploads on S3 too. The audit log keeps its records, with digests that
    nobody can check any more, and gets a receipt. A store that may keep more than it shows is refused.
    """
    if path is not None and not path.strip("/"):
        raise click.UsageError("PATH is empty; leave it out to forget the whole agent")
    with (
        settings.configured() as configured,
        _audit(settings, target, key_file, _required(configured)) as audits,
        open_store(settings.url, settings.storage_options(), settings, [*configured, *audits]) as store,
    ):
        done = store.service.forget_memory(agent, path or "")
    if settings.json:
        show_json({"agent": agent, "path": done.path, "files": done.files, "skipped": done.skipped})
    else:
        click.echo(f"forgot {counted(done.files, 'file')} of {agent}")
    if done.skipped:
        note(f"{counted(done.skipped, 'name')} left that no key can name: not written by agent-memory")
        raise click.exceptions.Exit(Exit.FAILED)


def _required(plugins: Iterable[object]) -> bool:
    """Let a log of the configuration say so if it cannot destroy the salt; whether there is one."""
    audits = [plugin for plugin in plugins if isinstance(plugin, AuditPlugin)]
    for audit in audits:
        audit.required = True
    return bool(audits)


@contextmanager
def _audit(
    settings: Settings, target: str | None, key_file: Path | None, configured: bool
) -> Iterator[list[AuditPlugin]]:
    """What writes the receipt; nothing where the store has no log and none was named."""
    location = location_of(settings, target)
    parts = location.parts()
    if not parts and target is None:
        close_backend(location.backend)
        if not configured:
            note("no audit log here, so no receipt; --log names another")
        yield []
        return
    key = key_file.read_bytes() if key_file else None
    try:
        if parts and _is_keyed(location, parts) != (key is not None):
            raise click.UsageError("the log's records are " + ("not keyed" if key else "keyed: name the --key-file"))
        audit = AuditPlugin(location, required=True, key=key)
    except ValueError as error:
        close_backend(location.backend)
        raise click.UsageError(str(error)) from None
    except BaseException:
        close_backend(location.backend)
        raise
    with audit:
        yield [audit]


def _is_keyed(location: LogLocation, parts: Iterable[Key]) -> bool:
    for part in parts:
        for block in location.blocks(part):
            if first := next(filter(None, map(head, block.splitlines())), None):
                return first.keyed
    return False
