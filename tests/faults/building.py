"""Build the C programs of the fault tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

NO_COMPILER: Final = "needs a C compiler: install gcc and libc6-dev (Debian), or their like"


def build(source: Path, target: Path, *flags: str) -> Path:
    """Compile a C source with the system's compiler; a warning fails the test.

    Without a compiler the test is skipped, and the end of the run says so; in CI it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_COMPILER)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source), *flags]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, f"{source.name} does not build (is libc6-dev there?):\n{built.stderr}"
    return target
