"""A directory without files, left by a writer that died after ``mkdir``, is not listed and blocks no name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError, FileAlreadyExistsError

HOLLOWS: dict[str, list[str]] = {
    "empty": [],
    "directories all the way": ["a/b/c/", "a/d/"],
    "a dead writer's file": ["a/.0123456789abcdef.agent-memory-tmp"],
}
TAKING: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda m: m.write("left", "x"),
    "create": lambda m: m.create("left", "x"),
    "append": lambda m: m.append("left", "x"),
    "rename a file": lambda m: m.rename("kept.md", "left"),
    "rename a directory": lambda m: m.rename("dir", "left"),
    "copy": lambda m: m.copy("kept.md", "left"),
}


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    memory = AgentMemory.open(f"{tmp_path.as_uri()}/root?durability=process")
    memory.write("kept.md", "x")
    memory.write("dir/kept.md", "x")
    return memory


def leave(directory: Path, names: list[str]) -> None:
    directory.mkdir()
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text("half")


@pytest.mark.parametrize("take", TAKING.values(), ids=TAKING)
@pytest.mark.parametrize("names", HOLLOWS.values(), ids=HOLLOWS)
def test_the_name_of_an_empty_directory_is_free(
    memory: AgentMemory, tmp_path: Path, take: Callable[[AgentMemory], object], names: list[str]
) -> None:
    leave(tmp_path / "root" / "left", names)
    assert [entry.path for entry in memory.list(recursive=False)] == ["dir", "kept.md"]
    take(memory)
    assert [entry.path for entry in memory.list() if entry.path.startswith("left")] in (["left"], ["left/kept.md"])


@pytest.mark.parametrize("names", HOLLOWS.values(), ids=HOLLOWS)
def test_read_delete_and_rename_of_an_empty_directory_raise_not_found(
    memory: AgentMemory, tmp_path: Path, names: list[str]
) -> None:
    leave(tmp_path / "root" / "left", names)
    for call in (memory.read, memory.delete, memory.delete_tree, lambda path: memory.rename(path, "new")):
        with pytest.raises(AgentMemoryFileNotFoundError):
            call("left")


def test_a_directory_with_a_foreign_file_blocks_its_name(memory: AgentMemory, tmp_path: Path) -> None:
    leave(tmp_path / "root" / "left", ["a/theirs: no key names it"])
    with pytest.raises(FileAlreadyExistsError):
        memory.write("left", "x")
    assert (tmp_path / "root" / "left" / "a" / "theirs: no key names it").read_text() == "half"
