"""Histories follow a file under its names."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    OutcomeUnknownError,
    PartialOperationError,
)
from agent_memory.core import tree_flows
from agent_memory.core.versions import keep
from tests.core.versions.helpers import ON, contents, opened, operations
from tests.support.servers import Root


def test_a_deleted_name_that_is_used_again_has_a_new_history(memory: AgentMemory) -> None:
    memory.write("a", "first")
    memory.delete("a")
    time.sleep(0.002)
    memory.create("a", "second")
    memory.write("a", "third")
    assert contents(memory, "a") == ["first", "second", "third"]
    assert [(each.number, each.previous is None) for each in memory.versions.list("a")] == [
        (1, False),
        (0, True),
        (0, True),
    ]


@pytest.mark.parametrize("moved", ["a/f.md", "a"], ids=["file", "directory"])
def test_a_history_stays_with_a_file_that_gets_another_name(memory: AgentMemory, moved: str) -> None:
    memory.write("a/f.md", "one")
    memory.write("a/f.md", "two")
    memory.rename(moved, "b/g.md" if moved == "a/f.md" else "b")
    name = "b/g.md" if moved == "a/f.md" else "b/f.md"
    assert operations(memory.versions.list(name)) == [("write", None), ("write", "write")]
    memory.write(name, "three")
    memory.rename(name, "c.md")
    memory.delete("c.md")
    assert contents(memory, "c.md") == ["one", "two", "three"]
    assert [each.path for each in memory.versions.list("c.md")] == ["c.md", name, "a/f.md"]
    assert [each.number for each in memory.versions.list("c.md")] == [2, 1, 0]


def test_a_history_does_not_go_to_a_file_that_takes_the_old_name(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.delete("a")
    memory.write("a", "other")
    memory.write("a", "moved")
    memory.rename("a", "b")
    memory.write("a", "new")
    assert contents(memory, "b") == ["other", "moved"]
    assert contents(memory, "a")[-1] == "new"


def test_a_refused_rename_leaves_the_history_of_its_target(memory: AgentMemory) -> None:
    for text in ("one", "two"):
        memory.write("d/a", text)
    memory.rename("d", "e")
    memory.write("other/x", "x")
    for source, target in (("nothing", "e/a"), ("other", "e"), ("other/x", "e/a")):
        with pytest.raises(AgentMemoryError):
            memory.rename(source, target)
        assert contents(memory, "e/a") == ["one", "two"]


def test_a_rename_with_an_unknown_outcome_keeps_its_record(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy exists, but the caller does not get the answer."""
    written = keep.VersionedStore._call

    async def lose_the_answer(self: Any, primitive: Any, *arguments: Any, **options: Any) -> Any:
        result = await written(self, primitive, *arguments, **options)
        if primitive.__name__ in ("write", "write_copy") and arguments[0].path == "e/b":
            raise OutcomeUnknownError("no answer")
        return result

    for path in ("d/a", "d/b"):
        memory.write(path, "one")
        memory.write(path, "two")
    with monkeypatch.context() as patched:
        patched.setattr(keep.VersionedStore, "_call", lose_the_answer)
        for module, name in ((keep, "moves_files"), (keep, "moves_trees"), (tree_flows, "moves_trees")):
            patched.setattr(module, name, lambda _: False)
        with pytest.raises(PartialOperationError):
            memory.rename("d", "e")
    memory.delete("d/b")
    assert contents(memory, "e/a") == ["one", "two"]
    assert set(contents(memory, "e/b")) == {"one", "two"}


def test_a_write_goes_over_a_file_that_another_writer_creates_meanwhile(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = keep.VersionedStore._current

    async def late(self: Any, *arguments: Any) -> Any:
        try:
            return await current(self, *arguments)
        except AgentMemoryFileNotFoundError:
            monkeypatch.undo()
            memory.create("a", "of another writer")
            raise

    monkeypatch.setattr(keep.VersionedStore, "_current", late)
    memory.write("a", "mine")
    assert contents(memory, "a") == ["of another writer", "mine"]


def test_a_file_in_the_place_of_a_renamed_one_leaves_its_history(memory: AgentMemory) -> None:
    for text in ("one", "two"):
        memory.write("a", text)
    memory.rename("a", "b")
    memory.delete("b")
    memory.write("c", "other")
    memory.rename("c", "b")
    assert contents(memory, "b") == ["one", "two", "other"]


def test_both_files_of_a_rename_that_others_interrupted_keep_what_was_appended(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename copies the file; another actor appends to the file and to the copy; both stay."""
    copy = tree_flows._copy

    async def copied_slowly(*arguments: Any, **options: Any) -> Any:
        result = await copy(*arguments, **options)
        for path in ("a", "b"):
            memory.acting_as("bob").append(path, f"appended to {path}\n")
        return result

    monkeypatch.setattr(tree_flows, "_copy", copied_slowly)
    monkeypatch.setattr(keep, "moves_files", lambda _: False)
    memory.write("a", "one\n")
    with pytest.raises(ConflictError, match="changed during the rename"):
        memory.rename("a", "b")
    assert (memory.read("a"), memory.read("b")) == ("one\nappended to a\n", "one\nappended to b\n")
    for path in ("a", "b"):
        memory.write(path, f"later {path}")
    assert contents(memory, "a") == ["one\nappended to a\n", "later a"]
    assert contents(memory, "b")[-2:] == ["one\nappended to b\n", "later b"]
    memory.delete("b")
    monkeypatch.setattr(tree_flows, "_copy", copy)
    memory.rename("a", "b")
    assert {"one\nappended to a\n", "one\nappended to b\n", "later a", "later b"} == {
        *contents(memory, "a"),
        *contents(memory, "b"),
    }


def test_a_copy_begins_a_history(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    memory.copy("a", "b")
    assert operations(memory.versions.list("b")) == [("copy", None)]
    assert memory.versions.list("b")[0].id != memory.versions.list("a")[0].id


def test_the_maker_of_a_file_from_before_stays_unknown_after_a_rename(root: Root) -> None:
    with opened(root, None) as old:
        old.write("a", "from before")
    memory = opened(root)
    memory.rename("a", "b")
    assert [each.made_by for each in memory.versions.list("b")] == [None]
    memory.write("b", "ours")
    assert operations(memory.versions.list("b")) == [("write", None), (None, "write")]


def test_a_rename_while_versions_are_off_takes_the_versions_along(memory: AgentMemory) -> None:
    for text in ("one", "two"):
        memory.write("d/a", text)
    memory.versions.set_limits(None)
    memory.rename("d/a", "b")
    memory.versions.set_limits(ON)
    memory.write("b", "three")
    assert contents(memory, "b") == ["one", "two", "three"]
    assert memory.forget("b").versions == 2
