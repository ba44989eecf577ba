"""Fixtures that run the command line in this process or as the installed script."""

from __future__ import annotations

import inspect
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_memory.cli.app import app
from tests.cli.commands import seed

_VARIABLES = (
    "AGENT_MEMORY_URL", "AGENT_MEMORY_STORAGE_OPTIONS", "AGENT_MEMORY_CONFIG", "AGENT_MEMORY_PLUGINS", "VISUAL",
    "EDITOR",
)  # fmt: skip
# Before click 8.2 the runner mixes stdout and stderr by default.
_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command line in this process, in a new directory; it may raise only an exit."""

    def run(*args: str, given: bytes | str | None = None) -> Result:
        result = CliRunner(**_APART).invoke(app, args, input=given)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def script() -> str:
    """The installed console script."""
    return str(Path(sysconfig.get_path("scripts"), "agent-memory"))


@pytest.fixture
def spawn(script: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the installed console script to its end."""

    def spawn(*args: str, given: bytes = b"", **details: Any) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, **details.pop("env", {})}
        return subprocess.run(
            [script, *args], input=given, capture_output=True, cwd=tmp_path, env=environment, check=False, **details
        )

    return spawn


@pytest.fixture
def seeded(tmp_path: Path) -> None:
    """The store ``seed``, which `tests.cli.commands.done` copies, and a host folder."""
    seed(tmp_path)


@pytest.fixture
def empty_store(tmp_path: Path) -> Path:
    """The default store, existing but empty."""
    (tmp_path / ".agent-memory").mkdir()
    return tmp_path / ".agent-memory"


@pytest.fixture
def history(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write bytes as the default agent's history."""

    def put(data: bytes) -> Path:
        file = tmp_path / ".agent-memory/agent_memory/default/history.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    return put
