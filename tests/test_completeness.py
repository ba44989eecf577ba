"""Whatever of ours is called, the storage is touched within an operation, and each operation is told once.

The methods of memories and services are tried one by one in `tests.test_hooks`; here is what is built on them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryService, Operation, Outcome, conversation, hookimpl, tools
from agent_memory.conversation import (
    ConversationMemory,
    CronJob,
    MemoryContext,
    MemoryWriteTool,
    Message,
    SearchHistoryTool,
)
from agent_memory.integrations.anthropic import AgentMemoryTool
from agent_memory.tools import AgentMemoryTools, FileSystemManager, MemorySearch, MemoryTool
from agent_memory_memory import MemoryBackend

PRIMITIVES = ("read", "stat", "write", "delete", "list", "append", "move_tree", "delete_tree", "erase")
Call = Callable[[AgentMemory], object]


class Watch:
    """Follows the operations that are under way."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.told: Counter[str] = Counter()
        self.primitives = 0

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        self.under_way.append(operation.id)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        self.under_way.remove(operation.id)
        self.told[operation.id] += 1


def guard(backend: MemoryBackend, watch: Watch) -> None:
    """Let the backend's primitives be called while an operation is under way, and not otherwise."""

    def guarded(name: str, primitive: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            assert watch.under_way, f"{name} outside of any operation"
            watch.primitives += 1
            return primitive(*args, **kwargs)

        return call

    for name in PRIMITIVES:
        if primitive := getattr(backend, name, None):
            setattr(backend, name, guarded(name, primitive))


def of_tool(command: str, **facts: object) -> Call:
    return lambda memory: MemoryTool(memory).call({"command": command, **facts})


def of_sdk(command: str, **facts: object) -> Call:
    return lambda memory: AgentMemoryTool(memory).call({"command": command, **facts})


_FILE = "/memories/notes.md"
_COMMANDS: dict[str, dict[str, object]] = {
    "view": {"path": _FILE},
    "create": {"path": "/memories/new.md", "file_text": "x"},
    "str_replace": {"path": _FILE, "old_str": "one", "new_str": "two"},
    "insert": {"path": _FILE, "insert_line": 0, "insert_text": "zero"},
    "delete": {"path": _FILE},
    "rename": {"old_path": _FILE, "new_path": "/memories/new.md"},
}
JOB = CronJob("1", "job", "do it", "* * * * *")
CALLS: dict[tuple[type, str], list[Call]] = {
    (MemoryTool, "call"): [of_tool(command, **facts) for command, facts in _COMMANDS.items()],
    (AgentMemoryTool, "call"): [of_sdk(command, **facts) for command, facts in _COMMANDS.items()],
    (AgentMemoryTool, "clear_all_memory"): [lambda m: AgentMemoryTool(m).clear_all_memory()],
    (AgentMemoryTools, "call"): [
        lambda m: AgentMemoryTools(m).call("read_agent_memory_file", {"file_path": "notes.md"}),
        lambda m: AgentMemoryTools(m).call("write_agent_memory_file", {"file_path": "n.md", "content_base64": "eA=="}),
        lambda m: AgentMemoryTools(m).call(
            "append_to_agent_memory_file", {"file_path": "notes.md", "content_to_append_base64": "eA=="}
        ),
    ],
    (MemorySearch, "call"): [lambda m: MemorySearch(m).call({"query": "one"})],
    (MemorySearch, "search"): [lambda m: MemorySearch(m).search("one")],
    (FileSystemManager, "handle_append"): [lambda m: FileSystemManager(m).handle_append("notes.md", "x")],
    (FileSystemManager, "handle_create"): [lambda m: FileSystemManager(m).handle_create("new.md", "x")],
    (ConversationMemory, "append_message"): [lambda m: ConversationMemory(m).append_message(Message("user", "hi"))],
    (ConversationMemory, "append_messages"): [lambda m: ConversationMemory(m).append_messages([Message("user", "hi")])],
    (ConversationMemory, "iter_history"): [lambda m: list(ConversationMemory(m).iter_history())],
    (ConversationMemory, "load_history"): [lambda m: ConversationMemory(m).load_history()],
    (ConversationMemory, "load_cron_jobs"): [lambda m: ConversationMemory(m).load_cron_jobs()],
    (ConversationMemory, "save_cron_jobs"): [lambda m: ConversationMemory(m).save_cron_jobs([JOB])],
    (ConversationMemory, "load_global_memory"): [lambda m: ConversationMemory(m).load_global_memory()],
    (ConversationMemory, "save_global_memory"): [lambda m: ConversationMemory(m).save_global_memory("x")],
    (ConversationMemory, "search"): [lambda m: ConversationMemory(m).search("hi")],
    (MemoryContext, "build_messages"): [lambda m: MemoryContext(ConversationMemory(m)).build_messages("system", "hi")],
    (MemoryContext, "persist_exchange"): [lambda m: MemoryContext(ConversationMemory(m)).persist_exchange("hi", "ho")],
    (MemoryWriteTool, "call"): [lambda m: MemoryWriteTool(ConversationMemory(m)).call({"content": "x"})],
    (SearchHistoryTool, "call"): [lambda m: SearchHistoryTool(ConversationMemory(m)).call({"query": "hi"})],
}
DEFINITIONS = {"tool_definition", "tool_definitions", "to_dict", "name"}
CONSTRUCTORS = {"for_project", "for_repository"}
THE_SDKS = {"execute", *_COMMANDS}  # `AgentMemoryTool.call` by other names


def surfaces() -> set[type]:
    """Every class of ours that is given a memory, or a conversation in one, and calls it for a sync caller."""
    named = [getattr(module, name) for module in (tools, conversation) for name in module.__all__]
    found: set[type] = {AgentMemoryTool, *(each for each in named if inspect.isclass(each))}
    return {cls for cls in found if {"memory", "conversation"} & set(inspect.signature(cls).parameters)
            and not cls.__name__.startswith("Async")}  # fmt: skip


def test_every_public_method_of_every_surface_is_tried_here() -> None:
    others = DEFINITIONS | CONSTRUCTORS | THE_SDKS
    methods = {
        (cls, name)
        for cls in surfaces()
        for name in dir(cls)
        if not name.startswith("_") and callable(getattr(cls, name)) and name not in others
    }
    assert methods == set(CALLS)


@pytest.mark.parametrize(
    ("called", "call"), [(f"{cls.__name__}.{name}", call) for (cls, name), calls in CALLS.items() for call in calls]
)
def test_the_storage_is_touched_within_operations_that_are_told_once(called: str, call: Call) -> None:
    watch, backend = Watch(), MemoryBackend()
    with AgentMemoryService(backend, plugins=[watch]) as service:
        guard(backend, watch)
        memory = service.agent("bob")
        memory.write("notes.md", "one\n")
        ConversationMemory(memory).append_message(Message("user", "hi"))
        before, primitives = watch.told.total(), watch.primitives
        call(memory)
        assert watch.told.total() > before, called
        assert watch.primitives > primitives, called
        assert set(watch.told.values()) == {1}
        assert not watch.under_way
