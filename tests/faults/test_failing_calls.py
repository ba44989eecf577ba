"""Every system call of every operation fails, or writes too little: a clear error and the old content."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from tests.faults import page
from tests.faults.judging import Place, after_an_error, neither_old_nor_new
from tests.faults.operations import CHANGES, CONTROLS, LARGEST_FILE, OPERATIONS, SHORT, WRITES, Operation
from tests.faults.page import Results
from tests.faults.plans import Call, Fault, Plan, Report
from tests.faults.trials import Trials
from tests.support.sizes import long_except


def plans(calls: tuple[Call, ...], *, older: bool = False) -> list[tuple[Call, Plan]]:
    """Each call with each of its possible errnos."""
    no_room = (errno.ENOSPC, errno.EDQUOT)
    return [
        (call, Plan(fault, at, error, older=older))
        for at, call in enumerate(calls, 1)
        for fault, errors in (
            (Fault.FAIL, (errno.EIO, *no_room) if call.allocates else (errno.EIO,)),
            (Fault.FAIL_HALFWAY, no_room if call.writes else ()),
        )
        for error in errors
    ]


def failures(trials: Trials, operation: Operation, *, older: bool = False) -> list[list[str]]:
    """The faults after each failure."""
    return [
        trials.faults(operation, plan, partial(after_an_error, may_leave=call.removes))
        for call, plan in plans(trials.calls(operation, older=older), older=older)
    ]


@long_except(SHORT, "operation", OPERATIONS)
def test_any_failing_call_raises_an_error_and_leaves_only_the_old_state(
    trials: Trials, results: Results, operation: Operation
) -> None:
    faults = failures(trials, operation)
    results.check(operation.name, page.FAILING, faults)


@pytest.mark.long
@pytest.mark.parametrize("operation", CHANGES.values(), ids=CHANGES)
def test_any_failing_call_on_an_older_system_raises_an_error_and_leaves_the_old_state(
    trials: Trials, results: Results, operation: Operation
) -> None:
    if trials.calls(operation) == trials.calls(operation, older=True):
        results.not_run(operation.name, page.FAILING_OLDER, "the same calls")
        return
    faults = failures(trials, operation, older=True)
    results.check(operation.name, page.FAILING_OLDER, faults)


@long_except(SHORT, "operation", WRITES)
def test_short_writes_are_completed(trials: Trials, results: Results, operation: Operation) -> None:
    faults = trials.faults(operation, Plan(Fault.SHORTEN), without_an_error)
    results.check(operation.name, page.SHORT, [faults])


@long_except(SHORT, "operation", WRITES)
def test_a_limit_on_the_size_of_files_raises_a_clear_error(
    trials: Trials, results: Results, operation: Operation
) -> None:
    judge = without_an_error if fits(operation) else with_an_error
    faults = trials.faults(operation, Plan(largest_file=LARGEST_FILE), judge)
    results.check(operation.name, page.LIMIT, [faults])


def test_the_method_detects_that_a_file_written_in_place_is_half_written(trials: Trials, results: Results) -> None:
    naive = CONTROLS["open and write"]
    cases = plans(trials.calls(naive))
    seen = any(trials.faults(naive, plan, neither_old_nor_new) for _, plan in cases)
    results.add("open and write, each call failing", page.CONTROL, int(seen), 1)
    assert seen


def fits(operation: Operation) -> bool:
    """Whether every written file keeps the limit."""
    written = (text for name, text in operation.after.items() if operation.start.get(name) != text)
    return all(len(text) <= LARGEST_FILE for text in written)


def without_an_error(place: Place, operation: Operation, report: Report) -> list[str]:
    raised = [f"raised {report.error!r}"] if report.error else []
    return raised + after_an_error(place, operation, report)


def with_an_error(place: Place, operation: Operation, report: Report) -> list[str]:
    raised = [] if report.error else ["did not raise"]
    return raised + after_an_error(place, operation, report)
