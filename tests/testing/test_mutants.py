"""The contract detects every mutant, a backend that breaks one promise."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.testing import mutants
from tests.testing.mutants import MUTANTS

pytestmark = pytest.mark.long
_ROOT = Path(__file__).parents[2]


class Verdict(NamedTuple):
    """The results of one test class, as names of tests."""

    passed: set[str]
    failed: set[str]
    broken: set[str]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """Run the whole contract on the original, and on each mutant the test that must fail, in a separate process."""
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    module = Path(mutants.__file__ or "").relative_to(_ROOT)
    chosen = [f"{module}::Test{mutant.__name__}::{mutant.caught_by}" for mutant in MUTANTS]
    options = ["-q", "-p", "no:cacheprovider", "--tb=no", f"--junitxml={report}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"{module}::TestOriginal", *chosen],
        cwd=_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout[-3000:] + run.stderr[-3000:]
    return _read(report)


def _read(report: Path) -> dict[str, Verdict]:
    found: defaultdict[str, Verdict] = defaultdict(lambda: Verdict(set(), set(), set()))
    for case in ElementTree.parse(report).iter("testcase"):
        verdict = found[case.attrib["classname"].rpartition(".")[2]]
        kinds = {child.tag for child in case}
        place = verdict.broken if "error" in kinds else verdict.failed if "failure" in kinds else verdict.passed
        place.add(case.attrib["name"].partition("[")[0])
    return dict(found)


def test_the_unmutated_original_keeps_the_whole_contract(verdicts: dict[str, Verdict]) -> None:
    original = verdicts["TestOriginal"]
    assert (original.failed, original.broken) == (set(), set())
    assert {mutant.caught_by for mutant in MUTANTS} <= original.passed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_contract_detects_a_broken_promise(verdicts: dict[str, Verdict], mutant: type[mutants._Mutant]) -> None:
    verdict = verdicts[f"Test{mutant.__name__}"]
    assert verdict.failed == {mutant.caught_by}
    assert verdict.broken == set()
