"""The store and the audit logs of a command that erases: the logs get a receipt and destroy the salt of the agent."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from agent_memory.audit import LogLocation, Salts
from agent_memory.cli.audit import location_of
from agent_memory.cli.output import note, printable
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import OpenStore, Settings, open_store
from agent_memory.errors import AgentMemoryError
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.audit import AuditPlugin


@contextmanager
def erasing(
    settings: Settings, target: str | None, key_file: Path | None
) -> Iterator[tuple[OpenStore, list[AuditPlugin]]]:
    """Open an existing store, with the audit logs that it has, that are configured, or that ``--log`` names."""
    with (
        settings.configured() as configured,
        _audits(settings, target, key_file, _required(configured)) as audits,
        open_store(settings.url, settings.storage_options(), settings, [*configured, *audits]) as store,
    ):
        require_store(store.backend, settings.url, settings.agent)
        yield store, [plugin for plugin in [*configured, *audits] if isinstance(plugin, AuditPlugin)]


def ask_first(question: str, yes: bool, command: str) -> None:
    """Ask before a command erases, unless ``yes``; raise if the answer is no, or if there is no terminal."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"{command} asks first, and there is no terminal to ask in; --yes erases without asking")
    if not click.confirm(printable(question), err=True):
        raise click.ClickException("nothing was erased")


def note_versions(searched: bool) -> None:
    """Say on stderr if an erasing did not look for the storage's own versions."""
    if not searched:
        note("no earlier versions were looked for: the server says that it has none")


def _required(plugins: Iterable[object]) -> bool:
    """Make it an error if a configured log cannot destroy the salt; returns whether there is such a log."""
    audits = [plugin for plugin in plugins if isinstance(plugin, AuditPlugin)]
    for audit in audits:
        audit.required = True
    return bool(audits)


@contextmanager
def _audits(
    settings: Settings, target: str | None, key_file: Path | None, configured: bool
) -> Iterator[list[AuditPlugin]]:
    """The plugins that write receipts: to the log of ``--log``, and to the store's own log, which has salts to destroy.

    The store's own log is created only if no other log is named or configured, and never with ``--no-audit``.
    """
    with ExitStack() as stack:
        audits: list[AuditPlugin] = []
        if target is not None:
            audits.append(stack.enter_context(_opened(location_of(settings, target), key_file)))
        own = location_of(settings, None)
        stack.callback(own.store.close)
        is_keyed = own.is_keyed()
        is_there = is_keyed is not None or Salts(own).known_commitment(settings.agent) is not None
        if is_there or not (audits or configured or settings.no_audit):
            key = key_file if is_keyed or target is None else None
            audits.append(stack.enter_context(_opened(own, key)))
        if not (audits or configured):
            note("no audit log here, so no receipt; --log selects another log")
        yield audits


def _opened(location: LogLocation, key_file: Path | None) -> AuditPlugin:
    key = read_host_file(key_file) if key_file else None
    try:
        if (is_keyed := location.is_keyed()) is not None and is_keyed != (key is not None):
            raise click.UsageError(f"the log's records are {'keyed: give the --key-file' if is_keyed else 'not keyed'}")
        return AuditPlugin(location, required=True, key=key)
    except BaseException as error:
        location.store.close()
        if isinstance(error, ValueError) and not isinstance(error, AgentMemoryError):
            raise click.UsageError(str(error)) from None
        raise
