"""An interrupt at every place of every operation leaves the old or the new state, and no lock."""

from __future__ import annotations

import gc
import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryError
from agent_memory.backend._deadline import restore_deadline
from agent_memory.backend.helpers import current_deadline
from agent_memory_local import _locks
from agent_memory_local._descriptor import Descriptor
from tests.faults import page
from tests.faults.interrupts import Place as Where
from tests.faults.interrupts import closed_below, count_places, interrupted_where
from tests.faults.judging import Place, after_a_kill, in_memory_after_a_kill
from tests.faults.operations import OPERATIONS, SHORT, Operation
from tests.faults.page import Results
from tests.faults.plans import Report
from tests.support.sizes import long_except

_STEP = 23
"""Without ``--long`` only every 23rd place is tried."""

_SHORT = ("append",)
"""The operations on disk that run without ``--long``."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),  # interrupted before it started
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # interrupted in a finalizer
]


on_disk = long_except(_SHORT, "operation", OPERATIONS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short timeout for remaining locks, and no logging."""
    monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 2.0)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def places(count: int, long: bool) -> range:
    return range(1, count + 1, 1 if long else _STEP)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """A garbage collector that runs at the next allocation."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("eager_collector")
def test_garbage_of_another_test_has_no_places(tmp_path: Path) -> None:
    kept: list[object] = []

    def open_directory() -> Descriptor:
        return Descriptor(os.open(tmp_path, os.O_RDONLY))

    def leave_garbage_and_allocate() -> None:
        cycle: list[object] = [open_directory()]
        cycle.append(cycle)
        del cycle
        _ = [[] for _ in range(1_000)]

    assert count_places(leave_garbage_and_allocate) == count_places(lambda: kept.append(open_directory()))


@on_disk
def test_an_interrupt_on_disk_leaves_the_old_or_the_new_state_and_no_lock(
    results: Results, operation: Operation, tmp_path: Path, long: bool
) -> None:
    numbers = itertools.count()

    def fresh() -> Place:
        place = Place(tmp_path / str(next(numbers)))
        place.prepare(operation)
        return place

    with AgentMemory.open(fresh().root) as memory:
        count = count_places(partial(operation.run, memory))
    faults = [interrupted(operation, fresh(), at, results) for at in places(count, long)]
    results.check(operation.name, page.INTERRUPTED, faults)


def interrupted(operation: Operation, place: Place, at: int, results: Results) -> list[str]:
    """The faults after an interrupt at a place."""
    memory = AgentMemory.open(place.root)
    where = interrupted_where(at, partial(operation.run, memory))
    faults = after_a_kill(place, operation, Report(0))  # uses another memory on the same root
    if deadline := current_deadline():
        restore_deadline(None)
        faults.append(f"its deadline of {deadline.seconds} s applies to later calls")
    with suppress(AgentMemoryError):
        memory.exists("other.md")  # this memory must still work, too
    memory.close()
    gc.collect()
    if left := closed_below(place.base):
        results.opened.passed += 1
        faults += [] if where is not None and is_unpromised(where) else [f"open: {left}"]
    results.opened.tried += 1
    place.remove()
    return [f"{where}: {fault}" for fault in faults]


def is_unpromised(where: Where) -> bool:
    """Whether no code of this package could close the descriptor at this place; see the page."""
    opens = where.called in ("open", "partial", "syscall") and where.event == "c_return"
    return opens or where.file == "_descriptor.py" or where.called == "close" or where.function == "close"


@long_except(SHORT, "operation", OPERATIONS)
def test_an_interrupt_in_memory_leaves_the_old_or_the_new_state_and_no_lock(
    results: Results, operation: Operation, long: bool
) -> None:
    def fresh() -> AgentMemory:
        memory = AgentMemory.open("memory://")
        for name, text in operation.start.items():
            memory.write(name, text)
        return memory

    count = count_places(partial(operation.run, fresh()))
    faults = []
    for at in places(count, long):
        memory = fresh()
        where = interrupted_where(at, partial(operation.run, memory))
        faults.append([f"{where}: {fault}" for fault in in_memory_after_a_kill(memory, operation)])
    results.check(operation.name, page.INTERRUPTED_IN_MEMORY, faults)
