"""The benchmark of lost updates counts right, with real processes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def lost_updates(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("lost_updates")


def test_a_missing_line_is_lost_only_if_its_call_did_not_fail(lost_updates: Any) -> None:
    count = lost_updates.counted(["a", "b", "c", "d"], {"c", "d"}, ["a", "d"])
    assert (count.kept, count.refused, count.lost, count.other) == (2, 2, 1, 0)


def test_a_line_that_is_found_twice_or_torn_is_not_kept_twice(lost_updates: Any) -> None:
    count = lost_updates.counted(["aa", "bb"], set(), ["aa", "aa", "b"])
    assert (count.kept, count.lost, count.other) == (1, 1, 2)


@pytest.mark.parametrize("name", ["agent-memory, `append`", "Python, `open`"])
def test_no_line_of_processes_that_append_at_once_is_lost(lost_updates: Any, name: str, tmp_path: Path) -> None:
    count = lost_updates.one_round(lost_updates.SUBJECTS[name], str(tmp_path), writers=2, lines=5)
    assert (count.kept, count.refused, count.lost, count.other) == (10, 0, 0, 0)


def test_a_subject_that_is_not_installed_has_a_row_that_says_how_to_install_it(lost_updates: Any) -> None:
    subject = lost_updates.SUBJECTS["Python, `open`"]._replace(packages=("no-such-package",))
    row = lost_updates.row(subject, lambda: "", 1)
    assert row == "| Python, `open` | not installed: `pip install no-such-package` | | | | |"
