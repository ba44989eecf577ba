"""Extreme trees: huge sparse files, trees deeper than any path, and names that are not UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryService,
    FileTooLargeError,
)
from agent_memory.key import MAX_SEGMENTS
from agent_memory.reading.reader import Reader
from tests.backends.local.planted import page_of, watched

_GIANT = 64 << 30
_DEPTH = 3000
_MEMORY = 1 << 30


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    with watched(60):
        yield


@pytest.fixture
def giant(root: Path, memory: AgentMemory) -> Path:  # noqa: ARG001 - creates the root
    path = root / "giant.log"
    path.touch(0o600)
    os.truncate(path, _GIANT)
    return path


def test_a_huge_sparse_file_is_listed_and_appended_to_but_not_read_whole(memory: AgentMemory, giant: Path) -> None:
    assert memory.stat("giant.log").size == _GIANT
    assert [entry.size for entry in memory.list()] == [_GIANT, 4]
    assert memory.append("giant.log", "last line\n", separator="\n").size == _GIANT + 11
    assert giant.stat().st_blocks * 512 < 1 << 20
    refused: list[Callable[[], object]] = [
        lambda: memory.read("giant.log"),
        lambda: memory.read_bytes("giant.log"),
        lambda: memory.edit("giant.log", str.upper),
        lambda: memory.write("giant.log", "x", when=SHA256("0" * 64)),
        lambda: memory.append("giant.log", "x", when=SHA256("0" * 64)),
        lambda: memory.delete("giant.log", when=SHA256("0" * 64)),
    ]
    for action in refused:
        with pytest.raises(FileTooLargeError):
            action()
    assert memory.stat("giant.log").size == _GIANT + 11
    memory.write("giant.log", "small")
    assert memory.read("giant.log") == "small"


def test_the_tail_of_a_huge_sparse_file_can_be_scanned(memory: AgentMemory, giant: Path) -> None:
    async def work(reader: Reader) -> bytes:
        tail = await reader.read_tail(5)
        assert await reader.read(0, 5) == b"\0" * 5
        return tail

    with giant.open("ab") as file:
        file.write(b"tail\n")
    assert memory.scan("giant.log", work) == b"tail\n"


def test_a_huge_sparse_file_is_renamed_in_one_step_and_deleted(memory: AgentMemory, giant: Path) -> None:
    memory.rename("giant.log", "moved.log")
    assert memory.stat("moved.log").size == _GIANT
    memory.delete("moved.log")
    assert [str(entry) for entry in memory.list()] == ["kept.md"]
    assert not giant.exists()


CONDITIONAL = """
import resource, sys
from agent_memory import ConflictError, FileTooLargeError
from agent_memory.backend import ETag
from agent_memory.key import Key
from agent_memory_local import LocalBackend
backend, key, version = LocalBackend(sys.argv[1]), Key.tree().join("giant.log"), ETag("sha256:" + "0" * 64)
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
actions = {
    "write": lambda: backend.write(key, b"x", when=version),
    "delete": lambda: backend.delete(key, when=version),
    "read": lambda: backend.read(key, 0, 5, when=version),
}
try:
    actions[sys.argv[3]]()
except (ConflictError, FileTooLargeError) as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process")
@pytest.mark.usefixtures("giant")
@pytest.mark.parametrize("verb", ["write", "delete", "read"])
def test_a_condition_on_a_huge_file_is_checked_without_loading_it_into_memory(root: Path, verb: str) -> None:
    command = [sys.executable, "-c", CONDITIONAL, str(root), str(_MEMORY), verb]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=40)
    assert ran.stdout.strip() in ("ConflictError", "FileTooLargeError"), ran.stderr[-300:]


@pytest.fixture
def deep(root: Path, memory: AgentMemory) -> Iterator[Path]:  # noqa: ARG001 - creates the root
    """A directory with 3,000 nested directories, and a file in the innermost one."""
    top = root / "deep"
    top.mkdir()
    with _walked(top, _DEPTH, make=True) as last:
        os.close(os.open("last.md", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=last))
    yield top
    for path in (top, root / "moved"):
        if path.exists():
            _flatten(path)  # pytest removes the tree recursively


@contextmanager
def _walked(top: Path, depth: int, make: bool = False) -> Iterator[int]:
    """The directory ``depth`` levels down; its path exceeds the system's limit."""
    current = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        if make:
            os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = below
    with ExitStack() as stack:
        stack.callback(os.close, current)
        yield current


def _flatten(top: Path) -> None:
    while (top / "d" / "d").exists():
        (top / "d" / "d").rename(top / "up")
        (top / "d").rmdir()
        (top / "up").rename(top / "d")


def _whole(top: Path) -> bool:
    with _walked(top, _DEPTH) as last:
        with os.scandir(last) as found:
            return [entry.name for entry in found] == ["last.md"]


def test_a_directory_deeper_than_any_key_is_skipped_and_counted(
    memory: AgentMemory, root: Path, deep: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory.write("deep/kept.md", "kept")
    assert [str(entry) for entry in memory.list()] == ["deep/kept.md", "kept.md"]
    assert "skipped=1" in caplog.text
    assert page_of(root).skipped == 1
    assert [str(entry) for entry in memory.list(recursive=False)] == ["deep", "kept.md"]
    assert memory.list("/".join(["deep", *"d" * (MAX_SEGMENTS - 1)])) == ()
    assert memory.list("deep/d", recursive=False) == ()
    assert _whole(deep)


@pytest.mark.long
def test_deleting_a_tree_removes_its_files_and_leaves_entries_that_are_too_deep(
    memory: AgentMemory, root: Path, deep: Path
) -> None:
    memory.write("deep/kept.md", "kept")
    memory.write("deep/d/d/kept.md", "kept")
    result = memory.delete_tree("deep")
    assert (result.files, result.skipped) == (2, 1)
    assert memory.list("deep") == ()
    assert _whole(deep)
    assert memory.delete_tree("").files == 1
    assert page_of(root).entries == ()
    assert _whole(deep)


@pytest.mark.parametrize("move", ["rename", pytest.param("copy", marks=pytest.mark.long)])
def test_moving_a_tree_loses_no_entry_that_is_too_deep(memory: AgentMemory, root: Path, deep: Path, move: str) -> None:
    memory.write("deep/kept.md", "kept")
    getattr(memory, move)("deep", "moved")
    assert memory.read("moved/kept.md") == "kept"
    assert _whole(deep if deep.exists() else root / "moved")
    assert deep.exists() or move == "rename"


@pytest.mark.long
def test_an_agent_whose_tree_is_too_deep_is_listed_like_any_other(root: Path, deep: Path) -> None:
    service = AgentMemoryService(root)
    service.write_memory_file("a", "kept.md", "kept")
    deep.rename(root / "agent_memory" / "a" / "deep")
    try:
        assert service.agent_ids() == ("a",)
        assert [str(entry) for entry in service.list_memory_files("a")] == ["kept.md"]
        assert service.agent("a").delete_tree("").skipped == 1
    finally:
        (root / "agent_memory" / "a" / "deep").rename(deep)


FOREIGN = [b"caf\xe9.md", b"\xff", b"e\xcc\x81.md", b"a:b.md", b"trailing. "]


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
@pytest.mark.parametrize("move", ["delete_tree", "rename", "copy"])
def test_a_directory_that_no_key_can_name_is_kept_with_its_content(
    memory: AgentMemory, root: Path, name: bytes, move: str
) -> None:
    memory.write("d/ours.md", "ours")
    theirs = root / "d" / os.fsdecode(name)
    theirs.mkdir()
    (theirs / "theirs.md").write_text("theirs")
    assert [str(entry) for entry in memory.list("d")] == ["d/ours.md"]
    assert page_of(root).skipped == 1
    result = memory.delete_tree("d") if move == "delete_tree" else getattr(memory, move)("d", "new")
    assert (result.files, result.skipped) == (1, 1)
    kept = [path for path in root.rglob("theirs.md") if path.is_file()]
    assert [path.read_text() for path in kept] == ["theirs"]
    assert kept[0].parent == theirs or move == "rename"
    assert memory.exists("new/ours.md") == (move != "delete_tree")
