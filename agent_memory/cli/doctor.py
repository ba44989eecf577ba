"""The command doctor: compares the stated capabilities of a store with its observed behaviour."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from agent_memory.backend import AnyBackend, Capabilities
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.inspection import Agents, AgentTree, LogSize, agents_of, log_size, tree_of
from agent_memory.cli.output import Exit, counted, draw, reported_progress, show_json
from agent_memory.cli.presence import local_root
from agent_memory.cli.probes import PROBES, ScratchTree, Sight, look
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.store_facts import (
    StoreFacts,
    filesystem_warning,
    limited_rate,
    limits,
    store_facts,
    tracked_by_git,
)
from agent_memory.cli.trials import report_contract, tried_in_two_processes
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, FileOperationError
from agent_memory.key import RESERVED
from agent_memory.registry import broken_plugins, installed_backends

if TYPE_CHECKING:
    from rich.table import Table

_ROUNDS = 10
_OPERATION_SECONDS = 10.0
_LIMITED_SECONDS = 60.0
"""The time of an operation on a server that allows few writes of one file: the trial of its preconditions waits."""
_PATIENCE_SECONDS = 15.0
"""Total seconds of probes in which the storage failed; after them, no further probe is tried."""
_MOST_NAMES = 5
_SHARED = ("atomic_create", "compare_and_swap")
_BUCKET_VERSIONING = (
    "Bucket versioning is on: the bucket keeps a whole copy of a file at each append, edit and delete, without actors. "
    "Deleting and pruning free no space until a lifecycle rule does; forget and redact erase the copies too. "
    '"versions on" works beside it.'
)


@dataclass(frozen=True)
class Observation:
    """One promise: the backend's statement, the observation, and whether the promise is broken.

    ``failed``: the storage failed during the probe, so the result says nothing about the promise.
    """

    promise: str
    stated: bool | str
    seen: str
    detail: str
    broken: bool
    failed: bool = False


@dataclass
class Diagnosis:
    """Everything that doctor found."""

    findings: list[Observation]
    agents: Agents
    trees: list[AgentTree]
    left: str | None
    keeps_earlier_states: bool | None = None
    large_files: str | None = None
    limits: list[str] = field(default_factory=list)
    filesystem: str | None = None
    audit: LogSize = field(default_factory=LogSize)
    unlisted: str | None = None
    store: StoreFacts | None = None
    tracked: tuple[str, ...] = ()

    @property
    def problem(self) -> str | None:
        """Why this release may not change the store; nothing was probed then."""
        return self.store.problem if self.store else None

    def add_sight(self, promise: str, sight: Sight) -> None:
        """Add a further observation of a promise that was kept so far."""
        self.findings = [
            replace(
                found,
                seen=sight.seen,
                detail=f"{found.detail}; {sight.detail}" if sight.seen == "yes" else sight.detail,
                broken=found.stated is True and sight.seen == "no",
                failed=sight.seen == "failed",
            )
            if found.promise == promise and found.seen == "yes"
            else found
            for found in self.findings
        ]

    @property
    def single_writer(self) -> bool:
        """Whether the backend states that it lacks a promise which several writers need."""
        return any(finding.promise in _SHARED and not finding.stated for finding in self.findings)

    @property
    def broken(self) -> bool:
        """Whether a promise is broken."""
        return any(finding.broken for finding in self.findings)

    @property
    def faults(self) -> list[str]:
        """The reasons for a bad verdict."""
        faults = [self.problem] if self.problem else []
        faults += [f"{each.promise}: {each.detail}" for each in self.findings if each.broken]
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
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=_ROUNDS, show_default=True, help="Repetitions of each probe."
)
@click.option("--contract", metavar="URL", help="Instead, run all tests of the backend contract below this URL.")
@pass_settings
def doctor(settings: Settings, rounds: int, contract: str | None) -> None:
    """Test the real behaviour of the store.

    Uses scratch files, which are removed afterwards, and compares their behaviour with the backend's statements. Also
    looks for names in storage that are not valid paths, and for names that are both a file and a directory. Exits with
    1 if a promise is not kept. An operation that the store refuses is not a broken promise.

    With --contract, the whole test suite for backends runs below URL, in a directory that is deleted afterwards. No
    test file is needed. This needs the extra "testing", and takes minutes if the store is slow.
    """
    if contract is not None:
        click.get_current_context().exit(report_contract(settings, contract, rounds))
    if not settings.json:
        _print_plugins()
    with settings.store(Access.MAKE) as store, default_seconds(_OPERATION_SECONDS):
        diagnosis = diagnosed(store.backend, rounds)
        root = local_root(settings.url)
        diagnosis.tracked = tracked_by_git(root)
        diagnosis.filesystem = filesystem_warning(root)
        if root is not None and not diagnosis.problem:
            diagnosis.add_sight(
                "compare_and_swap", tried_in_two_processes(store.backend, settings.url, settings.storage_options())
            )
    if settings.json:
        show_json(_document(diagnosis))
    else:
        _print(diagnosis)
    click.get_current_context().exit(Exit.FAILED if diagnosis.faults else Exit.OK)


def diagnosed(backend: AnyBackend, rounds: int) -> Diagnosis:
    """Probe a store, if this release may change it, and inspect its contents."""
    store = store_facts(backend)
    diagnosis = Diagnosis([], Agents(), [], None) if store and store.problem else _probed(backend, rounds)
    diagnosis.store = store
    try:
        diagnosis.agents = agents_of(backend)
        diagnosis.audit = log_size(backend)
    except FileOperationError as error:
        diagnosis.unlisted = str(error)
    for agent in diagnosis.agents.ids:
        try:
            diagnosis.trees.append(tree_of(backend, agent))
        except FileOperationError as error:
            diagnosis.unlisted = diagnosis.unlisted or f"agent {agent!r}: {error}"
            if not fails_alone(error):
                break
    diagnosis.findings += _doubles(backend.capabilities, diagnosis.trees)
    return diagnosis


def _probed(backend: AnyBackend, rounds: int) -> Diagnosis:
    scratch = ScratchTree(backend)
    rate = limited_rate(backend, scratch.top)
    scratch.is_limited = rate is not None
    with default_seconds(_LIMITED_SECONDS) if scratch.is_limited else nullcontext():
        try:
            sights = _sights(scratch, 1 if scratch.is_limited else rounds)
            keeps = scratch.keeps_earlier_states()
            reason = scratch.refusal_of_large_files()
            large = reason and f"files over {backend.max_bytes:,} bytes are refused: {reason}"
            limited = limits(backend, scratch.top)
        finally:
            left = _cleared(scratch)
    if rate is not None:
        limited.append(
            f"one file took {rate:.1f} writes a second, several files took more; so each promise was probed once"
        )
    capabilities = backend.capabilities
    findings = [_finding(promise, capabilities, sights) for promise in asdict(capabilities)]
    return Diagnosis(findings, Agents(), [], left, keeps, large, limited)


def _sights(scratch: ScratchTree, rounds: int) -> dict[str, Sight]:
    sights: dict[str, Sight] = {}
    failed_seconds = 0.0
    with reported_progress("Probing", len(PROBES)) as advance:
        for promise, probe in PROBES.items():
            began = time.monotonic()
            if failed_seconds < _PATIENCE_SECONDS:
                sights[promise] = look(probe, scratch, rounds)
            else:
                sights[promise] = Sight("failed", "not tried, because the storage failed before")
            failed_seconds += (time.monotonic() - began) * (sights[promise].seen == "failed")
            advance()
    return sights


def _cleared(scratch: ScratchTree) -> str | None:
    try:
        scratch.clear()
    except AgentMemoryError as error:
        return str(error)
    return None


def _finding(promise: str, capabilities: Capabilities, sights: dict[str, Sight]) -> Observation:
    stated = getattr(capabilities, promise)
    if (sight := sights.get(promise)) is None:
        return Observation(promise, stated, "not tried", "only a crash can show it", broken=False)
    broken = stated is True and sight.seen == "no"
    return Observation(promise, stated, sight.seen, sight.detail, broken, sight.seen == "failed")


def _doubles(capabilities: Capabilities, trees: Sequence[AgentTree]) -> list[Observation]:
    if not (count := sum(len(tree.doubles) for tree in trees)):
        return []
    detail = f"in storage: {counted(count, 'name')} both file and directory"
    return [Observation("exclusive_names", capabilities.exclusive_names, "no", detail, capabilities.exclusive_names)]


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "backends": sorted(installed_backends()),
        "broken_plugins": dict(broken_plugins()),
        "store": asdict(diagnosis.store) if diagnosis.store else None,
        "tracked_by_git": diagnosis.tracked,
        "capabilities": [asdict(finding) for finding in diagnosis.findings],
        "agents": [asdict(tree) for tree in diagnosis.trees],
        "no_agents": diagnosis.agents.strays,
        "no_agents_unnameable": diagnosis.agents.skipped,
        "audit": asdict(diagnosis.audit),
        "keeps_earlier_states": diagnosis.keeps_earlier_states,
        "large_files": diagnosis.large_files,
        "filesystem": diagnosis.filesystem,
        "limits": diagnosis.limits,
        "faults": diagnosis.faults,
        "healthy": not diagnosis.faults,
    }


def _print_plugins() -> None:
    click.echo(f"Backends installed: {', '.join(sorted(installed_backends()))}")
    for name, error in sorted(broken_plugins().items()):
        click.echo(f"Backend that does not load: {name}: {' '.join(error.split())}")


def _print(diagnosis: Diagnosis) -> None:
    if diagnosis.findings:
        draw(_table(diagnosis.findings))
    _print_store(diagnosis)
    _print_trees(diagnosis)
    if diagnosis.keeps_earlier_states:
        click.echo(_BUCKET_VERSIONING)
    if diagnosis.filesystem:
        click.echo(f"Warning: {diagnosis.filesystem}.")
    for limit in (diagnosis.large_files, *diagnosis.limits):
        if limit:
            click.echo(f"Limit: {limit}")
    for fault in diagnosis.faults:
        click.echo(f"{'Not kept' if diagnosis.broken else 'Not tested'}: {fault}")
    click.echo(f"Verdict: {_verdict(diagnosis)}")


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.problem:
        return "none. Nothing was tried, because this release may not change the store."
    if not diagnosis.broken and diagnosis.faults:
        return "none. The storage failed, so its promises could not be tested."
    if diagnosis.broken:
        return "this store does not keep the promises that its backend states."
    if diagnosis.single_writer:
        return "this store is for a single writer; operations that need more are refused."
    where = " on this mount" if diagnosis.filesystem else ""
    return f"as far as it was tested{where}, the store keeps the promises that its backend states."


def _table(findings: Sequence[Observation]) -> Table:
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


def _print_store(diagnosis: Diagnosis) -> None:
    store = diagnosis.store
    if store and store.format is not None:
        features = ", ".join(store.features) or "not known to this release"
        click.echo(f"Store: id {store.id or 'not known'}, format {store.format}, features: {features}")
    if diagnosis.tracked:
        click.echo(
            f"Git tracks {counted(len(diagnosis.tracked), 'file')} of the store's own data: "
            f"{_some(diagnosis.tracked)}; 'git rm -r --cached {RESERVED}' ends that; "
            "commits keep them"
        )


def _print_trees(diagnosis: Diagnosis) -> None:
    files = sum(tree.files for tree in diagnosis.trees)
    click.echo(f"In storage: {counted(len(diagnosis.trees), 'agent')}, {counted(files, 'file')}")
    for tree in diagnosis.trees:
        if tree.skipped:
            click.echo(f"  {tree.agent}: {counted(tree.skipped, 'name')} skipped: not a valid path, or no access")
        if tree.doubles:
            click.echo(f"  {tree.agent}: both file and directory: {_some(tree.doubles)}")
    if diagnosis.agents.strays:
        click.echo(f"  not agents, but in the agents' directory: {_some(diagnosis.agents.strays)}")
    if diagnosis.agents.skipped:
        click.echo(
            f"  {counted(diagnosis.agents.skipped, 'name')} in the agents' directory: not a valid path, or no access"
        )
    if diagnosis.audit.files:
        click.echo(f"Audit log: {counted(diagnosis.audit.bytes, 'byte')} in {counted(diagnosis.audit.files, 'file')}")


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more
