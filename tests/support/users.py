"""Programs that run as another user of this machine; only root can start them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """
import json, os, sys
from agent_memory import *
from agent_memory_local import LocalBackend
with AgentMemory.open("memory://", versions=VersionLimits()) as warm:
    warm.write("a.md", "x")
    warm.write("a.md", "y")
root, user, groups = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
with AgentMemory.open(os.path.join(root, "warm")) as warm:
    warm.edit("a.md", str.upper)
os.setgroups(groups[1:]); os.setgid(groups[0]); os.setuid(user)
def found():
"""


@contextmanager
def open_directory() -> Iterator[Path]:
    """A new directory that every user may change; pytest's own, run as root, are private."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def as_user(root: Path, body: str, *, user: int, groups: tuple[int, ...]) -> Any:
    """Run a function's body as a user with a primary group and further groups; return its result.

    The body has ``root`` and the names of `agent_memory`. What it needs is imported before the change of user, because
    the interpreter's files may be private to root.
    """
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    (root / "warm").mkdir()
    (root / "warm" / "a.md").write_text("x")
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = subprocess.run(
        [sys.executable, "-c", f"{_PROGRAM}{lines}print(json.dumps(found()))", root, str(user), json.dumps(groups)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    shutil.rmtree(root / "warm")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
