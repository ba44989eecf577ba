"""A third party's backend and plugin, installed with this project's wheel in a fresh environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

with_wheels = pytest.mark.long  # builds three wheels and an environment
EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "agent-memory-sqlite"
PLUGIN = EXAMPLES / "agent-memory-office-hours"
PAGE = EXAMPLES.parent / "CONTRIBUTING.md"
OPTIONAL = (
    "the backend goes file by file",
    "the backend does not promise that nothing is kept",
    "the backend writes no file in parts",
    "the backend copies and deletes",
    "the backend stores no origins",
)


def _run(*command: str | Path, cwd: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def test_the_example_has_as_many_lines_as_the_page_for_contributors_says() -> None:
    lines = len((EXAMPLE / "agent_memory_sqlite.py").read_text().splitlines())
    assert f"it is a whole backend of {lines} lines" in PAGE.read_text()
    assert lines <= 60


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with this project's wheel and those of the examples, without sources."""
    directory = tmp_path_factory.mktemp("third-party")
    build: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory]
    for example in (EXAMPLE, PLUGIN):
        _run(*build, example, cwd=directory)
    _run(sys.executable, "-m", "venv", directory / "venv", cwd=directory)
    interpreter = directory / "venv" / "bin" / "python"
    install: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*install, f"{wheel}[testing,cli]", *directory.glob("*.whl"), cwd=directory)
    return interpreter


@with_wheels
def test_the_example_keeps_the_contract(python: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)
    output = _run(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    passed = int(output.strip().splitlines()[-1].split(" passed")[0])
    assert passed > 200
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert [line for line in skipped if not line.endswith(OPTIONAL)] == []


@with_wheels
def test_the_example_backend_opens_by_its_scheme(python: Path, tmp_path: Path) -> None:
    code = (
        "from agent_memory import AgentMemoryService\n"
        "service = AgentMemoryService('sqlite://memory.db')\n"
        "service.append_to_memory_file('agent1', 'notes/today.md', 'hello')\n"
        "print(*service.list_memory_files('agent1'), service.read_memory_file('agent1', 'notes/today.md'))\n"
    )
    assert _run(python, "-c", code, cwd=tmp_path) == "notes/today.md hello\n"


@with_wheels
def test_the_example_plugin_passes_its_tests(python: Path, tmp_path: Path) -> None:
    shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    shutil.copy(PLUGIN / "pyproject.toml", tmp_path)
    assert "2 passed" in _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=tmp_path)


@with_wheels
def test_the_example_plugin_is_enabled_by_its_name(python: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[plugins.office-hours]\nopens = 0\ncloses = 1\nalways = ["ops"]\n')
    command: list[str | Path] = [python, "-m", "agent_memory", "--json", "--config", "my.toml", "plugins"]
    found = {row["name"]: row for row in json.loads(_run(*command, cwd=tmp_path))["plugins"]}
    assert found["office-hours"] == {
        "name": "office-hours",
        "package": "agent-memory-office-hours 0.1.0",
        "enabled": True,
        "hooks": ["agent_memory_after_operation", "agent_memory_before_operation"],
        "error": None,
    }
    assert found["redaction"]["enabled"] is False
