"""The store and the audit logs of a command that erases: the logs get a receipt and destroy the salt of the agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from agent_memory.audit import LogLocation, Salts
from agent_memory.cli.audit import location_of
from agent_memory.cli.output import note
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import OpenStore, Settings, open_store
from agent_memory.errors import AgentMemoryError
from agent_memory.memory import AgentMemory
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.audit import AuditPlugin


@dataclass(frozen=True)
class Erasing:
    """A store in which a command erases.

    Attributes:
        store: the store without audit logs, for looking: they record reads too.
        seen: the memory of ``--agent`` in it.
        memory: the memory of ``--agent`` with the audit logs.
        logs: the audit logs.
    """

    store: OpenStore
    seen: AgentMemory
    memory: AgentMemory
    logs: Sequence[AuditPlugin]


@contextmanager
def erasing(settings: Settings, target: str | None, key_file: Path | None) -> Iterator[Erasing]:
    """Open an existing store, with the audit logs that it has, that are configured, or that ``--log`` names."""
    with (
        settings.configured() as configured,
        _audits(settings, target, key_file, _required(configured)) as audits,
        open_store(settings.url, settings.storage_options(), settings, _without_logs(configured)) as seen,
        open_store(settings.url, settings.storage_options(), settings, [*configured, *audits]) as store,
    ):
        require_store(seen.backend, settings.url, settings.agent)
        logs = [plugin for plugin in [*configured, *audits] if isinstance(plugin, AuditPlugin)]
        yield Erasing(seen, seen.service.agent(settings.agent), store.service.agent(settings.agent), logs)


def note_versions(searched: bool) -> None:
    """Say on stderr if an erasing did not look for the storage's own versions."""
    if not searched:
        note("no earlier versions were looked for: the server says that it has none")


def _without_logs(plugins: Iterable[object]) -> list[object]:
    return [plugin for plugin in plugins if not isinstance(plugin, AuditPlugin)]


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
