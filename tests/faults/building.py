"""Builds the C programs of the fault tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def build(source: Path, target: Path, *flags: str) -> Path:
    """Compile a C source with the system's compiler; no compiler, or a warning, fails the test."""
    if shutil.which("cc") is None:
        pytest.fail("needs a C compiler: install gcc")
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source), *flags]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, f"{source.name} does not build:\n{built.stderr}"
    return target
