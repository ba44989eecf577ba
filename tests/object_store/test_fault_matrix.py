"""Every fault on every operation gives a true result in time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.object_store.matrix import ENGINES, WRONG, Cells, trial
from tests.object_store.proxy import FAULTS, Fault
from tests.support.servers import S3Server, by_both_engines

SECONDS = 3.0
LATE = 1.1
"""No operation exceeds its deadline by more than a tenth.

Only the long run checks this by the wall clock, because other load on the machine counts there. The simulation has its
own clock and checks it in every run.
"""

faults = pytest.mark.parametrize(
    "fault",
    [fault if fault == "reply lost" else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS],
)


@pytest.fixture
def server(engine: str, ministack: S3Server) -> S3Server:
    return ministack.by(engine)


@faults
@pytest.mark.parametrize("engine", ["s3fs", pytest.param("obstore", marks=pytest.mark.long)])
def test_a_temporary_fault_does_not_reach_the_caller(fault: Fault, engine: str, server: S3Server, cells: Cells) -> None:
    _try_all(engine, fault, False, server, cells, 20.0)
    ends = {operation.name: cells[engine, operation.name, fault, False].result for operation in ENGINES[engine]}
    assert set(ends.values()) == {"done"}, ends


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@by_both_engines
def test_a_permanent_fault_raises_a_true_error_in_time(
    fault: Fault, engine: str, server: S3Server, cells: Cells
) -> None:
    _try_all(engine, fault, True, server, cells, SECONDS)
    for operation in ENGINES[engine]:
        cell = cells[engine, operation.name, fault, True]
        assert not cell.result.startswith(WRONG), f"{operation.name}: {cell}"
        assert cell.seconds <= SECONDS * LATE * operation.deadlines, f"{operation.name}: {cell}"


def _try_all(engine: str, fault: Fault, always: bool, server: S3Server, cells: Cells, seconds: float) -> None:
    with ExitStack() as ready, ThreadPoolExecutor(4) as pool:  # prepare all first: connecting may take 1 s
        operations = ENGINES[engine]
        trials = [ready.enter_context(trial(each, fault, always, server, seconds)) for each in operations]
        results = pool.map(lambda run: run(), trials)
        named = zip(operations, results, strict=True)
        cells.update({(engine, each.name, fault, always): cell for each, cell in named})
