"""Every public call touches the storage only within an operation, and each operation is reported once.

`tests.core.test_hooks` tests each method of memories and services; this module tests the surfaces built on them.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory, Operation, Outcome, hookimpl, tools
from agent_memory import conversation as conversations
from agent_memory.cli import settings as cli_settings
from agent_memory.cli.app import app
from agent_memory.conversation import (
    AsyncConversationMemory,
    ConversationMemory,
    CronJob,
    MemoryContext,
    MemoryWriteTool,
    Message,
    SearchHistoryTool,
)
from agent_memory.filesystem import AgentMemoryFileSystem, filesystem
from agent_memory.integrations import anthropic
from agent_memory.integrations.anthropic import AgentMemoryTool
from agent_memory.mcp_server import mcp_server
from agent_memory.tools import AgentMemoryTools, FileSystemManager, MemorySearch, MemoryTool
from agent_memory.tools._toolset import TOOLS
from agent_memory_memory import MemoryBackend
from tests.cli.commands import commands_of

PRIMITIVES = ("read", "stat", "write", "delete", "list", "append", "move_tree", "delete_tree", "erase", "move_file",
              "write_in_parts", "erase_earlier")  # fmt: skip
Args = tuple[Any, ...]


class Watch:
    """A plugin that follows the operations in progress."""

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

    @contextmanager
    def seeing(self, what: str) -> Iterator[None]:
        """Check that the block touches the storage, and that each of its operations is reported once."""
        told, primitives = self.told.total(), self.primitives
        yield
        assert self.told.total() > told, what
        assert self.primitives > primitives, what
        assert set(self.told.values()) == {1}, what
        assert not self.under_way, what


def guarded(watch: Watch) -> MemoryBackend:
    """A backend whose primitives fail if they are called while no operation is in progress."""
    backend = MemoryBackend()

    def guard(name: str, primitive: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            assert watch.under_way, f"{name} outside of any operation"
            watch.primitives += 1
            return primitive(*args, **kwargs)

        return call

    for name in PRIMITIVES:
        setattr(backend, name, guard(name, getattr(backend, name)))
    return backend


class Opened(NamedTuple):
    """A memory with a few files, and the plugin that watches it."""

    watch: Watch
    memory: AgentMemory

    @property
    def twin(self) -> AsyncAgentMemory:
        return self.memory.as_async()


@pytest.fixture
def opened() -> Iterator[Opened]:
    watch = Watch()
    backend = guarded(watch)
    with pytest.MonkeyPatch.context() as patch:  # the check for a source checkout is no operation
        patch.setattr("agent_memory.service._refuse_source_checkout", lambda _: None)
        service = AgentMemoryService(backend, plugins=[watch])
    memory = service.agent("bob")
    memory.write("notes.md", "one\n")
    ConversationMemory(memory).append_messages([Message("user", "hi"), Message("assistant", "ho")])
    yield Opened(watch, memory)
    service.close()


_FILE = "/memories/notes.md"
_COMMANDS: dict[str, dict[str, object]] = {
    "view": {"path": _FILE},
    "create": {"path": "/memories/new.md", "file_text": "x"},
    "str_replace": {"path": _FILE, "old_str": "one", "new_str": "two"},
    "insert": {"path": _FILE, "insert_line": 0, "insert_text": "zero"},
    "delete": {"path": _FILE},
    "rename": {"old_path": _FILE, "new_path": "/memories/new.md"},
}
_ALL_COMMANDS: list[Args] = [({"command": command, **facts},) for command, facts in _COMMANDS.items()]
JOB = CronJob("1", "job", "do it", "* * * * *")
CALLS: dict[tuple[type, str], list[Args]] = {
    (MemoryTool, "call"): _ALL_COMMANDS,
    (AgentMemoryTool, "call"): _ALL_COMMANDS,
    (AgentMemoryTool, "clear_all_memory"): [()],
    (AgentMemoryTools, "call"): [
        ("read_agent_memory_file", {"file_path": "notes.md"}),
        ("write_agent_memory_file", {"file_path": "n.md", "content_base64": "eA=="}),
        ("append_to_agent_memory_file", {"file_path": "notes.md", "content_to_append_base64": "eA=="}),
    ],
    (MemorySearch, "call"): [({"query": "one"},)],
    (MemorySearch, "search"): [("one",)],
    (FileSystemManager, "handle_append"): [("notes.md", "x")],
    (FileSystemManager, "handle_create"): [("new.md", "x")],
    (ConversationMemory, "append_message"): [(Message("user", "hi"),)],
    (ConversationMemory, "append_messages"): [([Message("user", "hi")],)],
    (ConversationMemory, "compact"): [(1,), (1, None, "old.jsonl")],
    (ConversationMemory, "iter_history"): [()],
    (ConversationMemory, "load_history"): [()],
    (ConversationMemory, "load_cron_jobs"): [()],
    (ConversationMemory, "save_cron_jobs"): [([JOB],)],
    (ConversationMemory, "load_global_memory"): [()],
    (ConversationMemory, "save_global_memory"): [("x",)],
    (ConversationMemory, "search"): [("hi",)],
    (MemoryContext, "build_messages"): [("system", "hi")],
    (MemoryContext, "persist_exchange"): [("hi", "ho")],
    (MemoryWriteTool, "call"): [({"content": "x"},)],
    (SearchHistoryTool, "call"): [({"query": "hi"},)],
}
EACH = [(cls, method, args) for (cls, method), calls in CALLS.items() for args in calls]
each_call = pytest.mark.parametrize(
    ("cls", "method", "args"), EACH, ids=[f"{cls.__name__}.{method}-{n}" for n, (cls, method, _) in enumerate(EACH)]
)
DEFINITIONS = {"tool_definition", "tool_definitions", "to_dict", "name"}
CONSTRUCTORS = {"for_project", "for_repository"}
THE_SDKS = {"execute", *_COMMANDS}  # other names of `AgentMemoryTool.call`


def surfaces() -> set[type]:
    """Every class of this package whose constructor takes a memory or a conversation, sync and async."""
    named = [getattr(module, name) for module in (tools, conversations) for name in module.__all__]
    found: set[type] = {
        AgentMemoryTool,
        anthropic.AsyncAgentMemoryTool,
        *(each for each in named if isinstance(each, type)),
    }
    return {cls for cls in found if {"memory", "conversation"} & set(inspect.signature(cls).parameters)}


def twin(cls: type) -> type:
    """The same class for async callers."""
    found: type = getattr(sys.modules[cls.__module__], f"Async{cls.__name__}")
    return found


def test_this_module_tests_every_public_method_of_every_surface() -> None:
    methods = {
        (cls, name)
        for cls in surfaces()
        for name in dir(cls)
        if not name.startswith("_")
        and callable(getattr(cls, name))
        and name not in DEFINITIONS | CONSTRUCTORS | THE_SDKS
    }
    assert methods == {(each, name) for cls, name in CALLS for each in (cls, twin(cls))}


@each_call
def test_a_surface_touches_the_storage_only_within_operations_reported_once(
    opened: Opened, cls: type, method: str, args: Args
) -> None:
    of_conversation = "memory" not in inspect.signature(cls).parameters
    surface = cls(ConversationMemory(opened.memory) if of_conversation else opened.memory)
    with opened.watch.seeing(f"{cls.__name__}.{method}"):
        found = getattr(surface, method)(*args)
        if isinstance(found, Iterator):
            list(found)


@pytest.mark.asyncio
@each_call
async def test_an_async_surface_touches_the_storage_only_within_operations_reported_once(
    opened: Opened, cls: type, method: str, args: Args
) -> None:
    of_conversation = "memory" not in inspect.signature(cls).parameters
    surface = twin(cls)(AsyncConversationMemory(opened.twin) if of_conversation else opened.twin)
    with opened.watch.seeing(f"{twin(cls).__name__}.{method}"):
        found = getattr(surface, method)(*args)
        if isinstance(found, AsyncIterator):
            _ = [each async for each in found]
        else:
            await found


MCP: dict[str, dict[str, object]] = {
    **_COMMANDS,
    "append": {"path": _FILE, "text": "x"},
    "search": {"query": "one"},
}


def test_this_module_tests_every_tool_of_the_mcp_server() -> None:
    assert set(MCP) == set(TOOLS)


@pytest.mark.asyncio
@pytest.mark.parametrize(("tool", "arguments"), MCP.items())
async def test_an_mcp_tool_touches_the_storage_only_within_operations_reported_once(
    opened: Opened, tool: str, arguments: dict[str, object]
) -> None:
    server = mcp_server(opened.twin, actor="me")
    with opened.watch.seeing(tool):
        assert not (await server.call_tool(tool, arguments)).is_error  # type: ignore[union-attr]


@pytest.mark.asyncio
async def test_mcp_resources_touch_the_storage_only_within_operations_reported_once(opened: Opened) -> None:
    server = mcp_server(opened.twin, actor="me")
    with opened.watch.seeing("list_resources"):
        found = await server.list_resources()
    with opened.watch.seeing("read_resource"):
        await server.read_resource(next(str(each.uri) for each in found if each.name == "notes.md"))


FILES: dict[str, Args] = {
    "cat": ("notes.md",), "cat_file": ("notes.md",), "cat_ranges": (["notes.md"], [0], [1]), "checksum": ("notes.md",),
    "copy": ("notes.md", "n.md"), "cp": ("notes.md", "n.md"), "cp_file": ("notes.md", "n.md"), "delete": ("notes.md",),
    "disk_usage": ("",), "du": ("",), "exists": ("notes.md",), "expand_path": ("*",), "find": ("",),
    "glob": ("*.md",), "head": ("notes.md",), "info": ("notes.md",), "isdir": ("notes.md",), "isfile": ("notes.md",),
    "lexists": ("notes.md",), "listdir": ("",), "ls": ("",), "modified": ("notes.md",), "move": ("notes.md", "n.md"),
    "mv": ("notes.md", "n.md"), "pipe": ("n.md", b"x"), "pipe_file": ("n.md", b"x"), "read_block": ("notes.md", 0, 1),
    "read_bytes": ("notes.md",), "read_text": ("notes.md",), "rename": ("notes.md", "n.md"), "rm": ("notes.md",),
    "rm_file": ("notes.md",), "size": ("notes.md",), "sizes": (["notes.md"],), "stat": ("notes.md",),
    "tail": ("notes.md",), "touch": ("n.md",), "tree": ("",), "ukey": ("notes.md",), "write_bytes": ("n.md", b"x"),
    "write_text": ("n.md", "x"),
}  # fmt: skip
HOST = {"get", "get_file", "download", "put", "put_file", "upload"}
"""Copies between the memory and a folder of the host, made of the other methods; tested in `tests.filesystem`."""
LAZY = {"open", "walk", "get_mapper", "start_transaction", "end_transaction", "transaction_type"}
"""Methods that return an object whose use is an operation; tested in `tests.filesystem`."""
NO_STORAGE = {"makedir", "makedirs", "mkdir", "mkdirs", "rmdir", "created", "sign", "clear_instance_cache", "current",
              "from_dict", "from_json", "to_dict", "to_json", "invalidate_cache", "unstrip_protocol"}  # fmt: skip


def test_every_method_of_the_filesystem_is_tested_or_listed_here() -> None:
    names = {name for name in dir(AgentMemoryFileSystem) if not name.startswith("_")}
    methods = {name for name in names if callable(getattr(AgentMemoryFileSystem, name))}
    assert methods == set(FILES) | HOST | LAZY | NO_STORAGE


@pytest.mark.parametrize(("method", "args"), FILES.items())
def test_the_filesystem_touches_the_storage_only_within_operations_reported_once(
    opened: Opened, method: str, args: Args
) -> None:
    fs = filesystem(opened.memory)
    with opened.watch.seeing(method):
        getattr(fs, method)(*args)


LINES: dict[str, list[str]] = {
    "read": ["notes.md"], "write": ["n.md", "x"], "append": ["notes.md", "x"], "create": ["n.md", "x"],
    "edit": ["notes.md", "--replace", "one", "two"], "ls": [], "tree": [], "rm": ["notes.md"],
    "mv": ["notes.md", "n.md"], "cp": ["notes.md", "n.md"], "agents": [], "search": ["one"],
    "conversation": ["show"], "import": ["folder"], "export": ["out"], "forget": ["--yes", "notes.md"],
    "versions": ["notes.md"], "prune": [], "du": [], "limits": ["on", "--file-bytes", "100"],
    "expire": ["**", "--days", "1", "--yes"],
}  # fmt: skip
BELOW = {"doctor", "demo", "audit"}
"""Commands that read the storage itself, or the audit log."""
OTHERWISE = {
    "connect",
    "diff",
    "mcp",
    "new",
    "plugins",
    "redact",
    "restore",
    "s3-policy",
    "prove",
    "transfer",
    "undo",
    "web",
}
"""Commands with two stores (below), with a server (above), with versions (`tests.cli`), or without a storage."""


def test_this_module_tests_or_lists_every_command() -> None:
    assert set(commands_of(app)) == set(LINES) | BELOW | OTHERWISE


@pytest.mark.parametrize(("command", "args"), LINES.items())
def test_a_command_touches_the_storage_only_within_operations_reported_once(
    opened: Opened, command: str, args: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.md").write_text("x")
    monkeypatch.setattr(cli_settings, "open_backend", lambda *_: opened.memory._tree.backend)
    monkeypatch.setattr(cli_settings, "plugins_of", lambda _: [opened.watch])
    monkeypatch.setattr("agent_memory.service._refuse_source_checkout", lambda _: None)
    with opened.watch.seeing(command):
        result = CliRunner().invoke(app, ["--url", "memory://", "--agent", "bob", command, *args])
        assert result.exit_code == 0, result.output


def test_a_copy_between_stores_touches_them_only_within_operations(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = guarded(opened.watch)
    backends = {"memory://one": opened.memory._tree.backend, "memory://two": other}
    monkeypatch.setattr(cli_settings, "open_backend", lambda url, _: backends[url])
    monkeypatch.setattr(cli_settings, "plugins_of", lambda _: [opened.watch])
    monkeypatch.setattr("agent_memory.service._refuse_source_checkout", lambda _: None)
    monkeypatch.setattr("agent_memory.cli.transfer._no_agents", lambda _: [])  # searches outside the agents
    with opened.watch.seeing("transfer"):
        result = CliRunner().invoke(app, ["transfer", "memory://one", "memory://two"])
        assert result.exit_code == 0, result.output
