"""The workspace of Pydantic AI, on every storage: its conformance suite, and an agent with a tool."""

from __future__ import annotations

import asyncio
import posixpath
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from agent_memory.filesystem import filesystem

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.workspaces import (
    FileEntry,
    ReadOnlyWorkspace,
    SupportsCommands,
    SupportsFilesystem,
    Workspace,
    WorkspaceBackend,
    WorkspaceReadOnlyError,
    WorkspaceRef,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from agent_memory import AgentMemory, InvalidPathError, OperationDenied
from agent_memory.integrations.pydantic_ai import DIRECTORY_FILE, AgentMemoryWorkspace, memory_tools
from agent_memory.testing.recording import RecordingPlugin
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, race, rounds
from tests.integrations.note_taking import NoteTaker, check
from tests.support.servers import Root


class TestConformance(WorkspaceBackendSuite):
    """The framework's published suite. The rules for commands and for destroyed environments skip."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def backend(self, memory: AgentMemory) -> WorkspaceBackend:
        return AgentMemoryWorkspace(memory)

    @pytest.fixture
    def attach_backend(self, memory: AgentMemory) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: AgentMemoryWorkspace(memory, name=ref.id)


class TestConformanceOfAnAsyncSubtree(TestConformance):
    """The same for a directory of an `AsyncAgentMemory`."""

    @pytest.fixture
    def backend(self, memory: AgentMemory) -> WorkspaceBackend:
        return AgentMemoryWorkspace(memory.as_async().subtree("a/b"))

    @pytest.fixture
    def attach_backend(self, memory: AgentMemory) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: AgentMemoryWorkspace(memory.subtree("a/b"), name=ref.id)


def names(entries: Sequence[FileEntry]) -> list[str]:
    return [f"{entry.name}/" if entry.is_dir else entry.name for entry in entries]


def stored(memory: AgentMemory) -> list[str]:
    return [entry.path for entry in memory.list()]


@pytest.mark.asyncio
async def test_a_file_of_the_workspace_is_the_file_of_the_memory_with_the_same_path(memory: AgentMemory) -> None:
    workspace = Workspace(AgentMemoryWorkspace(memory))
    await workspace.write_text("notes/café.md", "één")
    await workspace.write_bytes("/log.bin", b"\0\xff")
    assert memory.read("notes/café.md") == "één"
    assert memory.read_bytes("log.bin") == b"\0\xff"
    memory.write("notes/today.md", "by another tool")
    assert await workspace.read_text("/notes/today.md") == "by another tool"
    assert names(await workspace.list_dir(".")) == ["log.bin", "notes/"]
    assert names(await workspace.list_dir("notes")) == ["café.md", "today.md"]
    assert await workspace.stat("notes/today.md") == FileEntry(
        name="today.md", path="/notes/today.md", is_dir=False, size=15
    )


@pytest.mark.asyncio
async def test_the_working_directory_always_exists_and_is_the_whole_memory(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    assert await backend.working_dir() == "/"
    assert await backend.list_dir("/") == []
    assert await backend.exists("/")
    assert await backend.stat("/") == FileEntry(name="", path="/", is_dir=True, size=None)
    await backend.make_dir("/")
    assert stored(memory) == []
    for opened in (backend.read_bytes("/"), backend.write_bytes("/", b"x")):
        with pytest.raises(IsADirectoryError):
            await opened


@pytest.mark.asyncio
async def test_a_made_directory_is_empty_and_stays_until_it_is_removed(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    await backend.make_dir("/a/b")
    assert stored(memory) == [f"a/b/{DIRECTORY_FILE}"]
    assert memory.read(f"a/b/{DIRECTORY_FILE}") == ""
    assert names(await backend.list_dir("/a")) == ["b/"]
    assert await backend.list_dir("/a/b") == []
    await backend.write_bytes("/a/b/file", b"x")
    assert names(await backend.list_dir("/a/b")) == ["file"]
    await backend.remove("/a/b/file")
    assert await backend.list_dir("/a/b") == []
    await backend.remove("/a")
    assert stored(memory) == []
    assert not await backend.exists("/a")


@pytest.mark.asyncio
async def test_a_directory_with_files_can_be_made_so_that_it_outlives_them(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    await backend.write_bytes("/a/file", b"x")
    await backend.make_dir("/a")
    await backend.remove("/a/file")
    assert await backend.list_dir("/a") == []


@pytest.mark.asyncio
async def test_a_directory_that_was_not_made_exists_while_a_file_is_below_it(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    await backend.write_bytes("/a/b/file", b"x")
    assert await backend.exists("/a")
    await backend.remove("/a/b/file")
    assert not await backend.exists("/a")


@pytest.mark.asyncio
async def test_the_file_of_a_made_directory_cannot_be_opened_or_removed_by_its_name(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    await backend.make_dir("/a")
    path = f"/a/{DIRECTORY_FILE}"
    for opened in (
        backend.read_bytes(path),
        backend.write_bytes(path, b"x"),
        backend.stat(path),
        backend.list_dir(path),
        backend.make_dir(path),
        backend.make_dir(f"{path}/b"),
        backend.remove(path),
    ):
        with pytest.raises(ValueError, match="reserved"):
            await opened
    assert not await backend.exists(path)
    assert stored(memory) == [path[1:]]


@pytest.mark.asyncio
async def test_the_errors_are_the_builtin_ones_and_name_only_the_path_in_the_workspace(
    memory: AgentMemory, place: Root
) -> None:
    backend = AgentMemoryWorkspace(memory)
    await backend.write_bytes("/d/file", b"x")
    for expected, opened in (
        (FileNotFoundError, backend.read_bytes("/d/none")),
        (FileNotFoundError, backend.read_bytes("/d/file/below")),
        (FileNotFoundError, backend.stat("/none")),
        (FileNotFoundError, backend.list_dir("/none")),
        (FileNotFoundError, backend.remove("/none")),
        (IsADirectoryError, backend.read_bytes("/d")),
        (IsADirectoryError, backend.write_bytes("/d", b"x")),
        (NotADirectoryError, backend.write_bytes("/d/file/below", b"x")),
        (NotADirectoryError, backend.list_dir("/d/file")),
        (NotADirectoryError, backend.make_dir("/d/file/below")),
        (FileExistsError, backend.make_dir("/d/file")),
    ):
        with pytest.raises(expected) as raised:
            await opened
        assert re.search("'/?(d|none)", str(raised.value))
        assert place.url not in str(raised.value)
    assert stored(memory) == ["d/file"]


@pytest.mark.asyncio
async def test_a_relative_path_and_a_path_of_another_type_are_refused() -> None:
    backend: Any = AgentMemoryWorkspace(AgentMemory.open("memory://"))
    methods = (backend.read_bytes, backend.stat, backend.list_dir, backend.make_dir, backend.remove, backend.exists)
    for method in methods:
        with pytest.raises(ValueError, match="absolute"):
            await method("a/b")
        with pytest.raises(TypeError):
            await method(7)
    for content in ("text", None):
        with pytest.raises(ValueError, match="content must be bytes"):
            await backend.write_bytes("/a", content)
    assert not await backend.exists("/a")


def test_a_workspace_is_made_of_a_memory_and_a_name_and_is_no_copy() -> None:
    memory = AgentMemory.open("memory://")
    for other in (None, "memory://", filesystem(memory)):
        with pytest.raises(TypeError, match="takes an AgentMemory"):
            AgentMemoryWorkspace(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a str"):
        AgentMemoryWorkspace(memory, name=7)  # type: ignore[arg-type]
    backend = AgentMemoryWorkspace(memory, name="notes of ann")
    assert backend.ref == WorkspaceRef(provider="agent-memory", id="notes of ann")
    assert isinstance(backend, WorkspaceBackend)
    assert isinstance(backend, SupportsFilesystem)
    assert not isinstance(backend, SupportsCommands)


# Names.


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.asyncio
async def test_a_hostile_name_is_a_file_or_is_refused(name: str, memory: AgentMemory) -> None:
    memory.write("outside", "x")
    inner = AgentMemoryWorkspace(memory.subtree("in"))
    backends: tuple[AgentMemoryWorkspace | Workspace, ...] = (inner, Workspace(inner))
    for backend in backends:
        try:
            await backend.write_bytes(f"/{name}", name.encode())
        except (ValueError, IsADirectoryError):
            assert stored(memory) == ["outside"]
            continue
        assert await backend.read_bytes(f"/{name}") == name.encode()
        assert await backend.exists(f"/{name}")
        (found,) = [path for path in stored(memory) if path != "outside"]
        assert found.startswith("in/")
        await backend.remove(f"/{name}")
        assert stored(memory) == ["outside"]


def test_a_hostile_name_never_leaves_the_directory_of_the_storage(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"

    async def write(backend: AgentMemoryWorkspace, name: str) -> None:
        for path in (f"/{name}", f"/in/{name}", f"/in/{name}/file"):
            try:
                await backend.write_bytes(path, b"x")
                await backend.make_dir(f"{path}.d")
            except (ValueError, OSError):
                continue

    with AgentMemory.open(root) as memory:
        for name in HOSTILE:
            asyncio.run(write(AgentMemoryWorkspace(memory), name))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["root"]


@given(one=IDS, two=IDS)
@settings(max_examples=50)
def test_two_names_never_share_a_file(one: str, two: str) -> None:
    async def share() -> None:
        backend = AgentMemoryWorkspace(AgentMemory.open("memory://"))
        written = {}
        for name in (one, two):
            path = posixpath.normpath(f"/{name.lstrip('/')}")
            try:
                await backend.write_bytes(path, name.encode())
            except (ValueError, OSError):
                continue
            written[path] = name.encode()
        assert {path: await backend.read_bytes(path) for path in written} == written

    asyncio.run(share())


@pytest.mark.asyncio
async def test_a_refused_name_tells_the_rule_and_a_valid_name() -> None:
    backend = AgentMemoryWorkspace(AgentMemory.open("memory://"))
    with pytest.raises(InvalidPathError, match=r"must not contain any of .*; in place of 'Q&A\?.md' use 'Q&A.md'"):
        await backend.write_bytes("/Q&A?.md", b"x")
    for opened in (
        backend.read_bytes("/Q&A?.md"),
        backend.stat("/CON"),
        backend.make_dir("/a:b"),
        backend.list_dir("/.."),
    ):
        with pytest.raises(ValueError, match="is refused"):
            await opened
    for path in ("/Q&A?.md", "/..", "/CON", "/" + "x" * 500):
        assert not await backend.exists(path)


# Hooks and permissions.


@pytest.mark.asyncio
async def test_a_read_only_memory_refuses_changes_as_a_lack_of_permission(memory: AgentMemory) -> None:
    memory.write("d/file", "x")
    backend = AgentMemoryWorkspace(memory.read_only())
    for change in (
        backend.write_bytes("/d/file", b"y"),
        backend.write_bytes("/new", b"y"),
        backend.make_dir("/new"),
        backend.remove("/d/file"),
        backend.remove("/d"),
    ):
        with pytest.raises(PermissionError, match="read-only") as raised:
            await change
        assert isinstance(raised.value, OperationDenied)
    assert stored(memory) == ["d/file"]
    assert await backend.read_bytes("/d/file") == b"x"


@pytest.mark.asyncio
async def test_the_frameworks_read_only_wrapper_works_as_usual() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", "x")
    workspace = ReadOnlyWorkspace(Workspace(AgentMemoryWorkspace(memory)))
    assert await workspace.read_text("file") == "x"
    with pytest.raises(WorkspaceReadOnlyError):
        await workspace.remove("file")
    assert stored(memory) == ["file"]


@pytest.mark.asyncio
async def test_a_workspace_has_no_commands() -> None:
    workspace = Workspace(AgentMemoryWorkspace(AgentMemory.open("memory://")))
    with pytest.raises(UserError, match="command execution"):
        await workspace.run(["true"])


@pytest.mark.asyncio
async def test_plugins_see_each_operation_with_its_actor() -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    backend = AgentMemoryWorkspace(memory.acting_as("ann"))
    await backend.write_bytes("/d/file", b"x")
    await backend.read_bytes("/d/file")
    await backend.make_dir("/e")
    await backend.remove("/e")
    seen = [(operation.kind, operation.path, operation.actor, outcome.status) for operation, outcome in recorder.after]
    assert seen == [
        ("write", "d/file", "ann", "ok"),
        ("read", "d/file", "ann", "ok"),
        ("create", f"e/{DIRECTORY_FILE}", "ann", "ok"),
        ("delete", "e", "ann", "error"),
        ("delete_tree", "e", "ann", "ok"),
    ]


# Several writers.


def add(memory: AgentMemory, process: int, number: int) -> None:
    async def write() -> None:
        backend = AgentMemoryWorkspace(memory)
        await backend.make_dir(f"/log/{number}")
        await backend.write_bytes(f"/log/{number}/{process}.md", f"{process} {number}".encode())

    asyncio.run(write())


@rounds(5, 1)
def test_race_of_processes_that_add_files_keeps_all_of_them(shared_place: Root) -> None:
    race(shared_place, add)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        files = {path for path in stored(memory) if not path.endswith(DIRECTORY_FILE)}
        assert files == {f"log/{number}/{process}.md" for number in range(ADDITIONS) for process in range(PROCESSES)}
        for number in range(ADDITIONS):
            assert memory.read(f"log/{number}/0.md") == f"0 {number}"


def make_one_directory(memory: AgentMemory) -> bool:
    async def make() -> bool:
        backend = AgentMemoryWorkspace(memory)
        await backend.make_dir("/a/b")
        return (await backend.stat("/a/b")).is_dir

    return asyncio.run(make())


def test_at_once_two_processes_can_make_the_same_directory(shared_place: Root) -> None:
    assert at_once(shared_place, make_one_directory) == [True, True]


@pytest.mark.asyncio
async def test_tasks_at_once_write_many_files(memory: AgentMemory) -> None:
    backend = AgentMemoryWorkspace(memory)
    await asyncio.gather(*(backend.write_bytes(f"/{number}.md", b"%d" % number) for number in range(20)))
    assert {path: memory.read(path) for path in stored(memory)} == {f"{n}.md": f"{n}" for n in range(20)}


# An agent.


@pytest.mark.asyncio
async def test_a_tool_of_an_agent_has_the_files_and_the_history_names_the_workspace() -> None:
    async def note(context: RunContext[None], text: str) -> str:
        await context.workspace.write_text("notes/today.md", text)
        return await context.workspace.read_text("/notes/today.md")

    memory = AgentMemory.open("memory://")
    workspace = AgentMemoryWorkspace(memory, name="of ann")
    result = await Agent(TestModel(), tools=[note]).run("go", workspace=workspace)
    assert memory.read("notes/today.md") in result.output
    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert response.workspace_ref == workspace.ref


# The module.


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_workspace_needs_no_harness() -> None:
    code = (
        "import sys; sys.modules['pydantic_ai_harness'] = None\n"
        "from agent_memory.integrations.pydantic_ai import AgentMemoryWorkspace\nprint(AgentMemoryWorkspace.__name__)\n"
        "try:\n    import agent_memory.integrations.pydantic_ai_memory\n"
        "except ImportError as error:\n    print(error)\n"
    )
    name, _, message = run(code).partition("\n")
    assert name == "AgentMemoryWorkspace"
    assert "pydantic-ai-harness" in message
    assert "pip install 'agent-memory-files[pydantic-ai-harness]'" in message


def test_the_error_names_the_missing_framework_and_its_extra() -> None:
    code = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "try:\n    import agent_memory.integrations.pydantic_ai\nexcept ImportError as error:\n    print(error)\n"
    )
    message = run(code)
    assert "pydantic-ai-slim" in message
    assert "pip install 'agent-memory-files[pydantic-ai]'" in message


def test_an_agent_keeps_notes_with_the_tools(place: Root) -> None:
    taker, plugin = NoteTaker(), RecordingPlugin()

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = (part for message in messages for part in message.parts)
        answers = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        call = taker.next(answers)
        if call is None:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*call, tool_call_id=f"call-{len(answers)}")])

    with AgentMemory.open(place.url, storage_options=place.options, actor="ann", plugins=[plugin]) as memory:
        agent = Agent(FunctionModel(respond), tools=memory_tools(memory))
        assert agent.run_sync("go").output == "done"
        check(memory, plugin, [f"call-{number}" for number in range(8)])


@pytest.mark.parametrize("arguments", ["[]", "null", "{", "7", '{"context":1,"path":"/memories"}', '{"self":1}', "{}"])
def test_wrong_arguments_are_told_to_the_model(arguments: str) -> None:
    memory = AgentMemory.open("memory://")

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(tool.name, arguments) for tool in tools])

    tools = memory_tools(memory, versions=True)
    agent = Agent(FunctionModel(respond), tools=tools, retries=3)
    assert agent.run_sync("go").output == "done"
    assert memory.list() == ()
