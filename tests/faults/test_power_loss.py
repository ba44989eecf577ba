"""Power losses: after the replay of the journal every acknowledged change is completely there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import page
from tests.faults.filesystems import Filesystem, NotHereError, mounted
from tests.faults.fork_server import Worker
from tests.faults.judging import after_a_kill, tree
from tests.faults.operations import CHANGES, CONTROLS, SHORT, Operation
from tests.faults.page import Results
from tests.faults.plans import Call, Fault, Plan
from tests.faults.trials import Trials
from tests.support.sizes import long_except

_SIZES = {"ext4": "64M", "XFS": "320M"}


@pytest.fixture(scope="module", params=_SIZES)
def filesystem(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, results: Results
) -> Iterator[Filesystem]:
    kind: str = request.param
    try:
        with mounted(kind, tmp_path_factory.mktemp(kind), _SIZES[kind]) as filesystem:
            yield filesystem
    except NotHereError as reason:
        for name in CHANGES:
            results.not_run(name, page.POWER.format(kind), str(reason))
        for name in CONTROLS:
            results.not_run(f"{name}, {kind}", page.CONTROL, str(reason))
        pytest.skip(f"{kind}: {reason}")


def moments(calls: tuple[Call, ...], *, all_moments: bool) -> list[tuple[int, bool]]:
    """The calls before which to lose power, and whether to flush the journal; len(calls) + 1 is the acknowledgement."""
    acknowledged = len(calls) + 1
    points = [at for at, call in enumerate(calls, 1) if call.changes]
    if all_moments:
        return [(at, flush) for at in (*points, acknowledged) for flush in (False, True)]
    return [(points[-1], True), (acknowledged, False)]


@long_except(SHORT, "operation", CHANGES)
def test_a_power_loss_leaves_the_old_or_the_new_state_and_every_acknowledged_change(
    worker: Worker, results: Results, filesystem: Filesystem, operation: Operation, long: bool
) -> None:
    trials = Trials(worker, filesystem.top)
    calls = trials.calls(operation)
    faults = [power_loss(trials, filesystem, operation, *moment) for moment in moments(calls, all_moments=long)]
    results.check(operation.name, page.POWER.format(filesystem.kind), faults)


def power_loss(trials: Trials, filesystem: Filesystem, operation: Operation, at: int, flush: bool) -> list[str]:
    """The faults after a power loss before one call."""
    place = trials.place(operation)
    filesystem.sync()
    report = trials.run(place, operation, Plan(Fault.KILL, at))
    filesystem.lose_power(flush_journal=flush)
    faults = after_a_kill(place, operation, report, torn=True)
    place.remove()
    flushed = "with" if flush else "without"
    return [f"power loss before call {at}, {flushed} a flush of the journal: {fault}" for fault in faults]


@pytest.mark.parametrize("operation", CONTROLS.values(), ids=CONTROLS)
def test_the_method_detects_that_code_without_fsync_loses_acknowledged_changes(
    worker: Worker, results: Results, filesystem: Filesystem, operation: Operation
) -> None:
    lost = is_lost(Trials(worker, filesystem.top), filesystem, operation)
    results.add(f"{operation.name}, {filesystem.kind}", page.CONTROL, int(lost), 1)
    assert lost


@pytest.mark.parametrize("name", ["create", "write, replacing", "delete"])
def test_the_method_detects_that_durability_process_loses_acknowledged_changes(
    worker: Worker, results: Results, filesystem: Filesystem, name: str
) -> None:
    lost = is_lost(Trials(worker, filesystem.top), filesystem, CHANGES[name], "?durability=process")
    results.add(f"{name} with ?durability=process, {filesystem.kind}", page.CONTROL, int(lost), 1)
    assert lost


def is_lost(trials: Trials, filesystem: Filesystem, operation: Operation, query: str = "") -> bool:
    """Whether a power loss right after the acknowledgement undoes it."""
    place = trials.place(operation)
    filesystem.sync()
    assert trials.run(place, operation, Plan(), query).acknowledged
    filesystem.lose_power()
    found = tree(place.memory())
    place.remove()
    return found != operation.after
