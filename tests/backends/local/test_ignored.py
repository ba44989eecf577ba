"""Git never stages the package's own data of a store in a project."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_memory import AgentMemory, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.backend import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.tools._project import project_memories
from agent_memory_local import LocalBackend
from tests.support.outside import SECRET

USES: dict[str, Callable[[Path], AgentMemory]] = {
    "receipts": AgentMemory.open,
    "versions": lambda root: AgentMemory.open(root, versions=VersionLimits()),
    "audit": lambda root: AgentMemory.open(root, plugins=[AuditPlugin(LogLocation.below(LocalBackend(root)))]),
    "process": lambda root: AgentMemory.open(root, storage_options={"durability": "process"}, versions=VersionLimits()),
}


def git(directory: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("use", USES)
def test_git_stages_only_the_files_of_the_memory(tmp_path: Path, use: str) -> None:
    git(tmp_path, "init", "-q")
    root = tmp_path / ".claude" / "memories"
    with USES[use](root) as memory:
        memory.write("a.md", SECRET)
        memory.once("k").write("a.md", "x")
    git(tmp_path, "add", "-A")
    assert git(tmp_path, "ls-files").split() == [".claude/memories/a.md"]
    assert (root / ".agent-memory" / ".gitignore").read_text() == "*\n"


def test_the_memory_of_a_project_is_ignored_too(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    root, options = project_memories(tmp_path, "own")
    with AgentMemory.open(root, storage_options=options, versions=VersionLimits()) as memory:
        memory.write("a.md", SECRET)
        memory.write("a.md", "x")
    git(tmp_path, "add", "-A")
    assert git(tmp_path, "ls-files").split() == [".claude/memories/a.md"]


@pytest.mark.parametrize("theirs", ["", "!*\n", "audit/\n"])
def test_a_users_file_is_not_replaced(tmp_path: Path, theirs: str) -> None:
    ignore = tmp_path / "root" / ".agent-memory" / ".gitignore"
    ignore.parent.mkdir(parents=True)
    ignore.write_text(theirs)
    with USES["versions"](tmp_path / "root") as memory:
        memory.write("a.md", "x")
        memory.write("a.md", "y")
    assert ignore.read_text() == theirs


def test_a_store_without_own_data_has_no_such_file(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path / "root") as memory:
        memory.write("a.md", "x")
        memory.list()
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["a.md"]


def test_the_directory_of_an_older_store_gets_it_with_the_next_file(tmp_path: Path) -> None:
    with USES["versions"](tmp_path / "root") as memory:
        memory.write("a.md", "x")
    ignore = tmp_path / "root" / ".agent-memory" / ".gitignore"
    ignore.unlink()
    with AgentMemory.open(tmp_path / "root") as memory:
        memory.write("a.md", "y")
    assert ignore.read_text() == "*\n"


def test_a_link_in_its_place_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    own = tmp_path / "root" / ".agent-memory"
    own.mkdir(parents=True)
    (own / ".gitignore").symlink_to(tmp_path / "outside")
    LocalBackend(tmp_path / "root").write(Key.internal("receipts/x"), b"x")
    assert not (tmp_path / "outside").exists()
    assert (own / ".gitignore").is_symlink()


def test_of_racing_writers_each_finds_the_whole_file(tmp_path: Path) -> None:
    for _ in range(20):
        root = tmp_path / "root"
        start = threading.Barrier(4)

        def write(name: int, root: Path = root, start: threading.Barrier = start) -> bytes:
            backend = LocalBackend(root)
            start.wait()
            backend.write(Key.internal(f"receipts/{name}"), b"x")
            return (root / ".agent-memory" / ".gitignore").read_bytes()

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(write, range(4))) == [b"*\n"] * 4
        assert {path.name for path in (root / ".agent-memory").iterdir()} == {".gitignore", "receipts"}
        shutil.rmtree(root)
