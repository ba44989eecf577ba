"""The command doctor: what a store states, beside what it was seen to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from agent_memory._deadline import default_seconds
from agent_memory.backend import AnyBackend, Capabilities
from agent_memory.cli.contract import report_contract
from agent_memory.cli.inspection import Agents, AgentTree, LogSize, agents_of, log_size, tree_of
from agent_memory.cli.output import Exit, counted, draw, show_json
from agent_memory.cli.probes import PROBES, Scratch, Sight, look
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.steps import reported
from agent_memory.errors import AgentMemoryError, FileOperationError
from agent_memory.registry import broken_plugins, installed_backends

if TYPE_CHECKING:
    from rich.table import Table

_ROUNDS = 10
_OPERATION_SECONDS = 10.0
_PATIENCE_SECONDS = 15.0
"""How long probes may take that fail because the storage does, before the others are not tried."""
_MOST_NAMES = 5
_SHARED = ("atomic_create", "compare_and_swap")


@dataclass(frozen=True)
class Finding:
    """One promise: what the backend states, what was seen, and whether it is broken.

    ``failed``: the storage failed while it was tried, which tells nothing of the promise.
    """

    promise: str
    stated: bool | str
    seen: str
    detail: str
    broken: bool
    failed: bool = False


@dataclass
class Diagnosis:
    """All that was found."""

    findings: list[Finding]
    agents: Agents
    trees: list[AgentTree]
    left: str | None
    audit: LogSize = field(default_factory=LogSize)
    unlisted: str | None = None

    @property
    def single_writer(self) -> bool:
        """Whether what several writers need is stated to be missing."""
        return any(finding.promise in _SHARED and not finding.stated for finding in self.findings)

    @property
    def broken(self) -> bool:
        """Whether a promise is."""
        return any(finding.broken for finding in self.findings)

    @property
    def faults(self) -> list[str]:
        """What makes the verdict bad."""
        faults = [f"{each.promise}: {each.detail}" for each in self.findings if each.broken]
        by_cause: dict[str, list[str]] = {}
        for each in self.findings:
            if each.failed and not each.broken:
                by_cause.setdefault(each.detail, []).append(each.promise)
        faults += [f"{', '.join(promises)}: {cause}" for cause, promises in by_cause.items()]
        if self.unlisted:
            faults.append(f"the files could not be listed: {self.unlisted}")
        if self.left:
            faults.append(f"the scratch files could not be removed: {self.left}")
        return faults


@click.command(cls=Command)
@click.option("--rounds", type=click.IntRange(1, 1000), default=_ROUNDS, show_default=True, help="How often to try.")
@click.option("--contract", metavar="URL", help="Run all tests of the backends' contract below this URL instead.")
@pass_settings
def doctor(settings: Settings, rounds: int, contract: str | None) -> None:
    """Try out what the store really does.

    Works in scratch files, which are removed afterwards, and compares what it sees with what the backend states. Looks
    for names in storage that no path can name, and for names that are both a file and a directory. Ends with 1 if a
    promise is not kept; an operation that the store refuses is no broken promise.

    With --contract the whole suite that backends are held to runs below URL, in a directory that is deleted afterwards,
    so that nobody needs to write a test to know. It needs the extra "testing", and minutes where the store is slow.
    """
    if contract is not None:
        click.get_current_context().exit(report_contract(settings, contract, rounds))
    if not settings.json:
        _print_plugins()
    with settings.store(Access.MAKE) as store, default_seconds(_OPERATION_SECONDS):
        diagnosis = diagnosed(store.backend, rounds)
    if settings.json:
        show_json(_document(diagnosis))
    else:
        _print(diagnosis)
    click.get_current_context().exit(Exit.FAILED if diagnosis.faults else Exit.OK)


def diagnosed(backend: AnyBackend, rounds: int) -> Diagnosis:
    """Probe a store and look at what lies in it."""
    scratch = Scratch(backend)
    try:
        sights = _sights(scratch, rounds)
    finally:
        left = _cleared(scratch)
    capabilities = backend.capabilities
    findings = [_finding(promise, capabilities, sights) for promise in asdict(capabilities)]
    diagnosis = Diagnosis(findings, Agents(), [], left)
    try:
        diagnosis.agents = agents_of(backend)
        diagnosis.audit = log_size(backend)
        diagnosis.trees = [tree_of(backend, agent) for agent in diagnosis.agents.ids]
    except FileOperationError as error:
        diagnosis.unlisted = str(error)
    findings += _doubles(capabilities, diagnosis.trees)
    return diagnosis


def _sights(scratch: Scratch, rounds: int) -> dict[str, Sight]:
    sights: dict[str, Sight] = {}
    failed_seconds = 0.0
    with reported("Probing", len(PROBES)) as advance:
        for promise, probe in PROBES.items():
            began = time.monotonic()
            if failed_seconds < _PATIENCE_SECONDS:
                sights[promise] = look(probe, scratch, rounds)
            else:
                sights[promise] = Sight("failed", "not tried, because the storage failed before")
            failed_seconds += (time.monotonic() - began) * (sights[promise].seen == "failed")
            advance()
    return sights


def _cleared(scratch: Scratch) -> str | None:
    try:
        scratch.clear()
    except AgentMemoryError as error:
        return str(error)
    return None


def _finding(promise: str, capabilities: Capabilities, sights: dict[str, Sight]) -> Finding:
    stated = getattr(capabilities, promise)
    if (sight := sights.get(promise)) is None:
        return Finding(promise, stated, "not tried", "only a crash can show it", broken=False)
    broken = stated is True and sight.seen == "no"
    return Finding(promise, stated, sight.seen, sight.detail, broken, sight.seen == "failed")


def _doubles(capabilities: Capabilities, trees: Sequence[AgentTree]) -> list[Finding]:
    if not (count := sum(len(tree.doubles) for tree in trees)):
        return []
    detail = f"in storage: {counted(count, 'name')} both file and directory"
    return [Finding("exclusive_names", capabilities.exclusive_names, "no", detail, capabilities.exclusive_names)]


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "backends": sorted(installed_backends()),
        "broken_plugins": dict(broken_plugins()),
        "capabilities": [asdict(finding) for finding in diagnosis.findings],
        "agents": [asdict(tree) for tree in diagnosis.trees],
        "no_agents": diagnosis.agents.strays,
        "no_agents_unnameable": diagnosis.agents.skipped,
        "audit": asdict(diagnosis.audit),
        "faults": diagnosis.faults,
        "healthy": not diagnosis.faults,
    }


def _print_plugins() -> None:
    click.echo(f"Backends installed: {', '.join(sorted(installed_backends()))}")
    for name, error in sorted(broken_plugins().items()):
        click.echo(f"Backend that does not load: {name}: {' '.join(error.split())}")


def _print(diagnosis: Diagnosis) -> None:
    draw(_table(diagnosis.findings))
    _print_trees(diagnosis)
    for fault in diagnosis.faults:
        click.echo(f"{'Not kept' if diagnosis.broken else 'Not found out'}: {fault}")
    if not diagnosis.broken and diagnosis.faults:
        click.echo("Verdict: none. The storage failed, which tells nothing of what it keeps.")
    elif diagnosis.broken:
        click.echo("Verdict: this store does not keep what its backend states.")
    elif diagnosis.single_writer:
        click.echo("Verdict: a store for a single writer; what would need more is refused.")
    else:
        click.echo("Verdict: as far as was tried, the store keeps what its backend states.")


def _table(findings: Sequence[Finding]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("promise", "stated", "seen", "", box=box.SIMPLE)
    for finding in findings:
        style = "bold red" if finding.broken else ""
        cells = (finding.promise.replace("_", " "), _word(finding.stated), finding.seen, finding.detail)
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def _word(stated: bool | str) -> str:
    return {True: "yes", False: "no"}[stated] if isinstance(stated, bool) else stated


def _print_trees(diagnosis: Diagnosis) -> None:
    files = sum(tree.files for tree in diagnosis.trees)
    click.echo(f"In storage: {counted(len(diagnosis.trees), 'agent')}, {counted(files, 'file')}")
    for tree in diagnosis.trees:
        if tree.skipped:
            click.echo(f"  {tree.agent}: {counted(tree.skipped, 'name')} no path can name, or closed to us; left alone")
        if tree.doubles:
            click.echo(f"  {tree.agent}: both file and directory: {_some(tree.doubles)}")
    if diagnosis.agents.strays:
        click.echo(f"  no agents, but where agents lie: {_some(diagnosis.agents.strays)}")
    if diagnosis.agents.skipped:
        click.echo(
            f"  {counted(diagnosis.agents.skipped, 'name')} where agents lie that no path can name, or closed to us"
        )
    if diagnosis.audit.files:
        click.echo(f"Audit log: {counted(diagnosis.audit.bytes, 'byte')} in {counted(diagnosis.audit.files, 'file')}")


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more
