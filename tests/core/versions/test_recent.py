"""The versions of all files, the latest first, in pages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError, FileVersion
from agent_memory.tools._protected import for_tools
from tests.core.versions.helpers import ON, opened, operations
from tests.core.versions.hostile import Storage
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


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    root = tmp_path / "store"
    root.mkdir()
    return Storage(root)


def test_copies_which_share_their_ids_stand_once_in_pages(storage: Storage) -> None:
    with AgentMemory.open(storage.url, versions=ON) as memory:
        memory.write("a", "one")
        memory.write("a", "two")
        storage.copy("a", "d/b")  # with the same state
        memory.write("a", "three")
        memory.append("d/b", " and more")
        memory.write("d/b", "four")
        everything = memory.versions.list()
        assert [each.path for each in everything].count("d/b") == 1
        assert len({each.id for each in everything}) == len(everything) - 1
        pages: list[FileVersion] = []
        while page := memory.versions.list(limit=1, after=pages[-1] if pages else None):
            pages += page
        assert tuple(pages) == everything
        names = [f"{each.path}@{each.id}" for each in everything]
        assert [memory.versions.list(limit=1, after=name) for name in names] == [(each,) for each in pages[1:]] + [()]
        view = memory.subtree("d")
        assert view.versions.list(after=view.versions.list()[0]) == ()
        for after in ("d/b@", f"c@{everything[0].id}", f"@{'0' * 16}"):
            with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
                memory.versions.list(after=after)


def test_two_contents_of_one_state_stand_once_in_pages(storage: Storage) -> None:
    with AgentMemory.open(storage.url, versions=ON) as memory:
        memory.write("a", "one")
        storage.copy("a", "kept")
        memory.append("a", " more")
        memory.write("a", "two")
        storage.copy("kept", "a")  # the state comes back
        memory.append("a", " other")
        memory.delete("a")
        everything = memory.versions.list()
        assert {memory.versions.read("a", each) for each in everything} == {"one more", "one other"}
        pages: list[FileVersion] = []
        while page := memory.versions.list(limit=1, after=pages[-1] if pages else None):
            pages += page
        assert tuple(pages) == everything


def test_a_page_follows_a_current_file_without_an_id(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    memory.versions.set_limits(None)
    memory.write("a", "three")
    everything = memory.versions.list("a")
    assert everything[0].id == ""
    assert memory.versions.list("a", limit=1, after=everything[0]) == everything[1:2]
