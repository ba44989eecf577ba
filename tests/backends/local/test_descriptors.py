"""Programs that close or copy this package's descriptors: a reused number is neither used nor closed."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from agent_memory.tools import MemoryTool
from agent_memory_local import LocalBackend
from agent_memory_local._descriptor import Descriptor
from tests.support.descriptors import open_files

SECRET = "of another program"
ACTIONS: dict[str, Callable[[AgentMemory], object]] = {
    "read": lambda memory: memory.read("dir/kept.md"),
    "list": lambda memory: memory.list(),
    "write": lambda memory: memory.write("dir/kept.md", "new"),
    "create": lambda memory: memory.create("dir/other.md", "new"),
    "append": lambda memory: memory.append("dir/kept.md", "new"),
    "edit": lambda memory: memory.edit("dir/kept.md", lambda text: text + "new"),
    "delete": lambda memory: memory.delete("dir/kept.md"),
    "rename": lambda memory: memory.rename("dir/kept.md", "dir/moved.md"),
    "rename a directory": lambda memory: memory.rename("dir", "moved"),
    "delete_tree": lambda memory: memory.delete_tree("dir"),
    "forget": lambda memory: memory.forget(""),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of another program, with the same names as the memory."""
    directory = tmp_path / "elsewhere"
    (directory / "dir").mkdir(parents=True)
    (directory / "dir" / "kept.md").write_text(SECRET)
    return directory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory.open(tmp_path / "root") as memory:
        memory.write("dir/kept.md", "ours")
        yield memory


def numbers_below(directory: Path) -> list[int]:
    """The open descriptors of a directory and of everything below it."""
    return [number for number, path in open_files().items() if path.is_relative_to(directory)]


def taken_over(root: Path, elsewhere: Path) -> list[int]:
    """Close every descriptor of a memory, like ``os.closerange``, and reuse each number for another directory."""
    numbers = numbers_below(root)
    assert numbers
    other = os.open(elsewhere, os.O_RDONLY)
    for number in numbers:
        os.dup2(other, number)
    os.close(other)
    return numbers


@pytest.mark.parametrize("action", ACTIONS)
def test_a_descriptor_number_reused_by_another_file_is_neither_used_nor_closed(
    memory: AgentMemory, tmp_path: Path, elsewhere: Path, action: str
) -> None:
    before = {path: path.is_file() and path.read_text() for path in elsewhere.rglob("*")}
    numbers = taken_over(tmp_path / "root", elsewhere)
    try:
        result = ACTIONS[action](memory)
        assert result != SECRET
        memory.write("after.md", "x")
        assert (tmp_path / "root" / "after.md").read_text() == "x"
        memory.close()
        gc.collect()
        assert [os.fstat(number).st_ino for number in numbers] == [elsewhere.stat().st_ino] * len(numbers)
    finally:
        for number in numbers:
            os.close(number)
    assert {path: path.is_file() and path.read_text() for path in elsewhere.rglob("*")} == before


@pytest.mark.parametrize("action", ACTIONS)
def test_descriptors_closed_by_the_program_are_opened_again(memory: AgentMemory, tmp_path: Path, action: str) -> None:
    for number in numbers_below(tmp_path / "root"):
        os.close(number)
    ACTIONS[action](memory)
    memory.write("after.md", "x")
    assert memory.read("after.md") == "x"


def test_a_descriptor_closes_only_its_own_file(tmp_path: Path) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    own = Descriptor(number)
    os.close(number)
    own.close()  # the number is unused: no error
    again = Descriptor(os.open(tmp_path, os.O_RDONLY))
    (tmp_path / "file").touch()
    other = os.open(tmp_path / "file", os.O_RDONLY)
    kept = os.dup2(other, again.number)
    del again
    os.fstat(kept)
    os.close(kept)
    os.close(other)


class Agent:
    """An object that a framework copies."""

    def __init__(self, tool: MemoryTool) -> None:
        self.tools = [tool]


@pytest.mark.parametrize("hold", [list, lambda tools: {"tools": tools}, lambda tools: Agent(tools[0])])
def test_copying_an_object_that_holds_a_tool_fails_and_does_not_change_the_tool(
    tmp_path: Path, hold: Callable[[list[MemoryTool]], object]
) -> None:
    root = tmp_path / "root"
    memory = AgentMemory.open(LocalBackend(root))
    memory.write("kept.md", "ours")
    holder = hold([MemoryTool(memory)])
    before = numbers_below(root)
    for _ in range(3):
        with pytest.raises(TypeError, match="create a new one"):
            copy.deepcopy(holder)
        gc.collect()
    assert numbers_below(root) == before
    with (tmp_path / "next").open("w") as other:  # would reuse a closed number
        memory.append("kept.md", " still")
        assert other.fileno() not in before
    assert (root / "kept.md").read_text() == "ours still"
    assert (tmp_path / "next").read_text() == ""
