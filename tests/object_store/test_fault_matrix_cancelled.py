"""A cancellation at any await leaves old or new data, correct limits, no held lock and no running task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.object_store.cancelling import cancel_at_every_await, close_at_every_await, remember
from tests.object_store.matrix import CLOSED, ENGINES, Cells, Operation
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("trusted")
QUICK = ("s3fs", "append")
CASES = [
    pytest.param(
        engine, operation, id=f"{engine}, {operation.name}",
        marks=() if (engine, operation.name) == QUICK else pytest.mark.long,
    )
    for engine, operations in ENGINES.items()
    for operation in operations
]  # fmt: skip


@pytest.mark.parametrize("after", [0.0, *(pytest.param(each, marks=pytest.mark.long) for each in (0.001, 0.004))])
@pytest.mark.parametrize(("engine", "operation"), CASES)
def test_a_cancellation_at_any_await_leaves_the_old_or_the_new_state(
    engine: str, operation: Operation, after: float, ministack: S3Server, cells: Cells
) -> None:
    found = asyncio.run(cancel_at_every_await(operation, ministack.by(engine), after))
    assert len(found) > 1
    remember(cells, engine, operation, found)


@pytest.mark.parametrize(("engine", "operation"), CASES)
def test_a_call_that_is_cancelled_and_whose_memory_is_closed_is_in_the_log_if_it_changed_something(
    engine: str, operation: Operation, ministack: S3Server, cells: Cells, tmp_path: Path
) -> None:
    found = asyncio.run(close_at_every_await(operation, ministack.by(engine), tmp_path))
    assert len(found) > 1
    remember(cells, engine, operation, found, CLOSED)
