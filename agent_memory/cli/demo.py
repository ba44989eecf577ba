"""The command demo: a short real session on the store, and what it left in the audit log.

It works as the agent ``demo`` in the directory ``session`` and overwrites there what an earlier run left.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import click

from agent_memory.backend import AnyBackend, Backend
from agent_memory.cli.inspection import pages
from agent_memory.cli.output import Exit, show_json
from agent_memory.cli.presence import local_root
from agent_memory.cli.settings import Command, Settings, open_store, pass_settings
from agent_memory.cli.workers import WORKER, append_at_once, line_of
from agent_memory.errors import AgentMemoryError, UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.runners import run_sync
from agent_memory.service import AgentMemoryService

AGENT: Final = "demo"
PLAN: Final = "session/plan.md"
JOURNAL: Final = "session/journal.md"
PROCESSES: Final = 4
LINES: Final = 25
_ESCAPES: Final = ("../other-agent/notes.md", "/etc/passwd", "notes/%2e%2e/%2e%2e/secret.md", "C:\\secrets.txt")
_SHOWN: Final = ("event", "actor", "operation", "path", "size", "digest", "outcome", "error", "rule")
_LINK: Final = "session/link.md"


@dataclass
class Session:
    """What happened."""

    store: str
    quiet: bool = False
    agent: str = AGENT
    steps: list[str] = field(default_factory=list)
    expected_lines: int = PROCESSES * LINES
    present_lines: int = 0
    not_refused: list[str] = field(default_factory=list)
    audit: list[dict[str, Any]] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether nothing was lost, nothing got out, and all of it was written down."""
        return self.present_lines == self.expected_lines and not self.not_refused and bool(self.audit)

    def document(self) -> dict[str, Any]:
        """The same for a program."""
        facts = {name: fact for name, fact in asdict(self).items() if name != "quiet"}
        return {**facts, "held": self.held}

    def say(self, text: str) -> None:
        """Print a line, unless a program listens."""
        if not self.quiet:
            click.echo(text)

    def title(self, text: str) -> None:
        """Begin a part."""
        self.say(f"\n{text}")

    def step(self, text: str) -> None:
        """Tell what was done."""
        self.steps.append(text)
        self.say(f"  {text}")

    def refused(self, what: str, attempt: Callable[[], object]) -> None:
        """Try what has to be refused."""
        try:
            attempt()
        except AgentMemoryError as error:
            self.step(f"{what}: refused: {error}")
        else:
            self.not_refused.append(what)
            self.step(f"{what}: NOT REFUSED")


@click.command(cls=Command)
@pass_settings
def demo(settings: Settings) -> None:
    """Run a short session on the store and show what happens.

    Writes, appends from several processes at once, tries to escape, and prints the audit log; as the agent "demo",
    in its directory "session". May be run again.
    """
    url = _shared_url(settings.url)
    session = Session(settings.url, quiet=settings.json)
    with open_store(url, settings.storage_options(), settings) as store:
        before = _audit_sizes(store.backend)
        with _played(url, settings) as memory:
            _files(memory, session)
            _processes(memory, session, url, settings)
            _escapes(memory, session)
            if root := local_root(url):
                _planted_link(memory, session, root)
        session.audit = list(_audit_since(store.backend, before))
    _audit_shown(session)
    if settings.json:
        show_json(session.document())
    else:
        _verdict(session, settings)
    click.get_current_context().exit(Exit.OK if session.held else Exit.FAILED)


@contextmanager
def _played(url: str, settings: Settings) -> Iterator[AgentMemory]:
    """The demo's memory, audited in the store's own area."""

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
        session.say(f"    | {line}")
    session.refused(f"create {PLAN} again", lambda: memory.create(PLAN, "mine"))
    stale = hashlib.sha256(text.encode()).hexdigest()
    session.refused("write over a change not seen", lambda: memory.write(PLAN, "old", expected_sha256=stale))


def _processes(memory: AgentMemory, session: Session, url: str, settings: Settings) -> None:
    session.title(f"{PROCESSES} processes append to one file at once")
    memory.write(JOURNAL, "# Journal\n")
    append_at_once(url, settings.storage_options(), PROCESSES, LINES, AGENT, JOURNAL)
    found = memory.read(JOURNAL).splitlines()
    wanted = [line_of(worker, number) for worker in range(PROCESSES) for number in range(LINES)]
    session.present_lines = sum(found.count(line) == 1 for line in wanted)
    session.step(f"{session.present_lines} of {session.expected_lines} lines are present, each whole and once")


def _escapes(memory: AgentMemory, session: Session) -> None:
    session.title("Ways out")
    for path in _ESCAPES:
        session.refused(f"read {path}", partial(memory.read, path))


def _planted_link(memory: AgentMemory, session: Session, root: Path) -> None:
    """Put a symbolic link to a file outside into the store, as an attacker with a shell would, and take it away."""
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
    appends = [line for line in session.audit if str(line.get("actor", "")).startswith(WORKER)]
    others = [line for line in session.audit if line not in appends]
    session.title(f"The audit log: {len(session.audit)} lines, {len(appends)} of them the processes' appends")
    for line in [*others, *appends[-1:]]:
        session.say("  " + json.dumps({name: _short(line[name]) for name in _SHOWN if name in line}))


def _short(fact: object) -> object:
    return f"{fact[:12]}..." if isinstance(fact, str) and len(fact) == 64 else fact


def _verdict(session: Session, settings: Settings) -> None:
    click.echo("\nNothing was lost, and nothing got out." if session.held else "\nSomething was lost, or got out.")
    place = "" if settings.chosen_url is None else f" --url {shlex.quote(settings.url)}"
    click.echo(f"Look around: agent-memory{place} --agent {AGENT} tree")


def _shared_url(url: str) -> str:
    """The store as a URL that other processes can open.

    Raises:
        UnsupportedOperationError: a store within one process.
    """
    if "://" not in url:
        return Path(url).expanduser().absolute().as_uri()
    if url.lower().startswith("memory://"):
        raise UnsupportedOperationError("memory:// lives in one process; the demo needs a store that several share")
    return url


def _audit_sizes(backend: AnyBackend) -> dict[Key, int]:
    return {entry.key: entry.size for page in pages(backend, Key.internal("audit")) for entry in page.entries}


def _audit_since(backend: AnyBackend, before: Mapping[Key, int]) -> Iterator[dict[str, Any]]:
    """The audit lines that were added since."""
    for key in sorted(_audit_sizes(backend)):
        for line in _read_from(backend, key, before.get(key, 0)).splitlines():
            record = json.loads(line)
            if record["event"] != "begin":
                yield record


def _read_from(backend: AnyBackend, key: Key, start: int) -> bytes:
    store = cast(Backend, backend)
    return run_sync(backend, lambda run: run.call(store.read, key, start)).data
