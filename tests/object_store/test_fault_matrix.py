"""Every fault on every operation: a result that is true, in time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.object_store.matrix import ENGINES, WRONG, Cells, trial
from tests.object_store.proxy import FAULTS, Fault
from tests.support.servers import S3Server, by_both_engines

SECONDS = 3.0
LATE = 1.1
"""No operation outlives its deadline by more than a tenth: looked at by the clock on the wall in the long run alone,
for what else the machine does counts; the simulation, which has a clock of its own, looks in every run."""

faults = pytest.mark.parametrize(
    "fault",
    [fault if fault == "reply lost" else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS],
)


@pytest.fixture
def server(engine: str, ministack: S3Server) -> S3Server:
    return ministack.by(engine)


@faults
@pytest.mark.parametrize("engine", ["s3fs", pytest.param("obstore", marks=pytest.mark.long)])
def test_a_fault_that_passes_is_not_noticed(fault: Fault, engine: str, server: S3Server, cells: Cells) -> None:
    _try_all(engine, fault, False, server, cells, 20.0)
    ends = {operation.name: cells[engine, operation.name, fault, False].result for operation in ENGINES[engine]}
    assert set(ends.values()) == {"done"}, ends


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@by_both_engines
def test_a_fault_that_stays_ends_in_a_true_error_in_time(
    fault: Fault, engine: str, server: S3Server, cells: Cells
) -> None:
    _try_all(engine, fault, True, server, cells, SECONDS)
    for operation in ENGINES[engine]:
        cell = cells[engine, operation.name, fault, True]
        assert not cell.result.startswith(WRONG), f"{operation.name}: {cell}"
        assert cell.seconds <= SECONDS * LATE, f"{operation.name}: {cell}"


def _try_all(engine: str, fault: Fault, always: bool, server: S3Server, cells: Cells, seconds: float) -> None:
    with ExitStack() as ready, ThreadPoolExecutor(4) as pool:  # all are ready first: to connect takes a second at times
        operations = ENGINES[engine]
        trials = [ready.enter_context(trial(each, fault, always, server, seconds)) for each in operations]
        results = pool.map(lambda run: run(), trials)
        named = zip(operations, results, strict=True)
        cells.update({(engine, each.name, fault, always): cell for each, cell in named})
