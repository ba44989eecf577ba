"""The benchmark of lost updates counts right, with real processes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DOCS = Path(__file__).parents[1] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
FSSPEC = "fsspec, read and write again, disk"


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
    row = lost_updates.row(subject, lost_updates.measured(subject, lambda: "", 1))
    assert row == "| Python, `open` |  | not installed: `pip install no-such-package` | | | |"


def test_the_chart_has_a_bar_for_each_subject_and_tells_its_figures(lost_updates: Any, tmp_path: Path) -> None:
    count = lost_updates.Count
    rounds = {
        "fsspec, `pipe_file`": [count(3, 0, 97, 0, 1), count(9, 0, 91, 0, 1)],
        "deepagents, `FilesystemBackend`": [count(25, 75, 0, 0, 1)],
        "a subject that is not drawn": [count(100, 0, 0, 0, 1)],
    }
    lost_updates.draw(tmp_path / "a.svg", rounds, 2)
    svg = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert svg.findtext(f"{SVG}title") == "Lines kept of 100, when processes append at once"
    assert told(svg) == {"deepagents, FilesystemBackend, disk": "25, 75 refused", FSSPEC: "3\N{EN DASH}9"}
    widths = {bar.get("class", ""): float(bar.get("width", "")) for bar in svg.findall(f"{SVG}rect[@x='38']")}
    assert widths == {"track": 200, "other most": 18, "other": 6}  # those drawn last


def test_the_chart_of_the_docs_has_the_figures_of_the_page_with_all_rows() -> None:
    chart = told(ElementTree.parse(DOCS / "lost-updates.svg").getroot())
    page = (DOCS / "comparison.md").read_text()
    cells = [[cell.strip() for cell in row.split("|")[2:4]] for row in page.splitlines() if row.startswith("| ")]
    shown = {cell for row in cells for cell in row}
    assert len(chart) == 12
    assert {label: figures for label, figures in chart.items() if figures not in shown} == {}


def told(svg: ElementTree.Element) -> dict[str, str]:
    """The figures in the description of a chart, by the labels of the bars."""
    description = svg.findtext(f"{SVG}desc") or ""
    return dict(figures.rsplit(": ", 1) for figures in description.rstrip(".").split("; "))
