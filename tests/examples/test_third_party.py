"""A stranger's backend, installed beside our wheel in an environment of its own, keeps the contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent-memory-sqlite"


def _run(*command: str | Path, cwd: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds our wheel and the example's, and no source."""
    directory = tmp_path_factory.mktemp("third-party")
    build: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory]
    _run(*build, EXAMPLE, cwd=directory)
    _run(sys.executable, "-m", "venv", directory / "venv", cwd=directory)
    interpreter = directory / "venv" / "bin" / "python"
    install: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*install, f"{wheel}[testing]", next(directory.glob("*.whl")), cwd=directory)
    return interpreter


@pytest.mark.long
def test_the_example_keeps_the_contract(python: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)
    output = _run(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    passed = int(output.strip().splitlines()[-1].split(" passed")[0])
    assert passed > 200
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert [line for line in skipped if not line.endswith("the backend goes file by file")] == []


def test_the_example_is_found_by_its_scheme(python: Path, tmp_path: Path) -> None:
    code = (
        "from agent_memory import AgentMemoryService\n"
        "service = AgentMemoryService('sqlite://memory.db')\n"
        "service.append_to_memory_file('agent1', 'notes/today.md', 'hello')\n"
        "print(*service.list_memory_files('agent1'), service.read_memory_file('agent1', 'notes/today.md'))\n"
    )
    assert _run(python, "-c", code, cwd=tmp_path) == "notes/today.md hello\n"


def test_the_example_is_small() -> None:
    assert len((EXAMPLE / "agent_memory_sqlite.py").read_text().splitlines()) < 60
    assert len((EXAMPLE / "tests" / "test_contract.py").read_text().splitlines()) < 20
