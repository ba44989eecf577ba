"""The command doctor: compares the stated capabilities of a store with its observed behaviour."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from agent_memory.backend import AnyBackend, Capabilities
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.inspection import (
    Agents,
    AgentTree,
    LogSize,
    StoreFacts,
    agents_of,
    filesystem_warning,
    log_size,
    store_facts,
    tracked_by_git,
    tree_of,
)
from agent_memory.cli.output import Exit, TableRow, counted, note, reported_progress, show_json, show_table
from agent_memory.cli.presence import local_root
from agent_memory.cli.probes import PROBES, ScratchTree, Seen, Sight, limited_rate, limits, look, tried_in_two_processes
from agent_memory.cli.settings import Access, Command, Settings, opening_errors, pass_settings
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, BackendNotAvailableError, FileOperationError, install_hint
from agent_memory.key import RESERVED
from agent_memory.registry import broken_plugins, installed_backends

if TYPE_CHECKING:
    from agent_memory.testing.conformance import Outcome, Promise

_PACKAGES = {"s3": "s3fs", "obstore": "obstore"}
"""The package that each extra with a backend installs."""
_ROUNDS = 10
_OPERATION_SECONDS = 10.0
_LIMITED_SECONDS = 60.0
"""The time of an operation on a server that allows few writes of one file: the trial of its preconditions waits."""
_PATIENCE_SECONDS = 15.0
"""Total seconds of probes in which the storage failed; after them, no further probe is tried."""
_MOST_NAMES = 5
_UNTRIED = Sight("not tried", "only a crash can show it")
_SHARED = ("atomic_create", "compare_and_swap")
_BUCKET_VERSIONING = (
    "Bucket versioning is on: the bucket keeps a whole copy of a file at each append, edit and delete, without actors. "
    "Deleting and pruning free no space until a lifecycle rule does; forget and redact erase the copies too. "
    '"versions on" works beside it.'
)


@dataclass(frozen=True)
class Observation:
    """One promise: the backend's statement and the observation."""

    promise: str
    stated: bool | str
    seen: Seen
    detail: str

    @property
    def broken(self) -> bool:
        """Whether the promise is stated and not kept."""
        return self.stated is True and self.seen == "no"

    @property
    def failed(self) -> bool:
        """Whether the storage failed during the probe, so that the result says nothing about the promise."""
        return self.seen == "failed"

    def document(self) -> dict[str, Any]:
        """The observation as a JSON object."""
        return {**asdict(self), "broken": self.broken, "failed": self.failed}


@dataclass
class Diagnosis:
    """Everything that doctor found."""

    store: StoreFacts | None
    findings: list[Observation] = field(default_factory=list)
    agents: Agents = field(default_factory=Agents)
    trees: list[AgentTree] = field(default_factory=list)
    left: str | None = None
    keeps_earlier_states: bool | None = None
    large_files: str | None = None
    limits: list[str] = field(default_factory=list)
    filesystem: str | None = None
    audit: LogSize = field(default_factory=LogSize)
    unlisted: str | None = None
    tracked: tuple[str, ...] = ()

    @property
    def problem(self) -> str | None:
        """Why this release may not change the store; nothing was probed then."""
        return self.store.problem if self.store else None

    def add_sight(self, promise: str, sight: Sight) -> None:
        """Add a further observation of a promise that was kept so far."""
        for number, found in enumerate(self.findings):
            if found.promise == promise and found.seen == "yes":
                detail = f"{found.detail}; {sight.detail}" if sight.seen == "yes" else sight.detail
                self.findings[number] = Observation(promise, found.stated, sight.seen, detail)

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
        click.get_current_context().exit(_report_contract(settings, contract, rounds))
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
    diagnosis = Diagnosis(store_facts(backend))
    if not diagnosis.problem:
        _probe(backend, rounds, diagnosis)
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


def _probe(backend: AnyBackend, rounds: int, diagnosis: Diagnosis) -> None:
    """Probe the promises and the limits, and remove the scratch files."""
    scratch = ScratchTree(backend)
    rate = limited_rate(backend, scratch.top)
    scratch.is_limited = rate is not None
    with default_seconds(_LIMITED_SECONDS) if scratch.is_limited else nullcontext():
        try:
            sights = _sights(scratch, 1 if scratch.is_limited else rounds)
            diagnosis.keeps_earlier_states = scratch.keeps_earlier_states()
            if reason := scratch.refusal_of_large_files():
                diagnosis.large_files = f"files over {backend.max_bytes:,} bytes are refused: {reason}"
            diagnosis.limits = limits(backend, scratch.top)
        finally:
            try:
                scratch.clear()
            except AgentMemoryError as error:
                diagnosis.left = str(error)
    if rate is not None:
        diagnosis.limits.append(
            f"one file took {rate:.1f} writes a second, several files took more; so each promise was probed once"
        )
    diagnosis.findings = [
        Observation(promise, stated, *sights.get(promise, _UNTRIED))
        for promise, stated in asdict(backend.capabilities).items()
    ]


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


def _doubles(capabilities: Capabilities, trees: Sequence[AgentTree]) -> list[Observation]:
    if not (count := sum(len(tree.doubles) for tree in trees)):
        return []
    detail = f"in storage: {counted(count, 'name')} both file and directory"
    return [Observation("exclusive_names", capabilities.exclusive_names, "no", detail)]


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "backends": sorted(installed_backends().keys() - _without_package().keys()),
        "broken_plugins": dict(broken_plugins()),
        "store": asdict(diagnosis.store) if diagnosis.store else None,
        "tracked_by_git": diagnosis.tracked,
        "capabilities": [finding.document() for finding in diagnosis.findings],
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


def _without_package() -> dict[str, str]:
    """The extra of each installed backend whose package is not installed."""
    extras = {scheme: "obstore" if scheme.endswith("+obstore") else scheme for scheme in installed_backends()}
    missing = {extra for extra, package in _PACKAGES.items() if importlib.util.find_spec(package) is None}
    return {scheme: extra for scheme, extra in extras.items() if extra in missing}


def _print_plugins() -> None:
    missing = _without_package()
    click.echo(f"Backends installed: {', '.join(sorted(installed_backends().keys() - missing.keys()))}")
    for scheme, extra in sorted(missing.items()):
        click.echo(f"Backend without its package: {scheme}: {install_hint(extra)}")
    for name, error in sorted(broken_plugins().items()):
        click.echo(f"Backend that does not load: {name}: {' '.join(error.split())}")


def _print(diagnosis: Diagnosis) -> None:
    if diagnosis.findings:
        show_table(("promise", "stated", "seen", ""), map(_row, diagnosis.findings))
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


def _row(finding: Observation) -> TableRow:
    stated = finding.stated
    if isinstance(stated, bool):
        stated = "yes" if stated else "no"
    cells = (finding.promise.replace("_", " "), stated, finding.seen, finding.detail)
    return TableRow(cells, is_bad=finding.broken)


def _print_store(diagnosis: Diagnosis) -> None:
    store = diagnosis.store
    if store and store.format is not None:
        features = ", ".join(store.features) or "not known to this release"
        click.echo(f"Store: id {store.id or 'not known'}, format {store.format}, features: {features}")
    if diagnosis.tracked:
        click.echo(
            f"Git tracks {counted(len(diagnosis.tracked), 'file')} of the store's own data: "
            f"{_some(diagnosis.tracked)}; 'git rm -r --cached {RESERVED}' ends that; commits keep them"
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


def _report_contract(settings: Settings, url: str, rounds: int) -> Exit:
    """Run the contract against a URL, print the results, and return the exit code."""
    try:
        from agent_memory.testing.conformance import conform
    except ImportError as error:
        advice = f"the contract needs pytest and Hypothesis: {install_hint('testing')}"
        raise BackendNotAvailableError(advice) from error
    with ExitStack() as stack:
        bars: list[Any] = []

        def begun(tests: int) -> None:
            bars.append(stack.enter_context(reported_progress("Testing", tests)))

        with opening_errors():
            promises, left = conform(
                url, settings.given_options(), rounds=rounds, begun=begun, advance=lambda: bars[0]()
            )
    if settings.json:
        show_json({"promises": [each._asdict() for each in promises], "left": left})
    else:
        _print_contract(promises)
    if left:
        note(f"{left} could not be deleted: it is the directory that the tests used")
    return Exit.FAILED if any(each.outcome in ("broken", "not tried") for each in promises) else Exit.OK


def _print_contract(promises: Sequence[Promise]) -> None:
    counts = Counter((each.part, each.outcome) for each in promises)
    outcomes: list[Outcome] = ["kept", "broken", "not promised"]
    untried = [each for each in promises if each.outcome == "not tried"]
    if untried:
        outcomes.append("not tried")
    parts = dict.fromkeys(each.part for each in promises)
    rows = (
        TableRow((part, *(str(counts[part, outcome]) for outcome in outcomes)), is_bad=counts[part, "broken"] > 0)
        for part in parts
    )
    show_table(("promises about", *outcomes), rows)
    for outcome in ("not promised", "not tried"):
        for reason, times in Counter(each.detail for each in promises if each.outcome == outcome).items():
            click.echo(f"{outcome.capitalize()} ({times}): {reason}")
    broken = [each for each in promises if each.outcome == "broken"]
    for each in broken:
        click.echo(f"Broken: {each.part}: {each.text}: {each.detail}")
    if broken:
        click.echo(f"Verdict: {counted(len(broken), 'promise')} of {len(promises)} broken.")
    elif untried:
        click.echo(f"Verdict: none. The storage failed in {counted(len(untried), 'test')} of {len(promises)}.")
    else:
        click.echo("Verdict: every promise that the backend makes was kept.")
