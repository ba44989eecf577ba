"""Which versions go: by the limits, and by forgetting."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    Entry,
    MadeBy,
    OutcomeUnknownError,
    VersionLimits,
)
from agent_memory.backend import Key
from agent_memory.core.versions.archive import Archive
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.reader import ListedRecord
from agent_memory.core.versions.record import LAST_BYTES, Record, records_of
from agent_memory.core.versions.retention import expired
from agent_memory.runtime.run import step
from tests.core.versions.helpers import contents, list_with_few_times, opened, records, refuse_outcome
from tests.support.servers import Root


def test_forgotten_files_have_no_versions(memory: AgentMemory, root: Root) -> None:
    for path in ("a", "d/b", "d/c"):
        memory.write(path, "one")
        memory.write(path, "two")
    memory.rename("d/b", "e")
    memory.write("e", "x" * LAST_BYTES)
    memory.write("e", "three")
    memory.forget("d")
    assert contents(memory, "e") == ["two", "x" * LAST_BYTES, "three"]
    memory.forget("e")
    assert memory.versions.list("d/c") == memory.versions.list("e") == ()
    assert contents(memory, "a") == ["one", "two"]
    memory.forget("")
    assert records(root) == []


def test_a_forgotten_file_has_no_versions_under_earlier_names_and_others_keep_theirs(
    memory: AgentMemory, root: Root
) -> None:
    for path in ("a", "x"):
        memory.write(path, "one")
        memory.write(path, "two")
    memory.rename("a", "b")
    memory.rename("x", "b2")
    memory.rename("b2", "y")
    memory.forget("b2")
    assert contents(memory, "y") == ["one", "two"]
    memory.forget("b")
    assert memory.versions.list("a") == ()
    assert contents(memory, "y") == ["one", "two"]
    memory.delete("y")
    memory.forget("y")
    assert records(root) == []


def test_forgetting_one_file_leaves_the_history_of_another_that_was_to_be_renamed_to_its_name(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "using_mark", interrupted)
        with pytest.raises(OutcomeUnknownError):
            memory.rename("a", "b")
    memory.write("b", "other")
    memory.forget("b")
    assert contents(memory, "a") == ["one", "two"]
    memory.forget("a")
    assert memory.versions.list("a") == ()


def interrupted(*_: object) -> Any:
    raise OutcomeUnknownError("stopped before the move")


def test_a_deleted_file_is_forgotten_after_its_directory_was_renamed(memory: AgentMemory) -> None:
    memory.write("a", "secret")
    memory.write("a", "clean")
    memory.rename("a", "d/f")
    memory.delete("d/f")
    memory.write("d/g", "x")
    memory.rename("d", "e")
    memory.forget("d/f")
    assert memory.versions.list() == ()


def test_a_file_that_left_a_forgotten_directory_keeps_its_history(memory: AgentMemory) -> None:
    memory.write("c/f", "one")
    memory.write("c/f", "two")
    memory.rename("c", "d")
    memory.rename("d/f", "e")
    memory.forget("d")
    assert contents(memory, "e") == ["one", "two"]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_deleted_file_is_forgotten_by_a_name_between_two_renames_of_one_time(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch, is_reversed: bool
) -> None:
    memory.write("c/f", "one")
    memory.write("c/f", "two")
    for source, target in (("c", "d"), ("d", "e"), ("e", "g")):
        memory.rename(source, target)
    memory.delete("g/f")
    list_with_few_times(monkeypatch, is_reversed=is_reversed)
    assert memory.forget("e").versions == 2
    monkeypatch.undo()
    assert memory.versions.list() == ()


@pytest.mark.parametrize("is_reversed", [False, True, None], ids=["of one time", "of one time, reversed", "in order"])
def test_a_file_that_left_a_forgotten_directory_with_its_directory_keeps_its_history(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch, is_reversed: bool | None
) -> None:
    memory.write("c/f", "one")
    memory.write("c/f", "two")
    memory.rename("c", "d")
    memory.write("d/f", "three")
    memory.rename("d", "e")
    memory.rename("e", "g")
    if is_reversed is not None:
        list_with_few_times(monkeypatch, is_reversed=is_reversed)
    memory.forget("e")
    monkeypatch.undo()
    assert contents(memory, "g/f") == ["one", "two", "three"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_file_that_left_a_forgotten_name_and_moved_with_its_directory_keeps_its_history(
    memory: AgentMemory, is_taken: bool
) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    for source, target in (("a", "b"), ("b", "d/b"), ("d", "e")):
        memory.rename(source, target)
    if is_taken:
        memory.write("b", "new")
    assert memory.forget("b").versions == 0
    assert contents(memory, "e/b") == ["one", "two"]


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_a_deleted_file_is_forgotten_by_a_damaged_mark_whose_path_another_mark_tells(
    memory: AgentMemory, root: Root
) -> None:
    memory.write("c/f", "one")
    memory.write("c/f", "two")
    memory.rename("c", "d")
    memory.rename("d/f", "kept")
    memory.write("a", "secret")
    memory.write("a", "clean")
    memory.rename("a", "d/f")
    [mark] = [each for each in Path(root.url).rglob("*-*m[an]") if b'"a"' in each.read_bytes()]
    memory.rename("d/f", "b")
    memory.delete("b")
    mark.write_text("damaged\n")
    assert memory.forget("d").versions == 2
    assert contents(memory, "kept") == ["one", "two"]
    assert memory.versions.list("b") == ()


def test_the_operation_of_a_version_stays_right_after_pruning(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a", "one")

    with monkeypatch.context() as patched:
        patched.setattr(type(memory._tree.backend), "delete", refuse_outcome)
        with pytest.raises(OutcomeUnknownError):
            memory.acting_as("bob").delete("a")
    memory.write("a", "two")
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    memory.versions.prune()
    ended = memory.versions.list("a")[1].ended_by
    assert ended
    assert ended.operation == "write"


def test_a_damaged_record_hides_no_other(memory: AgentMemory, root: Root, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("a", "b"):
        for text in ("one", "two", "three"):
            memory.write(path, text)
    backend: Any = memory._tree.backend
    damaged = records_of(None).join(records(root)[0].path)

    async def damage() -> None:
        await memory._run.call(backend.write, damaged, b"no record")

    step(damage())
    assert sorted(len(memory.versions.list(path)) for path in ("a", "b")) == [2, 3]
    assert len(memory.versions.list()) == 3
    assert "damaged" in caplog.text
    memory.forget("b")
    memory.forget("a")
    assert records(root) == []


def listed(*ages: float, size: int = 10, path: str = "f") -> list[ListedRecord]:
    """Records of one file, newest first, that ended so many seconds ago."""
    origin, found = Origin.first(None, 0, b""), []
    for age in reversed(ages):
        name = Record.of(path, origin, 0, MadeBy("write", None, None, 0.0), None).new_name(None)
        key = records_of(None).join(f"{name.history}/{name}")
        found.append(ListedRecord(Entry(key, size, 1e9 - age), name))
        origin = origin.next(None, 0, b"")
    return found[::-1]


@pytest.mark.parametrize(
    ("ages", "limits", "kept"),
    [
        ([4000, 5000, 6000], {}, 3),
        ([4000, 5000, 6000], {"keep": 2}, 2),
        ([4000, 5000, 6000], {"keep": 1}, 1),
        ([10, 20, 30, 4000], {"keep": 1}, 3),
        ([10 * 86400, 20 * 86400, 31 * 86400], {}, 2),
        ([40 * 86400, 50 * 86400], {}, 1),
        ([4000, 5000, 6000], {"max_bytes": 30}, 2),
        ([4000, 5000, 6000], {"max_bytes": 1}, 1),
        ([10, 20, 6000], {"max_bytes": 1}, 2),
        ([4000], {"max_bytes": 1, "keep": 1, "days": 0.01}, 1),
    ],
)
def test_the_limits_keep_the_newest_and_the_young(ages: list[float], limits: dict[str, Any], kept: int) -> None:
    entries = listed(*ages)
    gone = expired([*entries, *listed(1, path="other")], VersionLimits(**limits), 1e9)
    assert [entry for entry in entries if entry not in gone] == entries[:kept]
    assert not set(gone) - set(entries)


def test_the_redaction_of_an_earlier_file_takes_no_room_from_a_later_one(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a", "secret")
    memory.delete("a")
    memory.write("a", "1")
    memory.write("a", "2")
    memory.delete("a")
    memory.versions.redact("a", memory.versions.list("a")[-1].id, reason="a secret")
    memory.versions.set_limits(VersionLimits(keep=2))
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    assert memory.versions.prune() == 1
    assert contents(memory, "a") == ["1", "2"]


def test_the_mark_of_a_renamed_directory_stays_while_a_version_is_older(
    memory: AgentMemory, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what leads `forget` to the versions of a file that lost its origin."""
    memory.write("d/a.md", "secret")
    memory.write("d/a.md", "clean")
    memory.rename("d", "e")
    memory.write("other.md", "1")
    before = len(records(root))
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    assert memory.versions.prune() == 0
    assert len(records(root)) == before
    memory.forget("e")
    memory.versions.prune()
    assert records(root) == []


def test_a_call_prunes_all_and_a_change_a_few(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(root, VersionLimits(keep=2))
    for number in range(8):
        memory.write("a", f"{number}")
    assert memory.versions.prune() == 0
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    later = opened(root, VersionLimits(keep=2))
    later.write("a", "8")
    is_later = root.url.startswith(
        "memory:"
    )  # by the storage's clock, too: a clock that is ahead deletes nothing early
    assert len(later.versions.list("a")) == (7 if is_later else 9)
    assert later.versions.prune() == (4 if is_later else 6)
    assert contents(later, "a") == ["6", "7", "8"]
    assert later.versions.prune() == 0


def test_the_leftovers_of_changes_that_were_not_made_are_hidden_and_go_by_the_limits(
    memory: AgentMemory, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    memory.write("b", "one")
    memory.append("b", "+")
    with monkeypatch.context() as patched:
        backend: Any = memory._tree.backend
        patched.setattr(backend, "write", _interrupted_in_files(backend.write))
        for path in ("a", "b"):
            with pytest.raises(KeyboardInterrupt):
                memory.write(path, "never")
    memory.acting_as("bob").delete("b")  # a second record of the same state
    assert len(records(root)) == 4
    shown = ["one", "two"], ["one+"]
    assert (contents(memory, "a"), contents(memory, "b")) == shown
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    assert memory.versions.prune() == 0
    memory.versions.set_limits(VersionLimits(keep=1))
    assert memory.versions.prune() == 2
    assert (contents(memory, "a"), contents(memory, "b")) == (["two"], ["one+"])


def _interrupted_in_files(write: Callable[..., Any]) -> Callable[..., Any]:
    def interrupted(key: Key, *rest: object) -> Any:
        if key.path in ("a", "b"):
            raise KeyboardInterrupt
        return write(key, *rest)

    return interrupted
