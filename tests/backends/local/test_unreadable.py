"""Directories without read permission: their siblings are listed, and they are counted as skipped.

The tests may run as root, which can open everything, so each one runs a program that drops its privileges.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NOBODY = 65534
_PROGRAM = """
import json, logging, os, sys
from agent_memory import *
from agent_memory.cli.inspection import agents_of, tree_of
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.tools import MemoryTool
root, unreadable = sys.argv[1:3]
records = []
class Kept(logging.Handler):
    def emit(self, record): records.append(record.getMessage())
logging.getLogger("agent_memory").addHandler(Kept())
def told(action):
    try:
        return action()
    except AgentMemoryError as error:
        return type(error).__name__
with AgentMemory.open("memory://") as warm:
    MemoryTool(warm).call({"command": "view", "path": "/memories"})
with AgentMemoryService("/tmp") as warm: told(warm.agent_ids)  # whatever is imported late
if os.getuid() == 0:
    os.setgroups([]); os.setgid(NOBODY); os.setuid(NOBODY)
def found():
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A root below a directory that every user can search; pytest's own, run as root, is private."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    yield base / "root"
    for path in base.rglob("*"):
        path.chmod(0o700)
    shutil.rmtree(base)


def without_privileges(root: Path, unreadable: Path, body: str, mode: int = 0) -> Any:
    """Run a function's body without privileges beside a directory with ``mode``; return its result."""
    unreadable.chmod(mode)
    if os.getuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    program = _PROGRAM.replace("NOBODY", str(_NOBODY)) + lines + "print(json.dumps(found()))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(root), str(unreadable)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def filled(root: Path, *files: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


@pytest.mark.parametrize("mode", [0, pytest.param(0o400, marks=pytest.mark.long)])
def test_an_agent_with_an_unreadable_directory_hides_no_other_agent(root: Path, mode: int) -> None:
    filled(root, "agent_memory/a/a.md", "agent_memory/b/b.md", "agent_memory/c/deep/c.md")
    body = """
service = AgentMemoryService(root)
listed = service.agent_ids()
log = [line for line in records if "skipped" in line]
inspected = agents_of(service._backend)
return [listed, len(log), inspected.ids, inspected.skipped, told(lambda: service.agent("b").read("b.md"))]
"""
    ids, logged, inspected, skipped, error = without_privileges(root, root / "agent_memory" / "b", body, mode)
    others = ["a", "b", "c"] if mode else ["a", "c"]  # the readable part holds a file
    assert (ids, inspected) == (others, others)
    assert (logged, skipped) == ((0, 0) if mode else (1, 1))
    assert error == "ReadError"


@pytest.mark.parametrize("mode", [0, pytest.param(0o400, marks=pytest.mark.long)])
def test_an_unreadable_directory_does_not_hide_its_siblings(root: Path, mode: int) -> None:
    filled(root, "a.md", "d/in.md", "e/b.md")
    body = """
memory = AgentMemory.open(root)
flat = [entry.path for entry in memory.list(recursive=False)]
every = [entry.path for entry in memory.list()]
log = [line for line in records if "skipped=1" in line]
view = MemoryTool(memory).call({"command": "view", "path": "/memories"})
named = told(lambda: memory.list("d")), told(lambda: memory.read("d/in.md")), told(lambda: memory.write("d/x.md", "x"))
copied = memory.copy("e", "n").files
return [flat, every, len(log), view.is_error, "e/b.md" in view.output, named, copied]
"""
    flat, every, logged, failed, shown, named, copied = without_privileges(root, root / "d", body, mode)
    assert every == ["a.md", "e/b.md"]
    assert flat == (["a.md", "d", "e"] if mode else ["a.md", "e"])
    assert logged == (1 if mode else 2)
    assert (failed, shown, copied) == (False, True, 1)
    assert named[1:] == ["ReadError", "WriteError"]
    assert named[0] == ([] if mode else "ReadError")


def test_deleting_a_tree_deletes_everything_except_unreadable_directories(root: Path) -> None:
    filled(root, "d/a.md", "d/closed/in.md", "d/e/b.md")
    body = """
memory = AgentMemory.open(root)
done = memory.delete_tree("d")
return [done.files, done.skipped, [entry.path for entry in memory.list()]]
"""
    assert without_privileges(root, root / "d" / "closed", body) == [2, 1, []]
    (root / "d" / "closed").chmod(0o700)
    assert [path.name for path in root.rglob("*.md")] == ["in.md"]


def test_renaming_a_directory_moves_everything_except_unreadable_directories(root: Path) -> None:
    filled(root, "d/a.md", "d/closed/in.md")
    body = """
memory = AgentMemory.open(root)
done = told(lambda: memory.rename("d", "n").skipped)
return [done, [entry.path for entry in memory.list()]]
"""
    assert without_privileges(root, root / "d" / "closed", body) == [1, ["n/a.md"]]


def test_an_audit_log_beside_an_unreadable_directory_is_written(root: Path) -> None:
    filled(root, "memory/a.md", "closed/in.md")
    body = """
with AuditPlugin(f"{root}/audit.jsonl", required=True) as audit:
    AgentMemory.open(f"{root}/memory", plugins=[audit]).write("a.md", "y")
return len(open(f"{root}/audit.jsonl").readlines()) > 0
"""
    assert without_privileges(root, root / "closed", body) is True
