"""kill -9 at every system call of every operation leaves the old or the new state and every acknowledged change."""

from __future__ import annotations

from functools import partial

import pytest

from tests.faults import page
from tests.faults.judging import after_a_kill, neither_old_nor_new
from tests.faults.operations import CHANGES, CONTROLS, OPERATIONS, SHORT, Operation
from tests.faults.page import Results
from tests.faults.plans import Fault, Plan
from tests.faults.trials import Trials
from tests.support.sizes import long_except


def kills(trials: Trials, operation: Operation, *, older: bool = False) -> list[list[str]]:
    """The faults after a kill before each call, and right after the acknowledgement."""
    calls = trials.calls(operation, older=older)
    plans = (Plan(Fault.KILL, at, older=older) for at in range(1, len(calls) + 2))
    return [trials.faults(operation, plan, after_a_kill) for plan in plans]


@long_except(SHORT, "operation", OPERATIONS)
def test_a_process_killed_before_any_call_leaves_the_old_or_the_new_state(
    trials: Trials, results: Results, operation: Operation
) -> None:
    faults = kills(trials, operation)
    results.check(operation.name, page.KILLED, faults)


@long_except(SHORT, "operation", CHANGES)
def test_a_process_killed_during_a_write_leaves_the_old_state_or_an_open_line(
    trials: Trials, results: Results, operation: Operation
) -> None:
    writes = [at for at, call in enumerate(trials.calls(operation), 1) if call.writes]
    judge = partial(after_a_kill, torn=True)
    faults = [trials.faults(operation, Plan(Fault.KILL_HALFWAY, at), judge) for at in writes]
    results.check(operation.name, page.HALFWAY, faults)


@pytest.mark.long
@pytest.mark.parametrize("operation", CHANGES.values(), ids=CHANGES)
def test_a_process_killed_on_an_older_system_leaves_the_old_or_the_new_state(
    trials: Trials, results: Results, operation: Operation
) -> None:
    if trials.calls(operation) == trials.calls(operation, older=True):
        results.not_run(operation.name, page.OLDER, "the same calls")
        return
    faults = kills(trials, operation, older=True)
    results.check(operation.name, page.OLDER, faults)


def test_the_method_detects_that_a_file_written_in_place_is_torn(trials: Trials, results: Results) -> None:
    naive = CONTROLS["open and write"]
    kill_points = range(1, len(trials.calls(naive)) + 1)
    seen = any(trials.faults(naive, Plan(Fault.KILL, at), neither_old_nor_new) for at in kill_points)
    results.add("open and write, killed before each call", page.CONTROL, int(seen), 1)
    assert seen
