"""kill -9 at the system calls of an operation that lets an audit log begin anew, also beside a writer.

No acknowledged record is missing in the log and the archive, and `verify` finds nothing, before and after a repetition.
A kill before a call that changes nothing leaves the same disk as one before the next call that does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryError, AgentMemoryService
from agent_memory.audit import LogLocation, records
from tests.faults import page
from tests.faults.fork_server import Worker
from tests.faults.log_operations import LOG_OPERATIONS, LogOperation
from tests.faults.page import Results
from tests.faults.plans import Call, Fault, Plan, Try
from tests.support.sizes import long_except

_SHORT = ("audit close",)
_EACH = 7
each_operation = long_except(_SHORT, "operation", LOG_OPERATIONS)


class Kills:
    """Tries of one operation on logs of their own."""

    def __init__(self, worker: Worker, directory: Path, operation: LogOperation) -> None:
        self._worker, self._directory, self._operation = worker, directory, operation
        operation.prepare(directory / "first")
        report = worker.do(Try(directory / "first", "memory://", operation.name, Plan()))
        assert report.error is None, report.error
        self.calls: tuple[Call, ...] = report.calls

    def faults(self, fault: Fault, at: int, *, beside: bool = False) -> list[str]:
        """Return the faults after a kill at a system call; with ``beside`` a writer appends during the operation."""
        base = self._directory / f"{fault.name} {at}"
        self._operation.prepare(base)
        before = {record["id"] for record in _operations(self._operation.trial(base).location)}
        with self._writing(base) if beside else nullcontext(set[str]()) as acknowledged:
            report = self._worker.do(Try(base, "memory://", self._operation.name, Plan(fault, at)))
        found = [] if report.error is None else [f"raised {report.error!r}"]
        found += self._judged(base, before, acknowledged, is_done=bool(report.acknowledged))
        call = self.calls[at - 1] if at <= len(self.calls) else "the acknowledgement"
        return [f"{fault.name} at {at}, {call}: {each}" for each in found]

    def _judged(self, base: Path, before: set[str], acknowledged: set[str], *, is_done: bool) -> Iterator[str]:
        operation, trial = self._operation, self._operation.trial(base)
        verdict = trial.verdict()
        if not verdict.is_intact and (is_done or not operation.is_damaged):
            yield f"not intact: {verdict}"
        yield from self._kept(base, before, acknowledged)
        try:
            if not (operation.is_damaged and verdict.is_intact):
                operation.do(base, operation.archive(base, "later"))
            trial.write(1, "zoe")
        except AgentMemoryError as error:
            yield f"the repetition raised {error!r}"
        if not (verdict := trial.verdict()).is_intact:
            yield f"not intact after the repetition: {verdict}"
        yield from self._kept(base, before, acknowledged)
        if is_done and not operation.is_damaged:
            found = trial.verdict(operation.archive(base), archived=True, salts=False)
            if not found.is_intact:
                yield f"the archive: {found}"

    def _kept(self, base: Path, before: set[str], acknowledged: set[str]) -> Iterator[str]:
        """The faults of the records: missing in the log and its archives, or twice in one of them."""
        everywhere = set[str]()
        for location in self._locations(base):
            told = _operations(location)
            ids = [record["id"] for record in told]
            everywhere.update(ids, (record["path"] for record in told))
            if len(ids) != len(set(ids)):
                yield "records twice"
        if lost := (before | acknowledged) - everywhere:
            yield f"{len(lost)} acknowledged records are missing"

    def _locations(self, base: Path) -> list[LogLocation]:
        archives = [self._operation.archive(base, name) for name in ("archive", "later") if (base / name).exists()]
        return [self._operation.trial(base).location, *archives]

    @contextmanager
    def _writing(self, base: Path) -> Iterator[set[str]]:
        """A writer that goes on until the end of the context; the set has the paths of its acknowledged appends."""
        acknowledged, ready, ended = set[str](), threading.Event(), threading.Event()

        def write() -> None:
            with (
                self._operation.trial(base).open() as audit,
                AgentMemoryService("memory://beside", plugins=[audit]) as service,
            ):
                while not ended.is_set():
                    path = f"{len(acknowledged)}.md"
                    service.append_to_memory_file("ann", path, "x\n")
                    acknowledged.add(path)
                    ready.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert ready.wait(30)
        try:
            yield acknowledged
        finally:
            ended.set()
            writer.join()


def _operations(location: LogLocation) -> list[dict[str, Any]]:
    """The records of operations in a log."""
    return [record for record in records(location) if record["event"] == "operation"]


@pytest.fixture
def kills(worker: Worker, tmp_path: Path, operation: LogOperation) -> Kills:
    return Kills(worker, tmp_path, operation)


@each_operation
def test_a_log_is_whole_wherever_a_process_is_killed(
    kills: Kills, results: Results, operation: LogOperation, long: bool
) -> None:
    changing = [at for at, call in enumerate(kills.calls, 1) if call.changes]
    points = changing if long else changing[::5]
    faults = [kills.faults(Fault.KILL, at) for at in (*points, len(kills.calls) + 1)]
    results.check(operation.name, page.CHANGING, faults)


@each_operation
def test_a_log_is_whole_wherever_a_process_is_killed_during_a_write(
    kills: Kills, results: Results, operation: LogOperation
) -> None:
    writes = [at for at, call in enumerate(kills.calls, 1) if call.writes]
    results.check(operation.name, page.HALFWAY, [kills.faults(Fault.KILL_HALFWAY, at) for at in writes])


@each_operation
def test_a_log_is_whole_wherever_a_process_is_killed_beside_a_writer(
    kills: Kills, results: Results, operation: LogOperation, long: bool
) -> None:
    points = range(1, len(kills.calls) + 2, _EACH if long else 15 * _EACH)
    results.check(operation.name, page.BESIDE, [kills.faults(Fault.KILL, at, beside=True) for at in points])
