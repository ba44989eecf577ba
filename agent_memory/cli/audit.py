"""The commands about the audit log: verify, show, blame."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Final, get_args

import click

from agent_memory.audit import Finding, LogLocation, Record, log_at, verify
from agent_memory.audit.record import quoted
from agent_memory.audit.records import has_none_of, lines_of, parsed
from agent_memory.audit.salts import Salts
from agent_memory.cli.arguments import Moment, memory_path
from agent_memory.cli.auditing import log_of_store
from agent_memory.cli.output import Exit, counted, note, printable, row, show_json
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Group, Settings, pass_settings, usage_errors
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.hookspecs import READING, OperationKind
from agent_memory.key import Key, is_at_or_below
from agent_memory.key.quoting import field
from agent_memory.plugins._host_files import open_host_file, read_host_file
from agent_memory.plugins.checkpoints import AuditCheckpoint, checkpoints_in

_NO_LOG: Final = (
    "there is no audit log in this store: a command that changes something creates it, unless --no-audit is given or "
    "--config enables a log elsewhere (--log shows that one); a program creates it with plugins=[AuditPlugin(url)]"
)
_MOST_CHECKPOINT_BYTES: Final = 500_000_000
_EDITED: Final = "edited"
_HOST_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIGITS: Final = 8
_OF_THE_LOG: Final = ("begin", "segment")
_CHANGING: Final = frozenset(get_args(OperationKind)) - READING
_UNCHANGED: Final = ("error", "denied")


@click.group(cls=Group)
def audit() -> None:
    """Verify the audit log, or print its records."""


log_option = click.option(
    "--log", "target", metavar="FILE|URL", help="A log in a file, or below the root of a URL.  [default: the store's]"
)


key_option = click.option(
    "--key-file", type=_HOST_FILE, help="File with the key of a keyed log; all its bytes are the key."
)


@audit.command("verify")
@log_option
@click.option("--checkpoints", type=_HOST_FILE, multiple=True, help="A file of checkpoints; may be repeated.")
@key_option
@click.option("--no-salts", is_flag=True, help="Expect no salts: the log is a copy without them.")
@pass_settings
def verify_(
    settings: Settings, target: str | None, checkpoints: tuple[Path, ...], key_file: Path | None, no_salts: bool
) -> None:
    """Find changes that were made to an audit log after it was written.

    Finds records that are edited, missing, reordered, duplicated or from another log, a log that lost records which a
    checkpoint covers, and salts that are missing although no forget destroyed them. Exits with 1 if there are any.
    Ranges that no checkpoint covers are reported as "unanchored", and a line that a crashed writer left incomplete as
    "torn". Branches, which processes make that were restored from one image of a process, are counted.
    """
    kept = _checkpoints(checkpoints)  # before the log is read, because writers may add to both
    anchors: dict[tuple[str, int], set[str]] = {}
    for found in kept:
        anchors.setdefault((found.writer, found.seq), set()).add(found.hash)
    logs = {found.writer: found.log for found in kept if found.log}
    identities = set(logs.values())
    key = read_host_file(key_file) if key_file else None
    identity = identities.pop() if len(identities) == 1 else None
    with _existing_log(settings, target) as location, usage_errors():
        verdict = verify(location, anchors, key, identity=identity, logs=logs, salts=not no_salts)
    if settings.json:
        findings = [asdict(finding) for finding in verdict.findings]
        show_json({**asdict(verdict), "findings": findings, "intact": verdict.is_intact})
    else:
        for line in _lines(verdict.findings, anchored=bool(kept)):
            click.echo(printable(line))
        summary = Counter(finding.kind for finding in verdict.findings)
        kinds = ", ".join(f"{number} {kind}" for kind, number in summary.items()) or "nothing found"
        branches = f" with {counted(verdict.branches, 'branch', 'branches')}" if verdict.branches else ""
        click.echo(f"{counted(verdict.records, 'record')} of {counted(verdict.writers, 'writer')}{branches}: {kinds}")
    if not verdict.is_intact:
        raise click.exceptions.Exit(Exit.FAILED)


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


@audit.command()
@log_option
@click.option(
    "--path", type=memory_path, metavar="PATH", help="Only records about this file or directory, and all below it."
)
@click.option("--content", type=_HOST_FILE, help="Only records of --agent about exactly the content of this file.")
@click.option("--tool-call", metavar="ID", help="Only records of this tool call.")
@click.option("--since", type=Moment(), help="Only records from this time on, in UTC.")
@click.option("--until", type=Moment(), help="Only records before this time, in UTC.")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N of these.")
@pass_settings
def show(
    settings: Settings,
    target: str | None,
    path: str | None,
    content: Path | None,
    tool_call: str | None,
    since: float | None,
    until: float | None,
    last: int | None,
) -> None:
    """Print the records of an audit log, filtered by --agent, --actor, path, content, tool call and time.

    Records that begin a log, or continue it in another file, are left out: only audit verify needs them.
    """
    if settings.chosen_agent is not None:
        Key.agent(settings.chosen_agent)
    wanted = _Named(path) if path is not None else None
    digest = None if content is None else _digest(settings, target, content)

    def chosen(record: Record) -> bool:
        return (
            (record["event"] not in _OF_THE_LOG or _EDITED in record)
            and (settings.chosen_agent is None or record.get("agent") == settings.chosen_agent)
            and (wanted is None or wanted(record))
            and (settings.actor is None or record.get("actor") == settings.actor)
            and (digest is None or digest in (record.get("digest"), record.get("before_digest")))
            and (tool_call is None or record.get("tool_call_id") == tool_call)
            and (since is None or time_of(record).timestamp() >= since)
            and (until is None or time_of(record).timestamp() < until)
        )

    texts = [quoted(settings.chosen_agent)] if settings.chosen_agent is not None else []
    if wanted is not None:
        texts = [quoted(wanted.name)[:-1]]  # also the names below it
    found = filter(chosen, log_records(settings, target, texts, newest_first=last is not None))
    _print(settings, found if last is None else iter([*islice(found, last)][::-1]), wanted)


@audit.command()
@click.argument("path", type=memory_path)
@log_option
@pass_settings
def blame(settings: Settings, target: str | None, path: str) -> None:
    """Print the history of a file of --agent: time and actor of each change, move and delete.

    Includes operations that began and have no recorded end.
    """
    wanted, name = settings.agent, Key.tree().join(path).path
    found: dict[str, Record] = {}
    above = accumulate(name.split("/"), "{}/{}".format)
    for number, record in enumerate(log_records(settings, target, [quoted(path) for path in ("", *above)])):
        if record.get("agent") == wanted and record.get("operation") in _CHANGING and _touches(record, name):
            identity = str(record.get("id", number))
            if record.get("outcome") in _UNCHANGED and record.get("error") != "partial_operation":
                found.pop(identity, None)
            else:
                found[identity] = record
    if not found:
        raise _no_record(name)
    _print(settings, iter(found.values()))


def _checkpoints(files: tuple[Path, ...]) -> list[AuditCheckpoint]:
    found: list[AuditCheckpoint] = []
    for file in files:
        try:
            found.extend(checkpoints_in(read_host_file(file, _MOST_CHECKPOINT_BYTES)))
        except ValueError as error:
            raise click.UsageError(f"{file.name}: {error}") from None
    return found


def location_of(settings: Settings, target: str | None) -> LogLocation:
    """The location of the log that ``--log`` names, or of the store's own log."""
    if target is not None:
        return log_at(target, settings.given_options() if "://" in target else None)
    return log_of_store(settings.url, settings.storage_options())


@contextmanager
def _existing_log(settings: Settings, target: str | None) -> Iterator[LogLocation]:
    """`location_of` a log that exists; raises if there is none, or as `require_store` does."""
    location = location_of(settings, target)
    with closing(location.store):
        if target is None:
            require_store(location.store.backend, settings.url)
        if not location.parts():
            raise click.ClickException(_NO_LOG if target is None else "there is no audit log")
        yield location


def _digest(settings: Settings, target: str | None, content: Path) -> str:
    if settings.chosen_agent is None:
        raise click.UsageError("--content needs --agent: every agent has its own salt")
    location = location_of(settings, target)
    with closing(location.store):
        digest_of = Salts(location).known_digests(settings.chosen_agent)
    if digest_of is None:
        raise click.ClickException("the log has no salt of this agent, so no content can be compared with its records")
    with open_host_file(content) as file:
        return digest_of(hashlib.file_digest(file, "sha256").hexdigest())


def log_records(
    settings: Settings, target: str | None = None, texts: Sequence[bytes] = (), *, newest_first: bool = False
) -> Iterator[Record]:
    """All records, or at least those with one of the ``texts`` (see `has_none_of`).

    They are in the order of the log, or from its end. Lines that are not records are skipped, and edited records are
    marked; both are counted on stderr. Keyed records are not checked: that needs the key, which only verify has.
    """
    others = edited = 0
    with _existing_log(settings, target) as location:
        for line in lines_of(location, newest_first=newest_first):
            if texts and has_none_of(line, texts):
                continue
            if (found := parsed(line)) is None:
                others += bool(line)
            elif found.is_as_written:
                yield found.record
            else:
                edited += 1
                yield {**found.record, _EDITED: True}
    if others:
        note(f"{counted(others, 'line')} skipped that no writer of the log wrote: see audit verify")
    if edited:
        note(f"{counted(edited, 'record')} not as written: see audit verify")


class _Named:
    """Whether a record is about a file or directory, or below it; counts the records that are."""

    def __init__(self, path: str) -> None:
        self.name = Key.tree().join_prefix(path).path
        self.count = 0

    def __call__(self, record: Record) -> bool:
        is_named = any(is_at_or_below(path, self.name) for path in _paths(record))
        self.count += is_named
        return is_named


def _no_record(path: str) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError("the audit log has no record of a change of it", path=path or ".")


def _touches(record: Record, name: str) -> bool:
    """Whether a record is about this file, or about a directory above it."""
    return any(is_at_or_below(name, path) for path in _paths(record))


def _paths(record: Record) -> list[str]:
    """The path of a record, and the target of a move; a log may have been edited."""
    return [path for end in ("path", "target") if isinstance(path := record.get(end), str)]


def time_of(record: Record) -> datetime:
    return datetime.fromisoformat(record["time"]).astimezone(UTC)


def _print(settings: Settings, records: Iterator[Record], named: _Named | None = None) -> None:
    first = next(records, None)
    if first is None and named and not named.count:
        raise _no_record(named.name)
    if settings.json:
        show_json({"records": [] if first is None else [first, *records]})
        return
    if first is None:
        note("no such record; --agent, --actor and the options of the command choose the records")
        return
    for record in chain([first], records):
        click.echo(_line(record))


def _line(record: Record) -> str:
    """A record as a row of fields; each field is quoted so that it stays one field.

    The fields are: day, time, agent, actor, operation or event, path and outcome, "-" for a missing one; after the path
    "->" and the target of a move; at the end "repeated" for a repeated call, which changed nothing, the size, "bytes",
    the beginning of the digest, and "call" with the tool call.
    """
    what = record.get("operation") or record["event"]
    end = "begun" if record["event"] == "intent" else record.get("error") or record.get("outcome")
    size, digest, call = record.get("size"), record.get("digest"), record.get("tool_call_id")
    facts = [
        f"{time_of(record):%Y-%m-%d %H:%M:%S}", _shown(record.get("agent")), _shown(record.get("actor")), _shown(what),
        _shown_path(record.get("path")), *(["->", _shown_path(record["target"])] if "target" in record else []),
        _shown(end), *(["repeated"] if record.get("replayed") else []),
        *([f"{_shown(size)} bytes"] if size is not None else []),
        *([_shown(digest[:_DIGITS])] if digest else []),
        *([f"call {_shown(call)}"] if call is not None else []),
        *(["(not as written)"] if _EDITED in record else []),
    ]  # fmt: skip
    return row(*facts)


def _shown(value: object) -> str:
    return "-" if value is None else field(str(value))


def _shown_path(path: object) -> str:
    return "." if path == "" else _shown(path)
