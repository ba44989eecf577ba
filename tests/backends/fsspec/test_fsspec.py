"""Filesystems of fsspec: how the backend detects their properties, and what it caches."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    FileAlreadyExistsError,
    ReadError,
    WriteError,
)
from agent_memory_fsspec import FsspecBackend
from tests.backends.fsspec.folding import AsciiFileSystem, DecomposingFileSystem, FoldingFileSystem, UpperCaseFileSystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def _memory(filesystem: Any, root: Path) -> AgentMemory:
    return AgentMemory.open(FsspecBackend(filesystem, str(root), allow_single_writer=True))


@pytest.mark.parametrize("taken", ["notes/b.md", "Notes/A.md", "NOTES", "notes/a.md/below"])
@pytest.mark.parametrize("verb", ["write", "create", "append"])
def test_a_case_folding_disk_refuses_a_name_that_differs_by_case_alone(root: Path, taken: str, verb: str) -> None:
    _memory(FoldingFileSystem(), root).write("Notes/a.md", "x")
    memory = _memory(FoldingFileSystem(), root)  # has no cache yet
    with pytest.raises(FileAlreadyExistsError, match="only by case"):
        getattr(memory, verb)(taken, "y")
    assert memory.capabilities.case_sensitive is False
    assert [entry.path for entry in memory.list()] == ["Notes/a.md"]
    assert memory.read("Notes/a.md") == "x"


@pytest.mark.parametrize("do", [AgentMemory.read, AgentMemory.stat, AgentMemory.delete], ids=["read", "stat", "delete"])
def test_a_case_folding_disk_finds_a_file_only_by_its_exact_name(
    root: Path, do: Callable[[AgentMemory, str], object]
) -> None:
    _memory(FoldingFileSystem(), root).write("Notes/a.md", "x")
    for missing in ("notes/a.md", "Notes/A.md"):
        memory = _memory(FoldingFileSystem(), root)
        assert memory.list("notes") == ()
        with pytest.raises(AgentMemoryFileNotFoundError):
            do(memory, missing)
        assert memory.read("Notes/a.md") == "x"


def test_a_deleted_name_may_be_reused_in_another_case(root: Path) -> None:
    memory = _memory(FoldingFileSystem(), root)
    for name in ("Dir/File.md", "dir/file.md", "DIR/FILE.MD"):
        memory.write(name, name)
        assert [entry.path for entry in memory.list()] == [name]
        memory.delete(name)


@pytest.mark.parametrize(
    ("there", "other"),
    [
        ("TODO", "todo"),
        ("todo.md", "TODO.MD"),
        ("NOTES/a.md", "notes/a.md"),
        ("Notes/2026/01", "notes/2026/01"),  # the first letter is two directories up
        ("日記/Été", "日記/été"),
    ],
)
@pytest.mark.parametrize("filesystem", [FoldingFileSystem, DecomposingFileSystem])
def test_case_folding_is_detected_even_if_the_first_looked_up_name_differs_by_case(
    root: Path, filesystem: Any, there: str, other: str
) -> None:
    _memory(filesystem(), root).write(there, "x")
    for do in (AgentMemory.read, AgentMemory.delete):
        with pytest.raises(AgentMemoryFileNotFoundError):
            do(_memory(filesystem(), root), other)
    with pytest.raises(FileAlreadyExistsError):
        _memory(filesystem(), root).write(other, "y")
    assert _memory(filesystem(), root).read(there) == "x"


@pytest.mark.parametrize("filesystem", [UpperCaseFileSystem, AsciiFileSystem, DecomposingFileSystem])
@pytest.mark.parametrize("first", ["Straße.md", "Café.md", "ŉ.md", "2026", "ﬁ/1"])
def test_case_folding_is_detected_for_any_first_name(root: Path, filesystem: Any, first: str) -> None:
    memory = _memory(filesystem(), root)
    memory.write(first, "first")
    memory.write("A.md", "x")
    with pytest.raises(FileAlreadyExistsError):
        memory.write("a.md", "y")
    assert memory.read(first) == "first"


def test_a_name_is_stored_even_if_its_upper_case_form_is_too_long(root: Path) -> None:
    memory, name = _memory(LocalFileSystem(), root), "ΐ" * 60  # 120 bytes, but 360 in upper case
    memory.write(name, "x")
    assert memory.read(name) == "x"


def test_agents_whose_ids_differ_by_case_share_no_file(root: Path) -> None:
    service = AgentMemoryService(FsspecBackend(FoldingFileSystem(), str(root), allow_single_writer=True))
    service.agent("Bob").write("a.md", "Bob's")
    for name in ("a.md", "b.md"):
        with pytest.raises(FileAlreadyExistsError):
            service.agent("bob").write(name, "bob's")
    assert service.agent("bob").list() == ()
    service.agent("Bob").delete("a.md")
    service.agent("bob").write("b.md", "bob's")
    assert (service.agent("Bob").list(), service.agent("bob").read("b.md")) == ((), "bob's")


def test_an_empty_directory_of_another_case_blocks_no_write(root: Path) -> None:
    (root / "Notes" / "Deep").mkdir(parents=True)
    memory = _memory(FoldingFileSystem(), root)
    memory.write("A.md", "x")
    memory.write("notes/a.md", "y")
    assert [entry.path for entry in memory.list()] == ["A.md", "notes/a.md"]


def test_the_backend_notices_when_another_program_changes_the_case_of_a_name(root: Path) -> None:
    memory = _memory(FoldingFileSystem(), root)
    memory.write("Dir/A.md", "x")
    (root / "Dir").rename(root / "dir")
    for name in ("Dir/A.md", "Dir/B.md"):
        with pytest.raises(FileAlreadyExistsError):
            memory.write(name, "y")
    assert memory.read("dir/A.md") == "x"


def test_a_case_sensitive_disk_keeps_names_that_differ_by_case_as_two_files(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    for name in ("A.md", "a.md"):
        memory.write(name, name)
    assert memory.capabilities.case_sensitive is True
    assert [memory.read(name) for name in ("A.md", "a.md")] == ["A.md", "a.md"]


def test_a_directory_removed_by_another_program_is_created_again(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    memory.write("dir/deep/a.md", "x")
    shutil.rmtree(root / "dir")
    memory.write("dir/deep/b.md", "y")
    assert [entry.path for entry in memory.list()] == ["dir/deep/b.md"]


def test_a_file_that_replaced_a_directory_is_not_overwritten(root: Path) -> None:
    memory = _memory(LocalFileSystem(), root)
    memory.write("dir/a.md", "x")
    shutil.rmtree(root / "dir")
    (root / "dir").write_text("theirs")
    with pytest.raises(FileAlreadyExistsError):
        memory.write("dir/b.md", "y")
    assert memory.read("dir") == "theirs"


class _FailingFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A failing network: upper-case look-ups and listings fail, and ``rmdir`` removes a whole tree."""

    listing = False

    def info(self, path: Any, **kwargs: Any) -> Any:
        if os.fspath(path).endswith("A.MD"):
            raise TimeoutError
        return super().info(path, **kwargs)

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        if not self.listing:
            raise ConnectionError
        return super().ls(path, detail=detail, **kwargs)

    def rmdir(self, path: str) -> None:
        shutil.rmtree(path)


def test_a_completed_change_succeeds_although_a_later_look_up_fails(root: Path) -> None:
    filesystem = _FailingFileSystem()
    memory = _memory(filesystem, root)
    memory.create("dir/a.md", "x")
    memory.create("dir/b.md", "y")
    memory.delete("dir/a.md")
    with pytest.raises(WriteError):
        memory.write("dir", "z")  # the backend cannot tell whether the directory holds files
    filesystem.listing = True
    assert [entry.path for entry in memory.list()] == ["dir/b.md"]


def test_an_unreachable_server_raises_a_read_error_instead_of_not_found() -> None:
    memory = AgentMemory.open("http://127.0.0.1:1/x")
    for do in (memory.read, memory.stat, memory.exists, memory.list):
        with pytest.raises(ReadError):
            do("a.md")


def test_the_files_of_a_web_server_are_read_and_listed(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("x")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with AgentMemory.open(f"http://127.0.0.1:{server.server_port}") as memory:
            assert memory.read("notes/a.md") == "x"
            assert [entry.path for entry in memory.list("notes")] == ["notes/a.md"]
            with pytest.raises(AgentMemoryFileNotFoundError):
                memory.read("notes/b.md")
            with pytest.raises(AgentMemoryError):
                memory.write("notes/b.md", "y")
        server.shutdown()


@pytest.mark.parametrize("theirs", [None, "!salts/\n"])
def test_git_ignores_the_packages_own_data(root: Path, theirs: str | None) -> None:
    if theirs:
        (root / ".agent-memory").mkdir(parents=True)
        (root / ".agent-memory" / ".gitignore").write_text(theirs)
    memory = _memory(LocalFileSystem(), root)
    memory.write("a.md", "x")
    assert (root / ".agent-memory").exists() == bool(theirs)
    for number in range(2):
        memory.once(f"{number}").append("a.md", "x")
    assert (root / ".agent-memory" / ".gitignore").read_text() == (theirs or "*\n")
    assert (root / ".agent-memory" / "store.json").exists()


def test_names_that_a_filesystem_decomposes_are_listed_as_they_were_given(root: Path) -> None:
    memory = AgentMemory.open(FsspecBackend(DecomposingFileSystem(), str(root)))
    memory.write("caf\u00e9/r\u00e9sum\u00e9.md", "x")
    assert [entry.path for entry in memory.list()] == ["caf\u00e9/r\u00e9sum\u00e9.md"]
    assert [entry.path for entry in memory.list("caf\u00e9")] == ["caf\u00e9/r\u00e9sum\u00e9.md"]
    assert memory.delete_tree("").files == 1
