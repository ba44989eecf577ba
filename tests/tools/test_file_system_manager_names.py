"""The names that `FileSystemManager` accepts: Markdown files, nothing in ``.git``, and nothing outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    InvalidContentError,
    InvalidPathError,
    Operation,
    PathTraversalError,
    WriteResult,
    hookimpl,
)
from agent_memory.tools import FileSystemManager
from tests.tools.calls import everything, fill
from tests.tools.hostile import HUGE_TEXT

Handle = Callable[[str, Any], WriteResult]
IN_GIT = [
    ".git/a.md",
    ".git/hooks/pre-commit",
    ".GIT/a.md",
    ".gIt/a.md",
    "vendor/lib/.git/a.md",
    ".git/deep/er/a.md",
    "./.git/a.md",
    "docs//.Git//a.md",
    "GIT~1/a.md",
    ".git",
    ".g\u200cit/a.md",
]


@pytest.fixture
def manager(memory: AgentMemory) -> FileSystemManager:
    return FileSystemManager(memory)


def both(manager: FileSystemManager) -> list[Handle]:
    return [manager.handle_create, manager.handle_append]


def test_no_name_in_a_git_directory_is_accepted_at_any_depth_or_case(
    manager: FileSystemManager, memory: AgentMemory
) -> None:
    before = everything(fill(memory, {".git/a.md": "a", "vendor/lib/.git/a.md": "a"}))
    for handle in both(manager):
        for path in IN_GIT:
            with pytest.raises(InvalidPathError) as refused:
                handle(path, "x")
            assert refused.value.rule == "git", path
    assert everything(memory) == before


def test_names_that_only_resemble_a_git_directory_are_accepted(manager: FileSystemManager, memory: AgentMemory) -> None:
    names = [".gitignore.md", ".github/a.md", "git/a.md", "a.git/a.md", "git~2/a.md", ".git.md"]
    for name in names:
        manager.handle_create(name, "x")
    assert sorted(everything(memory)) == sorted(names)


def test_a_name_with_another_suffix_is_refused_with_a_valid_suggestion(
    manager: FileSystemManager, memory: AgentMemory
) -> None:
    for path in ("notes.txt", "notes", "docs/notes.md.exe", "md", "docs/.mdx", "notes.md~"):
        with pytest.raises(InvalidPathError, match=r"names must end in \.md; try ") as refused:
            manager.handle_create(path, "x")
        with pytest.raises(InvalidPathError):
            manager.handle_append(path, "x")
        assert refused.value.rule == "suffix"
        assert everything(memory) == {}
        manager.handle_create(refused.value.suggestion, "x")
        memory.delete(refused.value.suggestion)


def test_suffixes_are_accepted_in_any_case(manager: FileSystemManager, memory: AgentMemory) -> None:
    for name in ("README.MD", "Notes.Md"):
        manager.handle_create(name, "x")
        manager.handle_append(name, "y")
    assert everything(memory) == {"README.MD": b"x\n\ny", "Notes.Md": b"x\n\ny"}


@pytest.mark.parametrize(
    "path", [None, 3, b"a.md", ["a.md"], "", "a.md/", "a\x00.md", "\ud800.md", pytest.param(HUGE_TEXT, id="huge")]
)
def test_an_invalid_path_raises_an_invalid_path_error(path: Any) -> None:
    memory = AgentMemory.open("memory://")
    for handle in both(FileSystemManager(memory)):
        with pytest.raises(InvalidPathError):
            handle(path, "x")
    assert everything(memory) == {}


@pytest.mark.parametrize("content", [None, 3, ["x"], "\ud800"])
def test_content_that_is_no_text_raises_an_invalid_content_error(content: Any) -> None:
    memory = fill(AgentMemory.open("memory://"), {"a.md": "a"})
    with pytest.raises(InvalidContentError):
        FileSystemManager(memory).handle_create("new.md", content)
    with pytest.raises(InvalidContentError):
        FileSystemManager(memory).handle_append("a.md", content)
    assert everything(memory) == {"a.md": b"a"}


def test_the_caller_can_allow_other_suffixes() -> None:
    manager = FileSystemManager(AgentMemory.open("memory://"), suffixes=[".md", ".Txt"])
    manager.handle_create("a.txt", "x")
    manager.handle_append("a.txt", "x")
    with pytest.raises(InvalidPathError, match=r"names must end in \.md, \.txt; try 'a\.py\.md'"):
        manager.handle_create("a.py", "x")


@pytest.mark.parametrize("suffixes", [".md", ["md"], [".md", ""], [], ()])
def test_invalid_suffixes_are_refused(suffixes: Any) -> None:
    with pytest.raises(ValueError, match="each with its dot"):
        FileSystemManager(AgentMemory.open("memory://"), suffixes=suffixes)


class Recorder:
    """Record every operation and every refused name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        self.seen.append(f"{operation.kind} {operation.path}")

    @hookimpl
    def agent_memory_key_rejected(self, reason: str) -> None:
        self.seen.append(f"refused: {reason}")


def test_an_append_is_one_operation_that_checks_itself_whether_the_file_exists() -> None:
    recorder = Recorder()
    manager = FileSystemManager(AgentMemory.open("memory://", plugins=[recorder]))
    with pytest.raises(FileNotFoundError):
        manager.handle_append("a.md", "x")
    manager.handle_create("a.md", "x")
    manager.handle_append("a.md", "x")
    assert recorder.seen == ["append a.md", "create a.md", "append a.md"]


def test_an_escape_attempt_is_reported_to_the_hooks_for_any_suffix() -> None:
    recorder = Recorder()
    manager = FileSystemManager(AgentMemory.open("memory://", plugins=[recorder]))
    for path in ("../a.md", "../a.txt", "../.git/a.md"):
        with pytest.raises(PathTraversalError):
            manager.handle_create(path, "x")
    assert recorder.seen == ["refused: parent"] * 3
