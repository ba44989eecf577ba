"""What Windows has not: a process without fork and without the modules of Unix."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, multiprocessing, os, subprocess, sys, tempfile
import fsspec.implementations.memory, pluggy

sys.platform = "win32"
del os.register_at_fork
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # an import of it fails

from agent_memory import AgentMemory, UnsupportedOperationError

with AgentMemory.open("memory://") as memory:
    memory.append("notes.md", "x")
    print(memory.read("notes.md"))
try:
    AgentMemory.open("./memories")
except UnsupportedOperationError as error:
    print(error)
"""


def test_without_fork_memory_works_and_local_disk_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["x", "the local backend is not tested on Windows, so it does not run there"], (
        done.stderr
    )
