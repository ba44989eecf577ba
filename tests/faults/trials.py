"""One try of an operation under a plan: prepared, run by the worker, and then checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tests.faults.fork_server import Worker
from tests.faults.judging import Place
from tests.faults.operations import Operation
from tests.faults.plans import Call, Plan, Report, Try

Judge = Callable[[Place, Operation, Report], list[str]]
_numbers = itertools.count(1)


class Trials:
    """Try operations, each in a new place below one directory."""

    def __init__(self, worker: Worker, directory: Path) -> None:
        self._worker = worker
        self.directory = directory

    def place(self, operation: Operation) -> Place:
        """A new place with the initial files of the operation."""
        place = Place(self.directory / str(next(_numbers)))
        place.prepare(operation)
        return place

    def run(self, place: Place, operation: Operation, plan: Plan, query: str = "", *, audited: bool = False) -> Report:
        """Run the operation on a root whose URL has the given query; return its report."""
        return self._worker.do(Try(place.base, f"{place.root.as_uri()}{query}", operation.name, plan, audited))

    def faults(self, operation: Operation, plan: Plan, judge: Judge, *, audited: bool = False) -> list[str]:
        """The faults that a check finds after one try."""
        place = self.place(operation)
        report = self.run(place, operation, plan, audited=audited)
        faults = [f"{_named(plan, report)}: {fault}" for fault in judge(place, operation, report)]
        place.remove()
        return faults

    def calls(self, operation: Operation, *, older: bool = False, audited: bool = False) -> tuple[Call, ...]:
        """The system calls of the operation in a run without a fault."""
        place = self.place(operation)
        report = self.run(place, operation, Plan(older=older), audited=audited)
        place.remove()
        assert report.error is None, report.error
        return report.calls


def _named(plan: Plan, report: Report) -> str:
    call = f" {report.calls[plan.at - 1]}" if 0 < plan.at <= len(report.calls) else ""
    return f"{plan.fault.name} at call {plan.at}{call}, errno {plan.error}"
