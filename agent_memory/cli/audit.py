"""The commands that print the audit log: show, blame; and the group of all commands about it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Final, get_args

import click

from agent_memory.audit import Record
from agent_memory.audit.filtering import EDITED, RecordFilter, paths_of, spellings_of, time_of
from agent_memory.audit.names import Spellings
from agent_memory.audit.record import quoted
from agent_memory.audit.records import has_none_of, lines_of, parsed
from agent_memory.audit.salts import Salts
from agent_memory.cli.arguments import Moment, memory_path
from agent_memory.cli.log_options import HOST_FILE, existing_log, location_of, log_option
from agent_memory.cli.output import counted, note, row, show_json
from agent_memory.cli.settings import Group, Settings, pass_settings
from agent_memory.cli.verifying import COMMANDS
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.hookspecs import READING, OperationKind
from agent_memory.key import Key, is_at_or_below
from agent_memory.key.quoting import field
from agent_memory.plugins._host_files import open_host_file

_DIGITS: Final = 8
_CHANGING: Final = frozenset(get_args(OperationKind)) - READING
_UNCHANGED: Final = ("error", "denied")


@click.group(cls=Group)
def audit() -> None:
    """Verify the audit log, print its records, or begin it anew."""


for _command in COMMANDS:
    audit.add_command(_command)


@audit.command()
@log_option
@click.option(
    "--path", type=memory_path, metavar="PATH", help="Only records about this file or directory, and all below it."
)
@click.option("--content", type=HOST_FILE, help="Only records of --agent about exactly the content of this file.")
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
    chosen = RecordFilter(
        _spelled(settings, target, settings.chosen_agent), agent=settings.chosen_agent, path=path,
        actor=settings.actor, tool_call=tool_call, since=since, until=until,
        digest=None if content is None else _digest(settings, target, content),
    )  # fmt: skip
    found = filter(chosen, log_records(settings, target, chosen.texts, newest_first=last is not None))
    chosen_records = found if last is None else iter([*islice(found, last)][::-1])
    _print(settings, map(chosen.plain, chosen_records), chosen)


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
    spelled = _spelled(settings, target, wanted)
    names = spelled.of(name)
    texts = [quoted(path) for each in names for path in ("", *accumulate(each.split("/"), "{}/{}".format))]
    for number, record in enumerate(log_records(settings, target, texts)):
        if record.get("agent") in spelled.agents and record.get("operation") in _CHANGING and _touches(record, names):
            identity = str(record.get("id", number))
            if record.get("outcome") in _UNCHANGED and record.get("error") != "partial_operation":
                found.pop(identity, None)
            else:
                found[identity] = spelled.plain(record, name)
    if not found:
        raise _no_record(name)
    _print(settings, iter(found.values()))


def _digest(settings: Settings, target: str | None, content: Path) -> str:
    if settings.chosen_agent is None:
        raise click.UsageError("--content needs --agent: every agent has its own salt")
    location = location_of(settings, target)
    with closing(location.store):
        names = Salts(location).known_names(settings.chosen_agent)
    if names is None:
        raise click.ClickException("the log has no salt of this agent, so no content can be compared with its records")
    with open_host_file(content) as file:
        return names.content(hashlib.file_digest(file, "sha256").hexdigest())


def _spelled(settings: Settings, target: str | None, agent: str | None) -> Spellings:
    location = location_of(settings, target)
    with closing(location.store):
        return spellings_of(location, agent)


def log_records(
    settings: Settings, target: str | None = None, texts: Sequence[bytes] = (), *, newest_first: bool = False
) -> Iterator[Record]:
    """All records, or at least those with one of the ``texts`` (see `has_none_of`).

    They are in the order of the log, or from its end. Lines that are not records are skipped, and edited records are
    marked; both are counted on stderr. Keyed records are not checked: that needs the key, which only verify has.
    """
    others = edited = 0
    with existing_log(settings, target) as location:
        for line in lines_of(location, newest_first=newest_first):
            if texts and has_none_of(line, texts):
                continue
            if (found := parsed(line)) is None:
                others += bool(line)
            elif found.is_as_written:
                yield found.record
            else:
                edited += 1
                yield {**found.record, EDITED: True}
    if others:
        note(f"{counted(others, 'line')} skipped that no writer of the log wrote: see audit verify")
    if edited:
        note(f"{counted(edited, 'record')} not as written: see audit verify")


def _no_record(path: str) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError("the audit log has no record of a change of it", path=path or ".")


def _touches(record: Record, names: Sequence[str]) -> bool:
    """Whether a record is about this file, by one of its spellings, or about a directory above it."""
    return any(is_at_or_below(name, path) for path in paths_of(record) for name in names)


def _print(settings: Settings, records: Iterator[Record], chosen: RecordFilter | None = None) -> None:
    first = next(records, None)
    if first is None and chosen and chosen.name is not None and not chosen.about_path:
        raise _no_record(chosen.name)
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
        *([f"reason {_shown(record['reason'])}"] if "reason" in record else []),
        *(["(not as written)"] if EDITED in record else []),
    ]  # fmt: skip
    return row(*facts)


def _shown(value: object) -> str:
    return "-" if value is None else field(str(value))


def _shown_path(path: object) -> str:
    return "." if path == "" else _shown(path)
