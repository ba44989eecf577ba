"""Filesystems of fsspec: what is found by looking, and what is remembered of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory_fsspec import FsspecBackend
from tests.backends.folding import FoldingFileSystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def _memory(filesystem: Any, root: Path) -> AgentMemory:
    return AgentMemory.open(FsspecBackend(filesystem, str(root), allow_single_writer=True))


@pytest.mark.parametrize("taken", ["notes/b.md", "Notes/A.md", "NOTES", "notes/a.md/below"])
@pytest.mark.parametrize("verb", ["write", "create", "append"])
def test_a_name_that_differs_by_case_alone_is_refused_where_case_is_folded(root: Path, taken: str, verb: str) -> None:
    _memory(FoldingFileSystem(), root).write("Notes/a.md", "x")
    memory = _memory(FoldingFileSystem(), root)  # has seen nothing yet
    with pytest.raises(FileAlreadyExistsError, match="by case alone"):
        getattr(memory, verb)(taken, "y")
    assert memory.capabilities.case_sensitive is False
    assert [entry.path for entry in memory.list()] == ["Notes/a.md"]
    assert memory.read("Notes/a.md") == "x"


@pytest.mark.parametrize("do", [AgentMemory.read, AgentMemory.stat, AgentMemory.delete], ids=["read", "stat", "delete"])
def test_a_file_has_one_name_where_case_is_folded(root: Path, do: Callable[[AgentMemory, str], object]) -> None:
    _memory(FoldingFileSystem(), root).write("Notes/a.md", "x")
    for missing in ("notes/a.md", "Notes/A.md"):
        memory = _memory(FoldingFileSystem(), root)
        assert memory.list("notes") == ()
        with pytest.raises(AgentMemoryFileNotFoundError):
            do(memory, missing)
        assert memory.read("Notes/a.md") == "x"


def test_a_freed_name_may_come_back_in_another_case(root: Path) -> None:
    memory = _memory(FoldingFileSystem(), root)
    for name in ("Dir/File.md", "dir/file.md", "DIR/FILE.MD"):
        memory.write(name, name)
        assert [entry.path for entry in memory.list()] == [name]
        memory.delete(name)


def test_names_that_differ_by_case_are_two_files_elsewhere(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    for name in ("A.md", "a.md"):
        memory.write(name, name)
    assert memory.capabilities.case_sensitive is True
    assert [memory.read(name) for name in ("A.md", "a.md")] == ["A.md", "a.md"]


def test_a_directory_that_others_removed_is_made_again(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    memory.write("dir/deep/a.md", "x")
    shutil.rmtree(root / "dir")
    memory.write("dir/deep/b.md", "y")
    assert [entry.path for entry in memory.list()] == ["dir/deep/b.md"]


def test_a_directory_that_others_made_a_file_stays_one(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    memory.write("dir/a.md", "x")
    shutil.rmtree(root / "dir")
    (root / "dir").write_text("theirs")
    with pytest.raises(FileAlreadyExistsError):
        memory.write("dir/b.md", "y")
    assert memory.read("dir") == "theirs"
