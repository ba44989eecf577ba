"""With versions on, a kill or a failing call leaves the file and the chain of its versions consistent."""

from __future__ import annotations

from functools import partial

import pytest

from tests.faults import page
from tests.faults.judging import Place, after_a_kill, after_an_error
from tests.faults.operations import Operation
from tests.faults.page import Results
from tests.faults.plans import Fault, Plan, Report
from tests.faults.test_failing_calls import plans
from tests.faults.trials import Trials
from tests.faults.versioned_operations import VERSIONED, wrong_versions
from tests.support.sizes import long_except

_SHORT = ("write, versions",)
versioned = long_except(_SHORT, "operation", VERSIONED)


def chain_after_a_kill(place: Place, operation: Operation, report: Report, *, torn: bool = False) -> list[str]:
    with place.memory() as memory:
        faults = wrong_versions(memory, operation, is_done=bool(report.acknowledged))
    return faults + after_a_kill(place, operation, report, torn=torn)


def chain_after_an_error(place: Place, operation: Operation, report: Report, *, may_leave: bool) -> list[str]:
    with place.memory() as memory:
        faults = wrong_versions(memory, operation, is_done=report.error is None)
    return faults + after_an_error(place, operation, report, may_leave=may_leave)


@pytest.mark.long
@versioned
def test_a_process_killed_before_any_call_leaves_each_state_once(
    trials: Trials, results: Results, operation: Operation
) -> None:
    calls = trials.calls(operation)
    kills = (Plan(Fault.KILL, at) for at in range(1, len(calls) + 2))
    faults = [trials.faults(operation, plan, chain_after_a_kill) for plan in kills]
    results.check(operation.name, page.KILLED, faults)


@versioned
def test_a_process_killed_during_a_write_leaves_each_state_once(
    trials: Trials, results: Results, operation: Operation
) -> None:
    if operation.appends:
        pytest.skip("a torn append is part of the current state")
    writes = [at for at, call in enumerate(trials.calls(operation), 1) if call.writes]
    judge = partial(chain_after_a_kill, torn=True)
    faults = [trials.faults(operation, Plan(Fault.KILL_HALFWAY, at), judge) for at in writes]
    results.check(operation.name, page.HALFWAY, faults)


@pytest.mark.long
@versioned
def test_any_failing_call_leaves_each_state_once(trials: Trials, results: Results, operation: Operation) -> None:
    faults = [
        trials.faults(operation, plan, partial(chain_after_an_error, may_leave=True))
        for _, plan in plans(trials.calls(operation))
    ]
    results.check(operation.name, page.FAILING, faults)
