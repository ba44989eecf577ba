"""The command demo: a short real session on the store, and its records in the audit log.

It uses the directory ``session`` of the agent ``demo``, and overwrites the files of an earlier run there.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from agent_memory.audit import head
from agent_memory.backend import AnyBackend
from agent_memory.cli.inspection import pages
from agent_memory.cli.output import Exit, counted, printable, show_json
from agent_memory.cli.presence import local_root, shown_path
from agent_memory.cli.session import WIDTH, Session, typed_command
from agent_memory.cli.settings import Command, Settings, open_store, pass_settings
from agent_memory.cli.workers import WORKER, append_at_once, killed_while_writing, line_of, version_of
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.precondition import SHA256
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.service import AgentMemoryService

AGENT: Final = "demo"
PLAN: Final = "session/plan.md"
JOURNAL: Final = "session/journal.md"
PROCESSES: Final = 4
LINES: Final = 25
_ESCAPES: Final = ("../other-agent/notes.md", "/etc/passwd", "notes/%2e%2e/%2e%2e/secret.md", "C:\\secrets.txt")
REPORT: Final = "session/report.md"
_LINK: Final = "session/link.md"
_DIGESTS: Final = (
    "The last field is a digest of the content. It is salted with a secret, so that the content cannot be found by "
    "guessing. Forgetting an agent destroys its secret."
)


@click.command(cls=Command)
@pass_settings
def demo(settings: Settings) -> None:
    """Run a short session on the store and show each step.

    Writes, appends from several processes at once, kills a writer, tries to read outside the store, and prints the
    audit log. Uses the agent "demo" and its directory "session". Can be run again.
    """
    url = _shared_url(settings.url)
    session = Session(settings.url, AGENT, PROCESSES * LINES, quiet=settings.json)
    with open_store(url, settings.storage_options(), settings) as store:
        before = _audit_sizes(store.backend)
        with _played(url, settings) as memory:
            _files(memory, session)
            _processes(memory, session, url, settings)
            _crash(memory, session, url, settings)
            _escapes(memory, session)
            if root := local_root(url):
                _planted_link(memory, session, root)
        session.audit = list(_audit_since(store.backend, before))
    _audit_shown(session)
    if settings.json:
        show_json(session.document())
    else:
        _verdict(session, settings, url)
    click.get_current_context().exit(Exit.OK if session.held else Exit.FAILED)


@contextmanager
def _played(url: str, settings: Settings) -> Iterator[AgentMemory]:
    """The demo's memory, with the audit log in the store's own area."""
    options = settings.storage_options()
    with (
        AuditPlugin(url, required=True, storage_options=options) as audit,
        AgentMemoryService(url, storage_options=options, plugins=[audit], actor=settings.actor or "demo") as service,
    ):
        yield service.agent(AGENT)


def _files(memory: AgentMemory, session: Session) -> None:
    session.title("Files")
    text = "# Plan\n\n- remember what matters\n"
    result = memory.write(PLAN, text)
    session.step(f"write {PLAN}: {result.size} bytes, sha256 {result.sha256[:12]}...")
    result = memory.append(PLAN, "- forget nothing\n")
    session.step(f"append to {PLAN}: {result.size} bytes now")
    memory.edit(PLAN, lambda plan: plan.replace("what matters", "what matters most"))
    session.step(f"edit {PLAN}; it reads:")
    for line in memory.read(PLAN).splitlines():
        session.show(f"    | {line}")
    session.refused(f"create {PLAN} again", lambda: memory.create(PLAN, "mine"))
    stale = hashlib.sha256(text.encode()).hexdigest()
    session.refused("write over a change not seen", lambda: memory.write(PLAN, "old", when=SHA256(stale)))


def _processes(memory: AgentMemory, session: Session, url: str, settings: Settings) -> None:
    session.title(f"{PROCESSES} processes append to one file at once")
    memory.write(JOURNAL, "# Journal\n")
    append_at_once(url, settings.storage_options(), PROCESSES, LINES, AGENT, JOURNAL)
    found = memory.read(JOURNAL).splitlines()
    wanted = [line_of(worker, number) for worker in range(PROCESSES) for number in range(LINES)]
    session.present_lines = sum(found.count(line) == 1 for line in wanted)
    session.step(f"{session.present_lines} of {session.expected_lines} lines are present, each whole and once")


def _crash(memory: AgentMemory, session: Session, url: str, settings: Settings) -> None:
    session.title("A writer is killed in the middle of a write")
    done = killed_while_writing(url, settings.storage_options(), AGENT, REPORT)
    session.step(f"a process that replaced {REPORT} (1.0 MB) again and again: killed, as by kill -9")
    text = memory.read(REPORT)
    number = int(text.partition("\n")[0].removeprefix("version ") or 0)
    is_whole = text == version_of(number) and number >= done
    session.step(f"its last write that returned was version {done}; the file is version {number}, "
                 f"{'whole' if is_whole else 'TORN'}")  # fmt: skip
    after = memory.write(REPORT, "the next writer is not held up\n")
    session.survived_crash = is_whole and memory.stat(REPORT).size == after.size
    session.step("the next write goes through at once: no lock is left behind")


def _escapes(memory: AgentMemory, session: Session) -> None:
    session.title("Ways out")
    for path in _ESCAPES:
        session.refused(f"read {path}", partial(memory.read, path))


def _planted_link(memory: AgentMemory, session: Session, root: Path) -> None:
    """Plant a symbolic link to a file outside the store, as an attacker with a shell could; try it and remove it."""
    link = root / Key.agent(AGENT).join(_LINK).storage
    with TemporaryDirectory() as outside:
        secret = Path(outside, "secret.txt")
        secret.write_text("nobody reads this")
        with suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(secret)
        try:
            session.refused("read a symbolic link out of the store", lambda: memory.read(_LINK))
            session.refused("append to that link", lambda: memory.append(_LINK, "or writes to it"))
        finally:
            link.unlink()


def _audit_shown(session: Session) -> None:
    appends = [record for record in session.audit if str(record.get("actor", "")).startswith(WORKER)]
    others = [record for record in session.audit if record not in appends and record.get("operation") != "read"]
    session.title(f"The audit log: {len(session.audit)} records, {len(appends)} of them the processes' appends")
    for record in [*others, *appends[-1:]]:
        session.show(_record_line(record))
    session.say(_DIGESTS, colour="bright_black")


def _record_line(record: Mapping[str, Any]) -> str:
    """The actor, operation, path and outcome of a record, cut to the width."""
    what = record.get("operation") or record["event"]
    end = record.get("rule") or record.get("error") or record.get("outcome")
    size, digest = record.get("size"), record.get("digest")
    facts = [str(record.get("actor")), str(what), str(record["path"]) or ".", str(end)]
    facts += [counted(size, "byte")] if isinstance(size, int) else []
    facts += [digest[:12]] if isinstance(digest, str) else []
    return printable("  " + "  ".join(facts))[:WIDTH]


def _verdict(session: Session, settings: Settings, url: str) -> None:
    session.show("")
    if session.held:
        session.show("Nothing was lost or torn, and nothing got out.", colour="green", bold=True)
    else:
        session.show("Something was lost or torn, or got out.", colour="red", bold=True)
    root = local_root(url)
    directory = f"{Key.agent(AGENT).storage}/{PLAN.partition('/')[0]}"
    place = f"{settings.url.rstrip('/')}/{directory}" if root is None else shown_path(root / directory)
    session.show("The files are plain text, in")
    session.show(f"  {place}")
    options = "" if settings.chosen_url is None else f" --url {shlex.quote(settings.url)}"
    given = ", with the options -o that you gave" if settings.options else ""
    session.show(f"Look around{given}:")
    for command in ("tree", f"read {PLAN}", "audit show", "audit verify"):
        session.show(f"  {typed_command()}{options} --agent {AGENT} {command}")


def _shared_url(url: str) -> str:
    """The store as a URL that other processes can open.

    Raises:
        UnsupportedOperationError: the store exists in one process only.
    """
    if "://" not in url:
        return Path(url).expanduser().absolute().as_uri()
    if url.lower().startswith("memory://"):
        raise UnsupportedOperationError("memory:// exists in one process only; the demo needs several")
    return url


def _audit_sizes(backend: AnyBackend) -> dict[Key, int]:
    return {entry.key: entry.size for page in pages(backend, Key.internal("audit")) for entry in page.entries}


def _audit_since(backend: AnyBackend, before: Mapping[Key, int]) -> Iterator[dict[str, Any]]:
    """The audit records that were added after the sizes in ``before`` were taken."""
    for key in sorted(_audit_sizes(backend)):
        for line in _read_from(backend, key, before.get(key, 0)).splitlines():
            if head(line) is None:
                continue  # the killed writer may have left it incomplete
            if "path" in (record := json.loads(line)):
                yield record


def _read_from(backend: AnyBackend, key: Key, start: int) -> bytes:
    return BlockingStore(backend).read(key, start).data
