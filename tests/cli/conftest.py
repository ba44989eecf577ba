"""Fixtures that run the command line in this process, in a forked one, or as the installed script."""

from __future__ import annotations

import inspect
import os
import subprocess
import sysconfig
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_memory.cli import doctor, probes
from agent_memory.cli.app import app
from tests.cli.commands import seed
from tests.support import forked, sizes

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


@pytest.fixture(scope="session")
def script() -> str:
    """The installed console script."""
    return str(Path(sysconfig.get_path("scripts"), "agent-memory"))


@pytest.fixture
def spawn(script: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the console script to its end with `tests.support.forked.run`: in the short run in a forked process."""

    def spawn(*args: str, env: Mapping[str, str] = {}, **details: Any) -> subprocess.CompletedProcess[bytes]:
        return forked.run([script, *args], cwd=tmp_path, env={**os.environ, **env}, **details)

    return spawn


@pytest.fixture
def launch(
    spawn: Callable[..., subprocess.CompletedProcess[bytes]],
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the installed console script to its end, always with the start of an interpreter."""
    return partial(spawn, real=True)


@pytest.fixture
def quick_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the short run, doctor tries no second process, and does not go on replacing a file that readers read."""
    if not sizes.is_long:
        monkeypatch.setattr(probes, "_SECONDS_OF_REPLACING", 0.0)
        monkeypatch.setattr(doctor, "tried_in_two_processes", lambda *_: probes.Sight("yes", "not tried"))


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
