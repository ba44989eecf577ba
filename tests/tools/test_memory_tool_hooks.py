"""Every command of the memory tool calls the hooks, and the text of a plugin's failure never reaches the model."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory import AgentMemory, Limits, Operation, OperationDenied, Outcome, hookimpl
from tests.tools.calls import caller, everything, fill, refused, succeeded

FILES = {"a.md": "a\n", "d/b.md": "b\n"}
COMMANDS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("view", {"path": "/memories/a.md"}, ["read"]),
    ("view", {"path": "/memories"}, ["list"]),
    ("create", {"path": "/memories/new.md", "file_text": "x"}, ["create"]),
    ("str_replace", {"path": "/memories/a.md", "old_str": "a", "new_str": "b"}, ["edit"]),
    ("insert", {"path": "/memories/a.md", "insert_line": 0, "insert_text": "x"}, ["edit"]),
    ("delete", {"path": "/memories/a.md"}, ["delete"]),
    ("delete", {"path": "/memories/d"}, ["delete", "delete_tree"]),
    ("rename", {"old_path": "/memories/a.md", "new_path": "/memories/new.md"}, ["rename"]),
]
every_command = pytest.mark.parametrize(
    ("command", "parameters", "kinds"), COMMANDS, ids=[f"{command}: {kinds[-1]}" for command, _, kinds in COMMANDS]
)


class Recorder:
    """Record every call of a hook."""

    def __init__(self) -> None:
        self.before: list[Operation] = []
        self.after: list[Operation] = []
        self.rejected: list[tuple[str, str]] = []

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        self.before.append(operation)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        assert outcome.duration >= 0
        self.after.append(operation)

    @hookimpl
    def agent_memory_key_rejected(self, text: str, reason: str) -> None:
        self.rejected.append((text, reason))


class Vetoing:
    """A guard that refuses every operation once it is on."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.on = False

    @hookimpl
    def agent_memory_before_operation(self) -> None:
        if self.on:
            raise self.error


class FailingObserver:
    """An observer that raises."""

    required = False

    @hookimpl
    def agent_memory_after_operation(self, outcome: Outcome) -> None:
        raise ValueError(f"the observer's secret: {outcome.status}")


class RequiredObserver(FailingObserver):
    """The same, as a required observer."""

    required = True


@every_command
def test_the_hooks_are_called_before_and_after_a_command(
    command: str, parameters: dict[str, Any], kinds: list[str]
) -> None:
    recorder = Recorder()
    memory = fill(AgentMemory.open("memory://", plugins=[recorder], actor="model"), FILES)
    recorder.before.clear()
    recorder.after.clear()
    succeeded(caller(memory)(command, **parameters))
    assert [operation.kind for operation in recorder.before] == kinds
    assert recorder.after == recorder.before
    assert {operation.actor for operation in recorder.after} == {"model"}


@every_command
def test_a_denial_by_a_guard_is_an_error_with_its_reason(
    command: str, parameters: dict[str, Any], kinds: list[str]
) -> None:
    guard = Vetoing(OperationDenied(f"no {kinds[0]} on Sundays"))
    memory = fill(AgentMemory.open("memory://", plugins=[guard]), FILES)
    before = everything(memory)
    guard.on = True
    assert refused(caller(memory)(command, **parameters)) == f"Error: no {kinds[0]} on Sundays"
    guard.on = False
    assert everything(memory) == before


@every_command
def test_a_failing_guard_is_an_error_without_its_text(
    command: str, parameters: dict[str, Any], kinds: list[str]
) -> None:
    guard = Vetoing(ValueError(f"the guard's secret about {kinds}"))
    memory = fill(AgentMemory.open("memory://", plugins=[guard]), FILES)
    before = everything(memory)
    guard.on = True
    assert refused(caller(memory)(command, **parameters)) == (
        "Error: refused: the plugin 'Vetoing' failed in agent_memory_before_operation with ValueError"
    )
    guard.on = False
    assert everything(memory) == before


def test_a_failing_observer_does_not_change_the_answer() -> None:
    memory = AgentMemory.open("memory://", plugins=[FailingObserver()])
    succeeded(caller(memory)("create", path="/memories/a.md", file_text="x"))


def test_the_error_of_a_failing_required_observer_says_what_was_done() -> None:
    memory = AgentMemory.open("memory://", plugins=[RequiredObserver()])
    output = refused(caller(memory)("create", path="/memories/a.md", file_text="x"))
    assert output.startswith("Error: the storage completed the operation, but the required plugin ")
    assert "secret" not in output


def test_a_limit_counts_the_written_content() -> None:
    memory = AgentMemory.open("memory://", limits=Limits(file_bytes=10))
    call = caller(memory)
    assert "would have 11" in refused(call("create", path="/memories/a.md", file_text="x" * 11))
    succeeded(call("create", path="/memories/a.md", file_text="12345"))
    assert "would have 12" in refused(call("insert", path="/memories/a.md", insert_line=0, insert_text="12345"))
    assert "would have 11" in refused(call("str_replace", path="/memories/a.md", old_str="5", new_str="5678901"))
    assert everything(memory) == {"a.md": b"12345"}


def test_a_read_only_memory_can_be_viewed_but_not_changed() -> None:
    memory = fill(AgentMemory.open("memory://"), FILES)
    before = everything(memory)
    call = caller(memory.read_only())
    for command, parameters, _ in COMMANDS:
        result = call(command, **parameters)
        assert result.is_error == (command != "view")
        assert ("this view is read-only" in result.output) == result.is_error
    assert everything(memory) == before


@pytest.mark.parametrize("strings", ["docs", "sdk"])
@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("/etc/passwd", "'/etc/passwd'", "absolute"),
        ("/memories/../x", "'../x'", "parent"),
        ("/memories/%2e%2e/x", "'%2e%2e/x'", "encoded"),
        ("/memoriesX/a", "'/memoriesX/a'", "absolute"),
        ("memories/../../x", "'/memories/../../x'", "absolute"),
        ("\\\\host\\share", "'/\\\\\\\\host\\\\share'", "absolute"),
    ],
)
@pytest.mark.parametrize(
    ("command", "parameters"),
    [
        ("view", {}),
        ("create", {"file_text": "x"}),
        ("str_replace", {"old_str": "x"}),
        ("insert", {"insert_line": 0, "insert_text": "x"}),
        ("delete", {}),
    ],
)
def test_an_escape_attempt_is_reported_to_the_hooks_once(
    strings: str, path: str, text: str, reason: str, command: str, parameters: dict[str, Any]
) -> None:
    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    refused(caller(memory, strings=strings)(command, path=path, **parameters))
    assert recorder.rejected == [(text, reason)]
    assert recorder.before == []


def test_an_escape_attempt_is_reported_for_both_names_of_a_rename() -> None:
    recorder = Recorder()
    call = caller(fill(AgentMemory.open("memory://", plugins=[recorder]), FILES))
    refused(call("rename", old_path="/memories/../a", new_path="/memories/b"))
    refused(call("rename", old_path="/memories/a.md", new_path="/etc/b"))
    assert recorder.rejected == [("'../a'", "parent"), ("'/etc/b'", "absolute")]


def test_a_name_without_the_root_is_no_escape_attempt() -> None:
    recorder = Recorder()
    call = caller(AgentMemory.open("memory://", plugins=[recorder]))
    assert refused(call("view", path="notes.md")) == "Path must start with /memories, got: notes.md"
    assert recorder.rejected == []
