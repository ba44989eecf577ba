"""Every fault on every operation gives a true result in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.object_store.matrix import (
    ENGINES,
    IN_TWO_STEPS,
    WRONG,
    Cell,
    Cells,
    Operation,
    on_an_unsafe_server,
    trial,
)
from tests.object_store.proxy import FAULTS, Fault
from tests.support import sizes
from tests.support.servers import S3Server, by_both_engines, by_s3fs_or_both

SECONDS = 3.0
LATE = 1.1
"""No operation exceeds its deadline by more than a tenth.

Only the long run checks this by the wall clock, because other load on the machine counts there. The simulation has its
own clock and checks it in every run.
"""
QUICK = ("create", "append", "delete", "write, versions")
"""The operations that run without ``--long``."""
UNCONDITIONAL = {"read", "stat", "list", "write, a new file", "write", "delete"}
"""The operations that rely on no precondition."""
TRIES = 3
"""An operation that is late is tried again: load delays one try, and a wrong deadline delays each."""

faults = pytest.mark.parametrize(
    "fault",
    [fault if fault == "reply lost" else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS],
)


@pytest.fixture
def server(engine: str, ministack: S3Server) -> S3Server:
    return ministack.by(engine)


@pytest.mark.usefixtures("trusted")
@faults
@by_s3fs_or_both
def test_a_temporary_fault_does_not_reach_the_caller(fault: Fault, engine: str, server: S3Server, cells: Cells) -> None:
    operations = [each for each in ENGINES[engine] if sizes.is_long or each.name in QUICK]
    _try_all(engine, fault, False, server, cells, 20.0, operations)
    ends = {operation.name: cells[engine, operation.name, fault, False].result for operation in operations}
    assert set(ends.values()) == {"done"}, ends


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@by_both_engines
def test_a_permanent_fault_raises_a_true_error_in_time(
    fault: Fault, engine: str, server: S3Server, cells: Cells
) -> None:
    _try_all(engine, fault, True, server, cells, SECONDS)
    for _ in range(TRIES - 1):
        late = [each for each in ENGINES[engine] if _is_late(cells[engine, each.name, fault, True], each)]
        _try_all(engine, fault, True, server, cells, SECONDS, late)
    for operation in ENGINES[engine]:
        cell = cells[engine, operation.name, fault, True]
        assert not cell.result.startswith(WRONG), f"{operation.name}: {cell}"
        assert not _is_late(cell, operation), f"{operation.name}: {cell}, in each of {TRIES} tries"


@by_s3fs_or_both
def test_a_server_that_keeps_preconditions_in_two_steps_loses_nothing_because_changes_are_refused(
    engine: str, stand_in: Callable[[str], S3Server], ministack: S3Server, cells: Cells
) -> None:
    operations = [each for each in ENGINES[engine] if sizes.is_long or each.name in QUICK]
    unsafe = stand_in("conditions in two steps").by(engine)
    ends = {each.name: on_an_unsafe_server(each, unsafe, ministack) for each in operations}
    cells.update({(engine, name, IN_TWO_STEPS, False): Cell(end, 0, 0.0) for name, end in ends.items()})
    for name, end in ends.items():
        assert end == ("done" if name in UNCONDITIONAL else "UnsupportedOperationError"), ends


def _is_late(cell: Cell, operation: Operation) -> bool:
    return not cell.result.startswith(WRONG) and cell.seconds > SECONDS * LATE * operation.deadlines


def _try_all(
    engine: str,
    fault: Fault,
    always: bool,
    server: S3Server,
    cells: Cells,
    seconds: float,
    operations: Sequence[Operation] | None = None,
) -> None:
    operations = ENGINES[engine] if operations is None else operations
    with ExitStack() as ready, ThreadPoolExecutor(4) as pool:  # prepare all first: connecting may take 1 s
        trials = [ready.enter_context(trial(each, fault, always, server, seconds)) for each in operations]
        results = pool.map(lambda run: run(), trials)
        named = zip(operations, results, strict=True)
        cells.update({(engine, each.name, fault, always): cell for each, cell in named})
