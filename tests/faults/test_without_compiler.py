"""The fault tests on a machine without a C compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SWAPS = "tests/faults/test_swapped_files.py"


@pytest.mark.long
@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_a_compiler_the_run_reports_the_skipped_tests_and_ci_fails(tmp_path: Path, ci: str, code: int) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t"), SWAPS]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    assert run.returncode == code, run.stdout
    assert "a C compiler: install gcc and libc6-dev" in run.stdout
    assert ("left out: " in run.stdout) is (code == 0)
