"""kill -9 at every system call of an audited operation: every acknowledgement and every change has a record."""

from __future__ import annotations

from functools import partial

from tests.faults import page
from tests.faults.judging import after_an_audited_kill
from tests.faults.operations import CHANGES, Operation
from tests.faults.page import Results
from tests.faults.plans import Fault, Plan
from tests.faults.trials import Trials
from tests.support.sizes import long_except

_SHORT = ("append",)
audited = long_except(_SHORT, "operation", CHANGES)


@audited
def test_a_process_killed_before_any_call_leaves_its_record_in_the_log(
    trials: Trials, results: Results, operation: Operation, long: bool
) -> None:
    calls = trials.calls(operation, audited=True)
    points = [at for at, call in enumerate(calls, 1) if long or call.changes]
    plans = [Plan(Fault.KILL, at) for at in (*points, len(calls) + 1)]
    faults = [trials.faults(operation, plan, after_an_audited_kill, audited=True) for plan in plans]
    results.check(operation.name, page.AUDITED, faults)


@audited
def test_a_process_killed_during_a_write_leaves_its_record_in_the_log(
    trials: Trials, results: Results, operation: Operation
) -> None:
    writes = [at for at, call in enumerate(trials.calls(operation, audited=True), 1) if call.writes]
    judge = partial(after_an_audited_kill, torn=True)
    faults = [trials.faults(operation, Plan(Fault.KILL_HALFWAY, at), judge, audited=True) for at in writes]
    results.check(operation.name, page.AUDITED_HALFWAY, faults)
