"""What other programs do with files and copies, with or without the metadata, confuses no version."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.core.versions.helpers import contents, opened
from tests.support.servers import Root


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    return opened(Root(str(tmp_path), {}), actor="ann")


def test_the_text_that_a_person_wrote_in_place_has_no_maker(memory: AgentMemory, tmp_path: Path) -> None:
    memory.write("a.md", "by the agent\n")
    (tmp_path / "a.md").write_text("by a person\n")
    present = memory.versions.list("a.md")[0]
    assert present.made_by is None
    memory.write("a.md", "by the agent again\n")
    kept = memory.versions.list("a.md")[1]
    assert (kept.id, kept.made_by) == (present.id, None), "the same id as before it was kept"
    assert memory.versions.read("a.md", kept.id) == "by a person\n"


def test_what_a_program_appended_in_place_goes_on_after_the_maker(memory: AgentMemory, tmp_path: Path) -> None:
    memory.write("a.md", "by the agent\n")
    with (tmp_path / "a.md").open("a") as file:
        file.write("more\n")
    present = memory.versions.list("a.md")[0]
    assert present.made_by
    assert (present.made_by.actor, present.appended_bytes) == ("ann", 5)


def test_each_copy_with_the_metadata_goes_on_for_itself(memory: AgentMemory, tmp_path: Path) -> None:
    for text in ("1", "2"):
        memory.write("a.md", text)
    shutil.copy2(tmp_path / "a.md", tmp_path / "b.md")
    for text in ("a3", "a4"):
        memory.write("a.md", text)
    memory.write("b.md", "b3")
    assert contents(memory, "a.md") == ["1", "2", "a3", "a4"]
    assert contents(memory, "b.md") == ["1", "2", "b3"]
    assert memory.forget("a.md").other_names == (("b.md", 1),)
    assert (memory.read("b.md"), contents(memory, "b.md")) == ("b3", ["b3"])


def test_a_state_that_a_backup_brings_back_hides_nothing(memory: AgentMemory, tmp_path: Path) -> None:
    memory.write("a.md", "one\n")
    shutil.copy2(tmp_path / "a.md", tmp_path / "backup")
    memory.append("a.md", "first life\n")
    memory.write("a.md", "two\n")
    shutil.copy2(tmp_path / "backup", tmp_path / "a.md")
    memory.append("a.md", "second life\n")
    found = memory.versions.list("a.md")
    texts = {memory.versions.read("a.md", each.id) for each in found if each.ended_by}
    assert texts == {"one\nfirst life\n"}
    memory.write("a.md", "three\n")
    found = memory.versions.list("a.md")
    texts = {memory.versions.read("a.md", each.id) for each in found if each.ended_by}
    assert texts >= {"one\nfirst life\n", "one\nsecond life\n"}


def test_a_restored_file_continues_its_history(memory: AgentMemory) -> None:
    memory.write("a.md", "one")
    memory.write("a.md", "two")
    memory.delete("a.md")
    memory.versions.restore("a.md", memory.versions.list("a.md")[1].id)
    assert contents(memory, "a.md") == ["one", "two", "one"]
    assert [each.number for each in memory.versions.list("a.md")] == [2, 1, 0]


def test_redacting_reaches_a_copy_and_tells_it(memory: AgentMemory, tmp_path: Path) -> None:
    memory.write("a.md", "secret\n")
    for name in ("same.md", "longer.md"):
        shutil.copy2(tmp_path / "a.md", tmp_path / name)
    memory.append("longer.md", "more\n")
    for name in ("a.md", "same.md", "longer.md"):
        memory.write(name, "clean\n")
    result = memory.versions.redact("a.md", memory.versions.list("a.md")[1].id, reason="a key")
    assert result.other_names == ("same.md",)
    assert [each.path for each in result.still_in] == ["longer.md"]
    assert [bool(each.redacted_by) for each in memory.versions.list("same.md")] == [False, True]
