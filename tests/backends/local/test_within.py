"""The option ``within`` of the local backend, for a root below a path that the operator does not fully control."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemory, PathTraversalError, WriteError
from agent_memory_local import LocalBackend
from tests.support.descriptors import open_files

ACTIONS: list[Callable[[AgentMemory], object]] = [
    lambda memory: memory.read("kept.md"),
    lambda memory: memory.list(),
    lambda memory: memory.write("new.md", "x"),
    lambda memory: memory.append("kept.md", "x"),
    lambda memory: memory.rename("kept.md", "y"),
    lambda memory: memory.delete_tree(""),
]


@pytest.mark.parametrize("linked", ["a", "a/b", "a/b/root"])
def test_no_link_below_the_within_directory_is_followed(tmp_path: Path, linked: str) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    (base / linked).parent.mkdir(parents=True)
    for directory in (outside, outside / "b" / "root", outside / "root"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "kept.md").write_text("of others")
    (base / linked).symlink_to(outside)
    (tmp_path / "way").symlink_to(base)
    for within in (base, tmp_path / "way"):
        memory = AgentMemory.open(within / "a" / "b" / "root", storage_options={"within": str(within)})
        for action in ACTIONS:
            with pytest.raises(PathTraversalError, match="symbolic link") as refused:
                action(memory)
            assert str(tmp_path) not in str(refused.value)
            assert refused.value.__traceback__
            assert base not in open_files().values(), "the error keeps the directory open"
    assert {path.read_text() for path in outside.rglob("*.md")} == {"of others"}
    assert not list(outside.rglob("new.md"))


def test_a_write_creates_the_root_once(tmp_path: Path) -> None:
    base = tmp_path / "not" / "yet"
    memory = AgentMemory.open(base / "a" / "root", storage_options={"within": str(base)})
    assert memory.list() == ()
    assert not base.exists()
    memory.write("one.md", "x")
    assert (base / "a" / "root" / "one.md").read_text() == "x"
    shutil.rmtree(base)
    with pytest.raises(WriteError, match="open the store again"):
        memory.write("two.md", "x")
    assert not base.exists()


def test_a_root_outside_its_within_directory_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path / "other", tmp_path / "base" / ".." / "other", tmp_path / "bases"):
        with pytest.raises(ValueError, match="the root is not inside") as refused:
            LocalBackend(root, within=tmp_path / "base")
        assert str(tmp_path) not in str(refused.value)
    LocalBackend(tmp_path, within=tmp_path)
