"""A process that writes continuously, killed at random moments, many times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import page
from tests.faults.fork_server import Worker
from tests.faults.judging import Place, tree
from tests.faults.page import Results
from tests.faults.plans import Loop, Report
from tests.faults.worker import record

_SHORT, _LONG = 20, 200
_LONGEST = 0.05  # seconds until a kill: some writers die before their first record, most after several
_LONGEST_BUSY = 5.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_replacing_until_killed_leaves_the_last_acknowledged_record_or_the_next(
    worker: Worker, results: Results, place: Place, long: bool
) -> None:
    faults: list[list[str]] = []
    possible = {""}
    first, longest = 1, _LONGEST
    for _ in range(_LONG if long else _SHORT):
        report = worker.do(Loop(str(place.root), "replace", first, random.random() * longest))
        longest = next_longest(longest, report)
        if report.acknowledged:
            possible = {record(first + report.acknowledged - 1)}
        possible.add(record(first + report.acknowledged))
        found = tree(place.memory()).get("log.md", "")
        faults.append([] if found in possible else [f"neither old nor new: {found[:40]!r}"])
        possible = {found}
        first += report.acknowledged + 1
    assert first > len(faults) + 1, "nothing was ever acknowledged"
    results.check("write, replacing", page.LOOPS, faults)


def test_appending_until_killed_leaves_every_acknowledged_record_once(
    worker: Worker, results: Results, place: Place, long: bool
) -> None:
    faults: list[list[str]] = []
    acknowledged: list[int] = []
    first, longest = 1, _LONGEST
    for _ in range(_LONG if long else _SHORT):
        report = worker.do(Loop(str(place.root), "append", first, random.random() * longest))
        longest = next_longest(longest, report)
        acknowledged += range(first, first + report.acknowledged)
        first += report.acknowledged + 1
        found = tree(place.memory()).get("log.md", "")
        faults.append(judged(found.split("\n") if found else [], acknowledged, first))
    assert acknowledged
    results.check("append", page.LOOPS, faults)


def next_longest(longest: float, report: Report) -> float:
    """The longest time until the next kill: it grows on a machine that is too busy for a first record."""
    return _LONGEST if report.acknowledged else min(2 * longest, _LONGEST_BUSY)


def judged(lines: list[str], acknowledged: list[int], next_number: int) -> list[str]:
    """The faults of a log: the acknowledged records once each and in order, others once or torn."""
    whole = {record(number): number for number in range(1, next_number)}
    numbers = [whole[line] for line in lines if line in whole]
    faults = []
    if numbers != sorted(set(numbers)):
        faults.append("records twice or out of order")
    if lost := set(acknowledged) - set(numbers):
        faults.append(f"lost {sorted(lost)}")
    missing = [text for text, number in whole.items() if number not in numbers]
    if any(not any(text.startswith(line) for text in missing) for line in lines if line not in whole):
        faults.append("a line that is neither a record nor the beginning of one")
    return faults
