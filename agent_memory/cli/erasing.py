"""The commands forget and redact: they erase in a store whose audit logs get a receipt and destroy a salt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from agent_memory.audit import LogLocation
from agent_memory.audit.names import PathsOption
from agent_memory.audit.records import has_digests
from agent_memory.audit.salts import Salts
from agent_memory.cli.arguments import ask, memory_path, require_answer, yes_option
from agent_memory.cli.files import files_at
from agent_memory.cli.log_options import key_option, location_of, log_option
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.presence import (
    has_own_data,
    lists_everything,
    require_agent,
    require_store,
    suggested,
    without_files,
)
from agent_memory.cli.settings import Command, OpenStore, Settings, open_store, pass_settings
from agent_memory.cli.versions import naming_the_list, require_versions
from agent_memory.core.versions.redact import RedactResult
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileOperationError
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory, TreeResult
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import CheckpointFile

_MOST_NAMES: Final = 5
"""The maximum number of other names that a question and a result show."""


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
def _erasing(settings: Settings, target: str | None, key_file: Path | None) -> Iterator[Erasing]:
    """Open an existing store, with the audit logs that it has, that are configured, or that ``--log`` names."""
    with settings.configured() as configured:
        logs = [plugin for plugin in configured if isinstance(plugin, AuditPlugin)]
        others = [plugin for plugin in configured if not isinstance(plugin, AuditPlugin)]
        for log in logs:
            log.required = True  # it is an error if it cannot destroy the salt
        with (
            _audits(settings, target, key_file, logs) as audits,
            open_store(settings.url, settings.storage_options(), settings, others) as seen,
            open_store(settings.url, settings.storage_options(), settings, [*configured, *audits]) as store,
        ):
            require_store(seen.backend, settings.url, settings.agent)
            agent = settings.agent
            yield Erasing(seen, seen.service.agent(agent), store.service.agent(agent), [*logs, *audits])


def _note_versions(searched: bool) -> None:
    """Say on stderr if an erasing did not look for the storage's own versions."""
    if not searched:
        note("no earlier versions were looked for: the server says that it has none")


@contextmanager
def _audits(
    settings: Settings, target: str | None, key_file: Path | None, configured: Sequence[AuditPlugin]
) -> Iterator[list[AuditPlugin]]:
    """The plugins that write receipts: to the log of ``--log``, and to the store's own log, which has salts to destroy.

    The store's own log is created only if no other log is named or configured, and never with ``--no-audit``. It gets
    one receipt if it is also the named or configured log.
    """
    with ExitStack() as stack:
        audits: list[AuditPlugin] = []
        if target is not None:
            audits.append(stack.enter_context(_opened(location_of(settings, target), key_file, settings.checkpoints())))
        own = location_of(settings, None)
        stack.callback(own.store.close)
        is_keyed = own.is_keyed()
        is_there = is_keyed is not None or Salts(own).known_commitment(settings.agent) is not None
        is_there = is_there and not any(log.writes_to(own) for log in (*configured, *audits))
        if is_there or not (audits or configured or settings.no_audit):
            key = key_file if is_keyed or target is None else None
            audits.append(stack.enter_context(_opened(own, key, settings.checkpoints())))
        if not (audits or configured):
            note("no audit log here, so no receipt; --log selects another log")
        yield audits


def _opened(location: LogLocation, key_file: Path | None, checkpoints: CheckpointFile | None) -> AuditPlugin:
    key = read_host_file(key_file) if key_file else None
    try:
        if (is_keyed := location.is_keyed()) is not None and is_keyed != (key is not None):
            raise click.UsageError(f"the log's records are {'keyed: give the --key-file' if is_keyed else 'not keyed'}")
        paths: PathsOption = "digest" if has_digests(location) else "names"
        return AuditPlugin(location, required=True, key=key, checkpoints=checkpoints, paths=paths)
    except BaseException as error:
        location.store.close()
        if isinstance(error, ValueError) and not isinstance(error, AgentMemoryError):
            raise click.UsageError(str(error)) from None
        raise


@click.command(cls=Command)
@click.argument("path", type=memory_path, required=False)
@yes_option
@click.option("--dry-run", is_flag=True, help="Erase nothing, and show what would be erased.")
@log_option
@key_option
@pass_settings
def forget(
    settings: Settings, path: str | None, yes: bool, dry_run: bool, target: str | None, key_file: Path | None
) -> None:
    """Erase a file or directory of --agent, or without PATH the whole agent, everywhere in the store.

    Its earlier versions go too, also those under other names of the same file and of copies by other programs. On S3
    this includes the bucket's own versions and incomplete uploads. The audit log keeps its records and gets a receipt,
    but the digests in it can no longer be checked, because the salt of the agent is destroyed; the salt in a log
    elsewhere only if --log names that log. A store that may keep hidden copies is refused. Can be run again; if there
    is nothing of PATH, exits with 3 and changes nothing.
    """
    Key.agent(settings.agent)
    path = _named(settings, path)
    if not dry_run:
        require_answer("forget", yes)
    with _erasing(settings, target, key_file) as opened:
        had_salt = any(_has_salt(log, settings.agent) for log in opened.logs)
        files = files_at(opened.seen, path)
        planned = opened.seen.forget(path, dry_run=True)
        subject = f"{path!r} of agent {settings.agent!r}" if path else f"agent {settings.agent!r}"
        is_found = files or planned.versions or settings.skipped.count or _is_kept(settings, opened, path)
        if dry_run:
            if not is_found and lists_everything(settings.url):
                raise _nothing_of(settings, opened, path, subject)
            _show(settings, planned, False, dry_run=True)
            return
        unlisted = 0
        if is_found:
            now = counted(files, "current file") + (f", {_counted_versions(planned)}" if planned.versions else "")
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
    return not path and has_own_data(opened.store.backend, settings.agent)


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
        raise _nothing_of(settings, opened, path, subject)
    return found


def _nothing_of(settings: Settings, opened: Erasing, path: str, subject: str) -> Exception:
    hint = _hint(opened.store, settings.agent, path)
    error = AgentMemoryFileNotFoundError(f"nothing to forget: the store keeps nothing of {subject}{hint}")
    suggestion = suggested(error, opened.store.backend, settings.agent, path) if path and not hint else None
    return suggestion or error


def _hint(store: OpenStore, agent: str, path: str) -> str:
    try:
        agents = store.service.agent_ids()
    except FileOperationError:  # the credentials may allow listing only the agent's tree
        return ""
    if path in agents:
        return f"; there is an agent of that name: agent-memory forget --agent {shlex.quote(path)}"
    return "" if agent in agents else f"; {without_files(store.service, store.backend, agent)}"


def _named(settings: Settings, path: str | None) -> str:
    if path is None and settings.chosen_agent is None:
        raise click.UsageError("give a PATH, or give --agent to forget the whole memory of that agent")
    if path is not None and not path.strip("/"):
        raise click.UsageError("PATH is empty; leave it out to forget the whole agent")
    return "" if path in (None, ".") else Key.tree().join_prefix(str(path)).path


def _counted_versions(done: TreeResult) -> str:
    """The number of earlier versions, and under which other names they are."""
    names = ", ".join(f"{count} under {field(name)}" for name, count in done.other_names[:_MOST_NAMES])
    more = ", …" if len(done.other_names) > _MOST_NAMES else ""
    return counted(done.versions, "earlier version") + (f" ({names}{more})" if names else "")


def _show(settings: Settings, done: TreeResult, had_salt: bool, *, dry_run: bool = False) -> None:
    facts = {"agent": settings.agent, "path": done.path, "files": done.files, "skipped": done.skipped}
    versions = {"versions": done.versions, "other_names": dict(done.other_names), "dry_run": dry_run}
    document = {**facts, **versions, "salt": had_salt, "versions_searched": done.versions_searched}
    salt = ", and the salt of its digests in the audit log" if had_salt else ""
    versions_too = f" and {_counted_versions(done)}" if done.versions else ""
    what = f"{counted(done.files, 'file')}{versions_too} of {settings.agent}{salt}"
    settings.show(document, f"{'would forget' if dry_run else 'forgot'} {what}")
    _note_versions(done.versions_searched)
    if done.skipped:
        note(f"{counted(done.skipped, 'name')} not erased: not a valid key, or a damaged version of an unknown file")


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
    with _erasing(settings, target, key_file) as opened:
        require_agent(opened.store.service, opened.store.backend, settings.url, settings.agent)
        require_versions(settings, opened.seen, path)
        subject = f"version {version} of {field(path)} of {settings.agent}"
        ask(f"Erase the content of {subject} for good? This cannot be undone.", yes)
        with naming_the_list(opened.seen, path):
            result = opened.memory.versions.redact(path, version, reason=reason)
    _show_redacted(settings, result)


def _show_redacted(settings: Settings, result: RedactResult) -> None:
    if settings.json:
        still_in = [{"path": each.path, "id": each.id, "present": not each.ended_by} for each in result.still_in]
        facts = {"agent": settings.agent, "path": result.path, "redacted": result.version}
        found = {"other_names": result.other_names, "still_in": still_in}
        show_json({**facts, **found, "versions_searched": result.versions_searched, "skipped": settings.skipped.count})
        return
    others = ", ".join(map(field, result.other_names))
    also = f", and of its copies: {others}" if others else ""
    click.echo(printable(f"redacted version {result.version} of {field(result.path)}{also}"))
    _note_versions(result.versions_searched)
    for each in result.still_in:
        where = f"version {each.id} of {field(each.path)}" if each.ended_by else f"the current file {field(each.path)}"
        note(f"{where} still contains this content")
    if skipped := settings.skipped.count:
        note(f"{counted(skipped, 'file or record', 'files or records')} not searched: damaged, or no access")
