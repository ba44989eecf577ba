"""`scripts/parts`: each path of the checkout has its parts of the long run."""

from __future__ import annotations

import os
import runpy
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
_SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/parts"))
PARTS: dict[str, str] = _SCRIPT["PARTS"]
TABLE: tuple[tuple[str, str], ...] = _SCRIPT["TABLE"]
_MADE = (".git", ".hypothesis", ".venv", ".venv-dev", "__pycache__", "build", "dist", "site")
parts_of: Callable[[str], set[str]] = _SCRIPT["parts_of"]


def files() -> list[str]:
    """The files of the checkout, or of a copy of it without git."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return listed.stdout.splitlines()
    found = []
    for directory, below, names in os.walk(ROOT):
        below[:] = [name for name in below if name not in _MADE and not name.endswith((".egg-info", "_cache"))]
        found += [Path(directory, name).relative_to(ROOT).as_posix() for name in names]
    return found


def test_a_pattern_of_the_table_matches_each_file_of_the_checkout() -> None:
    unmatched = [path for path in files() if not any(fnmatchcase(path, pattern) for pattern, _ in TABLE)]
    assert unmatched == [], "add a pattern for each to the table in scripts/parts"


def test_each_pattern_decides_for_a_file_and_names_parts_that_exist() -> None:
    deciding = {next((each for each, _ in TABLE if fnmatchcase(path, each)), "") for path in files()}
    assert [pattern for pattern, _ in TABLE if pattern not in deciding and pattern != ".git*"] == []
    assert {part for _, parts in TABLE for part in parts.split()} == PARTS.keys()


def test_the_list_of_the_ci_is_that_of_the_table() -> None:
    text = (ROOT / ".ci/run").read_text()
    for part in PARTS:
        assert f"part_{part.replace('-', '_')}()" in text, f"add the part {part} to .ci/run"


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("agent_memory/core/flows.py", {"storage", "faults", "s3-faults", "benchmarks"}),
        ("backends/agent_memory_s3/_client.py", {"storage", "s3-faults", "benchmarks"}),
        ("agent_memory/cli/app.py", {"storage"}),
        ("agent_memory/integrations/strands.py", {"frameworks"}),
        ("docs/s3.md", {"site"}),
        ("docs/evidence/parts.md", set()),
        ("a_new_folder/x", PARTS.keys()),
    ],
)
def test_the_parts_of_a_path(path: str, parts: set[str]) -> None:
    assert parts_of(path) == parts
