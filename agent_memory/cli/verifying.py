"""The commands that verify the audit log and change its parts: verify, prune, close, restart, merge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from agent_memory.audit import Finding, LogLocation, Verdict, verify
from agent_memory.audit.anew import Renewal
from agent_memory.audit.bases import Base
from agent_memory.audit.journal import Position
from agent_memory.audit.merging import merge
from agent_memory.audit.records import parsed
from agent_memory.audit.verify import Proofs
from agent_memory.cli.arguments import Moment
from agent_memory.cli.comparing import compare
from agent_memory.cli.log_options import (
    checkpoints_option,
    existing_log,
    kept_checkpoints_option,
    key_option,
    log_option,
    read_checkpoints,
)
from agent_memory.cli.output import Exit, counted, printable, show_json
from agent_memory.cli.settings import Command, Settings, login_name, pass_settings, usage_errors
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.store_record import KnownStore
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.checkpoints import AuditCheckpoint, CheckpointFile
from agent_memory.registry import open_backend


@click.command("verify", cls=Command)
@log_option
@checkpoints_option
@key_option
@click.option("--no-salts", is_flag=True, help="Expect no salts: the log is a copy without them.")
@click.option("--archived", is_flag=True, help="The log is an archive: the checkpoints may name later records.")
@click.option("--files", "with_files", is_flag=True, help="Hold the files of the store against the log too.")
@click.option("--after", metavar="AGENT/PATH", help="With --files: go on after this file.")
@pass_settings
def verify_(
    settings: Settings,
    target: str | None,
    checkpoints: tuple[Path, ...],
    key_file: Path | None,
    no_salts: bool,
    archived: bool,
    with_files: bool,
    after: str | None,
) -> None:
    """Find changes that were made to an audit log after it was written.

    Finds records that are edited, missing, reordered, duplicated or from another log, a log that lost records which a
    checkpoint covers, and salts that are missing although no forget destroyed them. Exits with 1 if there are any.
    Ranges that no checkpoint covers are reported as "unanchored", and a line that a crashed writer left incomplete as
    "torn". Branches, which processes make that were restored from one image of a process, are counted.

    A log that was begun anew is verified since then. Findings that were known then are printed as "known".

    With --files, each file is compared with its last records, for all agents or for --agent. Files that were changed,
    removed or added without a record are "changed", "missing" or "unknown", and the command exits with 1. A file is
    "unvouched" if the records tell too little of it.
    """
    if after and not with_files:
        raise click.UsageError("--after goes with --files")
    for again in (True, False):
        proofs = _proofs(checkpoints, key_file, salts=not no_salts, archived=archived)
        with existing_log(settings, target) as location, usage_errors():
            verdict = verify(location, **proofs)
            begun = _begun_anew(location)
            compared = compare(settings, location, after) if with_files and not (again and _has_base(verdict)) else None
        if not (again and _has_base(verdict)):
            break  # else the log may have been begun anew after the checkpoints were read
    if settings.json:
        findings = [asdict(finding) for finding in verdict.findings]
        files = {"files": compared.document()} if compared else {}
        show_json({**asdict(verdict), "findings": findings, "intact": verdict.is_intact, **files})
    else:
        if verdict.since is not None and begun:
            click.echo(printable(begun))
        for known in verdict.known:
            click.echo(printable(f"known: {known}"))
        for line in _lines(verdict.findings, anchored=bool(checkpoints)):
            click.echo(printable(line))
        summary = Counter(finding.kind for finding in verdict.findings)
        kinds = ", ".join(f"{number} {kind}" for kind, number in summary.items()) or "nothing found"
        branches = f" with {counted(verdict.branches, 'branch', 'branches')}" if verdict.branches else ""
        whose = f"{counted(verdict.records, 'record')} of {counted(verdict.writers, 'writer')}{branches}"
        click.echo(f"{whose}{_since(verdict)}: {kinds}")
        for line in compared.lines() if compared else ():
            click.echo(printable(line))
    if not verdict.is_intact or (compared and not compared.is_intact):
        raise click.exceptions.Exit(Exit.FAILED)


def _begun_anew(location: LogLocation) -> str:
    """A line that tells the newest base of a log: what was done, when, by whom and why."""
    found = parsed(location.base_record() or b"")
    if found is None:
        return ""
    record = found.record
    by, reason = record.get("actor"), record.get("reason")
    at = _shown(datetime.fromisoformat(record["time"]).timestamp())
    told = f" by {field(str(by))}" if by else ""
    return f"{record['event']} {at}{told}{f': {reason}' if reason else ''}"


def _has_base(verdict: Verdict) -> bool:
    """Whether no checkpoint proves the base of the log."""
    return any(finding.kind == "base" for finding in verdict.findings)


def _lines(findings: Sequence[Finding], *, anchored: bool) -> Iterator[str]:
    """One line for each finding; without checkpoints, one line for all "unanchored" findings together."""
    unanchored = [finding for finding in findings if finding.kind == "unanchored"]
    folded = len(unanchored) > 1 and not anchored
    yield from (str(finding) for finding in findings if not folded or finding.kind != "unanchored")
    if folded:
        yield (
            f"unanchored: no checkpoint covers the last records of {len(unanchored):,} chains;"
            " without --checkpoints a truncated end cannot be detected"
        )


def _proofs(
    checkpoints: Sequence[Path], key_file: Path | None, configured: CheckpointFile | None = None, **others: bool
) -> dict[str, Any]:
    """The arguments of a verification; read before the log, because writers may add to both."""
    kept = read_checkpoints(checkpoints) + (configured.kept() if configured else [])
    anchors: dict[tuple[str, int], set[str]] = {}
    for found in kept:
        anchors.setdefault((found.writer, found.seq), set()).add(found.hash)
    logs = {found.writer: found.log for found in kept if found.log}
    identities = set(logs.values())
    return {
        "anchors": anchors,
        "key": read_host_file(key_file) if key_file else None,
        "identity": identities.pop() if len(identities) == 1 else None,
        "logs": logs,
        **others,
    }


def _since(verdict: Verdict) -> str:
    return "" if verdict.since is None else " since the log was begun anew"


def _shown(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


_archive_option = click.option(
    "--archive", metavar="DIR|URL", help="First copy what is removed to this directory, one for each log."
)
_reason_option = click.option("--reason", metavar="TEXT", help="Why; the first record of the log names it.")


@click.command(cls=Command)
@click.option("--before", type=Moment(), required=True, help="Only records from before this time, in UTC.")
@_archive_option
@_reason_option
@log_option
@kept_checkpoints_option
@key_option
@pass_settings
def prune(
    settings: Settings,
    before: float,
    archive: str | None,
    reason: str | None,
    target: str | None,
    checkpoints: tuple[Path, ...],
    key_file: Path | None,
) -> None:
    """Remove the oldest parts of an audit log, if the log is intact.

    Removes the files, or on S3 the objects, at the beginning of the log whose records are all older. The log then
    begins with a record that has the ends of what was removed, so that audit verify finds every other change, and
    says since when the log is intact. With --checkpoints, a checkpoint of that record is added to the last of these
    files, or to the file that the configuration names; without it, the record is proved by nothing.

    Writers may go on meanwhile. A command that was interrupted is finished by the next one.
    """
    with _renewal(settings, target, archive, checkpoints, key_file) as renewal:
        _say(settings, renewal.prune(before, reason))


@click.command(cls=Command)
@_archive_option
@_reason_option
@log_option
@kept_checkpoints_option
@key_option
@pass_settings
def close(
    settings: Settings,
    archive: str | None,
    reason: str | None,
    target: str | None,
    checkpoints: tuple[Path, ...],
    key_file: Path | None,
) -> None:
    """Remove all of an audit log that is intact, and let it begin anew, as audit prune does.

    An archive is verified by its URL, such as file:///archive/2026: audit verify --archived --no-salts --log URL.
    """
    with _renewal(settings, target, archive, checkpoints, key_file) as renewal:
        _say(settings, renewal.close(reason))


@click.command(cls=Command)
@click.option("--reason", metavar="TEXT", required=True, help="What was found out; the record of the restart names it.")
@log_option
@kept_checkpoints_option
@key_option
@pass_settings
def restart(
    settings: Settings, reason: str, target: str | None, checkpoints: tuple[Path, ...], key_file: Path | None
) -> None:
    """Let an audit log begin anew after audit verify found a change; what was found stays in the log.

    The log so far stays as it is. The first record of the new log names the findings and the reason. From then on
    audit verify prints these findings as "known", and fails only for other ones.
    """
    if not reason.strip():
        raise click.UsageError("--reason is empty: say what was found out, for the readers of the log")
    with _renewal(settings, target, None, checkpoints, key_file) as renewal:
        _say(settings, renewal.restart(reason))


@click.command("merge", cls=Command)
@log_option
@pass_settings
def merge_(settings: Settings, target: str | None) -> None:
    """Merge the objects of an audit log on S3: the many of each hour that has ended become one, with the same records.

    For cron. Writers may go on meanwhile. A command that was interrupted is finished by the next one.
    """
    with existing_log(settings, target) as location:
        found = merge(location)
    text = f"{counted(found.batches, 'object')} became {found.parts:,}" if found.batches else "nothing to merge"
    settings.show(found._asdict(), text)


COMMANDS: Final = (verify_, prune, close, restart, merge_)


@contextmanager
def _renewal(
    settings: Settings, target: str | None, archive: str | None, checkpoints: tuple[Path, ...], key_file: Path | None
) -> Iterator[Renewal]:
    """A renewal of the log, whose checkpoint goes to the configured file, or to the last one that is given."""
    configured = settings.checkpoints()
    with usage_errors():
        given = _proofs([file for file in checkpoints if file.exists()], key_file, configured, salts=True)
    receiver = configured or (CheckpointFile(checkpoints[-1], required=True) if checkpoints else None)
    with existing_log(settings, target) as location, usage_errors():
        proofs = Proofs(**{**given, "identity": given["identity"] or location.identity()})
        store = None if archive is None else _archive(archive, location)
        try:
            yield Renewal(location, proofs, settings.actor or login_name(), _sender(receiver), store)
        finally:
            for each in (receiver, store and store.store):
                if each:
                    each.close()


def _archive(target: str, location: LogLocation) -> LogLocation:
    backend = open_backend(target)
    if location.name is None:
        return LogLocation.below(backend)
    return LogLocation(BlockingStore(backend), Key.tree(), location.name, KnownStore())


def _sender(receiver: CheckpointFile | None) -> Callable[[Position, str], object] | None:
    if receiver is None:
        return None
    receiver.required = True
    return lambda position, identity: receiver(AuditCheckpoint(time.time(), *position, identity))


def _say(settings: Settings, base: Base | None) -> None:
    facts = base.facts if base else None
    if base is None or facts is None:
        settings.show({"base": None}, "nothing to remove: no part of the log has only records from before that time")
        return
    removed = len(facts.removed)
    what = f"{counted(removed, 'part')} removed" if facts.kind != "restarted" else "the parts before stay as they are"
    document = {
        "base": base.number, "kind": facts.kind, "records": facts.records, "removed": removed,
        "findings": len(facts.known),
    }  # fmt: skip
    settings.show(document, f"{facts.kind}: the log begins anew after {counted(facts.records, 'record')}; {what}")
