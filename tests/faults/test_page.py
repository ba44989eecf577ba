"""The page of a run counts the tries of all its processes."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

from tests.faults.page import FULL, HALFWAY, LINKS, Cell, Results, page
from tests.support.gathering import hand_over, handed_over


def test_a_merged_result_counts_the_tries_of_both_processes() -> None:
    here, there = Results(), Results()
    for results in (here, there):
        results.add("append", HALFWAY, 2, 3)
        results.opened = Cell(1, 4)
    there.not_run("append", FULL.format("XFS"), "no XFS")
    there.swaps = {"append": (5, 1), "control: append": (7, 2)}
    here.merge(pickle.loads(pickle.dumps(there)))
    assert here.cells["append", HALFWAY] == Cell(4, 6)
    assert here.cells["append", FULL.format("XFS")].not_run
    assert here.opened == Cell(2, 8)
    assert f"| {HALFWAY} | 1 | 6 | 4 |" in page(here)
    assert f"| {LINKS} | 1 | 5 | 4 |" in page(here)


def test_only_a_process_that_another_started_hands_its_results_over() -> None:
    started, alone = SimpleNamespace(workeroutput={}), SimpleNamespace()
    assert hand_over(started, "page", {"cell": 1})  # type: ignore[arg-type]
    assert handed_over(started, "page") == {"cell": 1}
    assert not hand_over(alone, "page", {"cell": 1})  # type: ignore[arg-type]
    assert handed_over(SimpleNamespace(), "page") is None
