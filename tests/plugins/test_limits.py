"""The limits plugin: a guard in a few lines, which no sequence of operations gets around."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    AsyncAgentMemory,
    Operation,
    OperationDenied,
    Outcome,
)
from agent_memory.plugins.limits import LimitsPlugin
from agent_memory_memory import MemoryBackend


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://", plugins=[LimitsPlugin(10)])


@pytest.mark.parametrize("method", ["write", "create", "append"])
def test_a_file_may_fill_the_limit_and_not_exceed_it(memory: AgentMemory, method: str) -> None:
    with pytest.raises(OperationDenied, match=r"11 bytes.* 10\b"):
        getattr(memory, method)("a.md", "x" * 11)
    assert not memory.exists("a.md")
    getattr(memory, method)("a.md", "x" * 10)
    assert memory.stat("a.md").size == 10


def test_an_edit_may_fill_the_limit_and_not_exceed_it(memory: AgentMemory) -> None:
    memory.write("a.md", "x")
    with pytest.raises(OperationDenied):
        memory.edit("a.md", lambda text: text * 11)
    assert memory.read("a.md") == "x"
    memory.edit("a.md", lambda text: text * 10)
    assert memory.read("a.md") == "x" * 10


def test_a_limit_counts_bytes(memory: AgentMemory) -> None:
    memory.write("a.md", "\u00e9" * 5)
    with pytest.raises(OperationDenied):
        memory.write("a.md", "\u00e9" * 5 + "x")
    with pytest.raises(OperationDenied):
        memory.write_bytes("a.md", b"\xff" * 11)


def test_a_limit_of_nothing_lets_only_empty_files_be_written() -> None:
    memory = AgentMemory.open("memory://", plugins=[LimitsPlugin(0)])
    memory.write("a.md", "")
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        LimitsPlugin(-1)


def test_a_refusal_names_the_path_and_no_content(memory: AgentMemory) -> None:
    with pytest.raises(OperationDenied) as denied:
        memory.write("notes/a.md", "secret" * 200)
    assert str(denied.value).startswith("'notes/a.md': 1,200 bytes")
    assert "secret" not in str(denied.value)


def test_an_append_counts_what_is_there(memory: AgentMemory) -> None:
    memory.append("a.md", "x" * 6)
    memory.append("a.md", "x" * 4)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize("see", ["read", "read_bytes", "stat", "exists"])
def test_an_append_counts_what_others_wrote_once_it_was_seen(see: str) -> None:
    store = MemoryBackend()
    AgentMemory.open(store).write("a.md", "x" * 8)
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    getattr(memory, see)("a.md")
    with pytest.raises(OperationDenied):
        memory.append("a.md", "xxx")


def test_a_file_nobody_has_seen_exceeds_the_limit_by_one_append_at_most() -> None:
    store = MemoryBackend()
    AgentMemory.open(store).write("a.md", "x" * 8)
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    memory.append("a.md", "x" * 9)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")
    assert memory.stat("a.md").size == 17


@pytest.mark.parametrize(
    "vanish",
    [
        lambda memory: memory.delete("a.md"),
        lambda memory: memory.delete_tree(""),
        lambda memory: memory.rename("a.md", "b.md"),
        lambda memory: memory.write("a.md", ""),
    ],
    ids=["delete", "delete_tree", "rename", "write"],
)
def test_a_file_that_is_gone_counts_no_more(memory: AgentMemory, vanish: Callable[[AgentMemory], object]) -> None:
    memory.write("a.md", "x" * 10)
    vanish(memory)
    memory.append("a.md", "x" * 10)
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize("see", ["read", "stat"])
def test_a_file_that_others_removed_counts_no_more_once_that_was_seen(see: str) -> None:
    store = MemoryBackend()
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    memory.write("a.md", "x" * 10)
    AgentMemory.open(store).delete("a.md")
    with contextlib.suppress(FileNotFoundError):
        getattr(memory, see)("a.md")
    memory.append("a.md", "x" * 10)
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize(
    "distract",
    [
        lambda memory: memory.delete("a.md", expected_sha256="0" * 64),
        lambda memory: memory.read_only().delete("a.md"),
        lambda memory: memory.delete_tree("missing"),
        lambda memory: memory.rename("missing", "b.md"),
        lambda memory: memory.copy("missing", "b.md"),
        lambda memory: memory.read_only().delete_tree(""),
        lambda memory: memory.copy("a.md", "b.md"),
        lambda memory: memory.write("other.md", ""),
        lambda memory: memory.rename("other.md", "another.md"),
        lambda memory: memory.delete_tree("other"),
        lambda memory: memory.write("a.md", "x" * 11),
        lambda memory: memory.append("a.md", "x"),
        lambda memory: memory.create("a.md", "x"),
        lambda memory: memory.edit("a.md", lambda text: text + "x"),
    ],
    ids=[
        *("conflicting delete", "denied delete", "failed delete_tree", "failed rename", "failed copy"),
        *("denied delete_tree", "copy", "other write", "other rename", "other delete_tree"),
        *("vetoed write", "vetoed append", "failed create", "vetoed edit"),
    ],
)
def test_an_operation_in_between_does_not_make_room(
    memory: AgentMemory, distract: Callable[[AgentMemory], object]
) -> None:
    memory.write("other.md", "")
    memory.write("other/a.md", "")
    memory.write("a.md", "x" * 10)
    with contextlib.suppress(AgentMemoryError):
        distract(memory)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")


@pytest.mark.parametrize("move", ["rename", "copy"])
def test_a_file_counts_under_its_new_name_too(memory: AgentMemory, move: str) -> None:
    memory.write("a.md", "x" * 10)
    getattr(memory, move)("a.md", "b.md")
    with pytest.raises(OperationDenied):
        memory.append("b.md", "x")


def test_files_of_the_same_name_are_counted_apart() -> None:
    with AgentMemoryService("memory://", plugins=[LimitsPlugin(10)]) as service:
        service.append_to_memory_file("bob", "a.md", "x" * 10)
        service.append_to_memory_file("eve", "a.md", "x" * 10)
        bob = service.agent("bob")
        bob.subtree("notes").append("a.md", "x" * 10)
        with pytest.raises(OperationDenied):
            bob.append("notes/a.md", "x")


def test_async_callers_are_limited_alike() -> None:
    memory = AsyncAgentMemory.open("memory://", plugins=[LimitsPlugin(10)])

    async def fill() -> None:
        await memory.append("a.md", "x" * 10)
        with pytest.raises(OperationDenied):
            await memory.append("a.md", "x")

    asyncio.run(fill())


def _appended(path: str, size: int) -> tuple[Operation, Outcome]:
    operation = Operation(id="1", time=0.0, kind="append", agent=None, path=path, size=size)
    return operation, Outcome(status="ok", duration=0.0, size=size)


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.plugins.limits._REMEMBERED", 3)
    plugin = LimitsPlugin(10)
    told = [_appended(f"{number}.md", 10) for number in range(5)]
    for operation, outcome in told:
        plugin.agent_memory_after_operation(operation, outcome)
    for operation, _ in told[:2]:
        plugin.agent_memory_check_content(operation, b"x")
    for operation, _ in told[2:]:
        with pytest.raises(OperationDenied):
            plugin.agent_memory_check_content(operation, b"x")


@pytest.mark.parametrize("move", ["rename", "copy"])
def test_a_directory_of_more_files_than_are_remembered_is_followed_as_far_as_they_go(
    memory: AgentMemory, move: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_memory.plugins.limits._REMEMBERED", 3)
    for number in range(3):
        memory.write(f"dir/{number}.md", "x" * 10)
    getattr(memory, move)("dir", "new")
    assert [record for record in caplog.records if record.exc_info] == []
    with pytest.raises(OperationDenied):
        memory.append("new/2.md", "x")
