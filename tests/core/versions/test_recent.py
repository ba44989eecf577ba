"""The versions of all files, the latest first, in pages."""

from __future__ import annotations

import time

import pytest

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError
from agent_memory.tools._protected import for_tools
from tests.core.versions.helpers import opened, operations
from tests.support.servers import Root


def test_what_was_replaced_or_deleted_last_comes_first(memory: AgentMemory) -> None:
    for path in ("a", "d/b", "c"):
        memory.write(path, f"{path} 1")
    for path in ("d/b", "a"):
        time.sleep(1.1)  # S3 tells whole seconds
        memory.write(path, f"{path} 2")
    time.sleep(1.1)
    memory.delete("c")
    found = memory.versions.list()
    assert [each.path for each in found] == ["c", "a", "d/b"]
    assert operations(found) == [("write", "delete"), ("write", "write"), ("write", "write")]
    assert memory.versions.list("c") == found[:1]
    assert [each.path for each in memory.subtree("d").versions.list()] == ["b"]


def test_pages_have_each_version_once(memory: AgentMemory) -> None:
    for number in range(4):
        for path in ("a", "b", "c"):
            memory.write(path, f"{number}")
    everything = memory.versions.list()
    assert len(everything) == 9
    pages: list[str] = []
    while page := memory.versions.list(limit=2, after=pages[-1] if pages else None):
        assert len(page) <= 2
        pages += [each.id for each in page]
    assert pages == [each.id for each in everything]
    of_one = memory.versions.list("a")
    assert memory.versions.list("a", limit=2, after=of_one[0].id) == of_one[1:3]
    assert memory.versions.list("a", after=of_one[-1].id) == ()
    for path in ("", "a"):
        with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
            memory.versions.list(path, after="0" * 16)


def test_a_store_without_versions_has_none(root: Root) -> None:
    memory = opened(root, None)
    memory.write("a", "x")
    assert memory.versions.list() == ()


def test_hidden_files_are_not_named_to_tools(memory: AgentMemory) -> None:
    for path in ("history.jsonl", "notes.md"):
        memory.write(path, "one")
        memory.write(path, "two")
    seen = for_tools(AgentMemory, memory, history=False)
    assert [each.path for each in seen.versions.list()] == ["notes.md"]
