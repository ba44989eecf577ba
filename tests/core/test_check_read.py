"""A guard of reads sees all content before a caller gets it, and what it refuses reaches no caller."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemoryService,
    Operation,
    OperationDenied,
    PartialOperationError,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import Backend
from agent_memory.conversation import ConversationMemory, Message, SearchHistoryTool
from agent_memory.filesystem import filesystem
from agent_memory.mcp_server import mcp_server
from agent_memory.reading.reader import Reader
from agent_memory.testing import RecordingPlugin
from agent_memory.tools import AgentMemoryTools, MemorySearch, MemoryTool
from agent_memory_memory import MemoryBackend
from tests.core.test_hooks import AsyncTwin
from tests.support.every_kind import value
from tests.support.servers import ATOMIC, Root

SECRET = "secret-7c1d"
LINES = "".join(f"line {number}\n" for number in range(2_000))


class Read(NamedTuple):
    """The facts of one call of the hook."""

    kind: str
    content: bytes
    start: int
    size: int


class Guard:
    """Records each call, and refuses content with the secret."""

    def __init__(self, refuses: bool = True) -> None:
        self.seen: list[Read] = []
        self._refuses = refuses

    @hookimpl
    def agent_memory_check_read(self, operation: Operation, content: bytes, start: int, size: int) -> None:
        self.seen.append(Read(operation.kind, content, start, size))
        if self._refuses and SECRET.encode() in content.lower():
            raise OperationDenied("the content is not what was written", path=operation.path)


async def first_bytes(reader: Reader) -> bytes:
    return await reader.read(0, 100)


async def caught(reader: Reader) -> str:
    try:
        await reader.read(0, 100)
    except OperationDenied:
        return "caught"
    return "read"


def never(_: object) -> Any:
    raise AssertionError("the caller's function got the content")


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda memory, _: memory.read("a.md"),
    "read_bytes": lambda memory, _: memory.read_bytes("a.md"),
    "read_many": lambda memory, _: memory.read_many(["a.md"]),
    "tail": lambda memory, _: memory.tail("a.md", 1),
    "scan": lambda memory, _: memory.scan("a.md", first_bytes),
    "a scan that catches the refusal": lambda memory, _: memory.scan("a.md", caught),
    "edit": lambda memory, _: memory.edit("a.md", never),
    "edit_bytes": lambda memory, _: memory.edit_bytes("a.md", never),
    "an edit with a default": lambda memory, _: memory.edit("a.md", never, missing=""),
    "versions.read": lambda memory, version: memory.versions.read("a.md", version),
    "versions.read_bytes": lambda memory, version: memory.versions.read_bytes("a.md", version),
    "versions.diff": lambda memory, version: memory.versions.diff("a.md", version),
}


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
@pytest.mark.parametrize("cls", [AgentMemoryService, AsyncAgentMemoryService])
def test_refused_content_reaches_no_caller_by_any_method(root: Root, cls: type[Any]) -> None:
    recorder, plain = RecordingPlugin(), AgentMemoryService(root.url, storage_options=root.options)

    async def play() -> None:
        options: dict[str, Any] = {"storage_options": root.options, "versions": VersionLimits()}
        service = cls(root.url, plugins=[recorder, Guard()], **options)
        memory = service.agent("bob")
        await value(memory.write("a.md", f"{SECRET} one\n"))
        await value(memory.write("a.md", f"{SECRET} two\n"))
        version = (await value(memory.versions.list("a.md")))[1]
        for name, way in WAYS.items():
            recorder.after.clear()
            with pytest.raises(OperationDenied, match="not what was written"):
                await value(way(memory, version))
            ((operation, outcome),) = recorder.after
            assert (outcome.status, outcome.error) == ("denied", None), name
            assert operation.kind == ("read_version" if "versions" in name else "edit" if "edit" in name else "read")
        await value(service.aclose() if cls is AsyncAgentMemoryService else service.close())

    asyncio.run(play())
    with plain:
        assert plain.agent("bob").read("a.md") == f"{SECRET} two\n"


def test_several_refused_files_of_one_call_are_named_and_the_error_has_no_content() -> None:
    memory = AgentMemory.open(MemoryBackend(), plugins=[Guard()])
    for name in ("a.md", "b.md"):
        memory.write(name, SECRET)
    memory.write("c.md", "x")
    with pytest.raises(PartialOperationError) as raised:
        memory.read_many(["a.md", "b.md", "c.md"])
    assert raised.value.left == ("a.md", "b.md")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_the_guard_gets_the_bytes_with_their_place_in_the_file(root: Root) -> None:
    guard = Guard()
    data = LINES.encode()

    async def in_ranges(reader: Reader) -> None:
        await reader.read(0, 10)
        await reader.read(5_000, 5_010)
        await reader.read(len(data) - 5, len(data) + 100)
        await reader.read(0, 0)
        await reader.read(len(data), len(data) + 1)

    async def from_the_end(reader: Reader) -> None:
        await reader.read_tail(7)

    with AgentMemory.open(root.url, storage_options=root.options, plugins=[guard]) as memory:
        memory.write("a.md", LINES)
        memory.write("empty.md", "")
        memory.read("a.md")
        memory.read_bytes("empty.md")
        memory.tail("a.md", 2)
        memory.scan("a.md", in_ranges)
        memory.scan("a.md", from_the_end)
        memory.edit("a.md", lambda text: text)
    size, tail = len(data), b"line 1998\nline 1999\n"
    assert guard.seen == [
        Read("read", data, 0, size),
        Read("read", b"", 0, 0),
        Read("read", tail, size - len(tail), size),
        Read("read", data[:10], 0, size),
        Read("read", data[5_000:5_010], 5_000, size),
        Read("read", data[-5:], size - 5, size),
        Read("read", data[-7:], size - 7, size),
        Read("edit", data, 0, size),
    ]


def test_operations_that_give_no_content_to_the_caller_call_no_guard_of_reads() -> None:
    guard = Guard(refuses=False)
    with AgentMemoryService(MemoryBackend(), plugins=[guard], versions=VersionLimits()) as service:
        memory = service.agent("bob")
        memory.write("a.md", "one")
        memory.write("a.md", "two", when=memory.stat("a.md").etag or never(0))
        memory.append("a.md", "three")
        memory.copy("a.md", "b.md")
        memory.rename("b.md", "c.md")
        memory.exists("a.md")
        memory.list()
        memory.usage()
        (_, version) = memory.versions.list("a.md")
        memory.versions.restore("a.md", version)
        memory.edit("new.md", lambda text: text + "x", missing="default")
        memory.once("key").write("a.md", "x")
        memory.delete("c.md")
        memory.forget("")
    assert guard.seen == []


@pytest.mark.parametrize("error", [ValueError(f"a defect with {SECRET}"), None], ids=["raises", "returns a value"])
def test_a_guard_of_reads_that_fails_or_returns_a_value_refuses_the_read(error: Exception | None) -> None:
    class Broken:
        @hookimpl
        def agent_memory_check_read(self) -> bool:
            if error:
                raise error
            return True

    memory = AgentMemory.open(MemoryBackend(), plugins=[Broken()])
    memory.write("a.md", "x")
    with pytest.raises(OperationDenied, match=r"failed in agent_memory_check_read|returned a value") as raised:
        memory.read("a.md")
    assert SECRET not in str(raised.value)


def test_the_guard_is_asked_before_the_content_is_decoded() -> None:
    memory = AgentMemory.open(MemoryBackend(), plugins=[Guard()])
    memory.write("a.md", SECRET.encode() + b"\xff")
    with pytest.raises(OperationDenied):
        memory.read("a.md")
    with pytest.raises(OperationDenied):
        memory.tail("a.md", 1)


def test_an_edit_asks_the_guard_once_per_attempt() -> None:
    class Changing:
        seen: ClassVar[list[bytes]] = []

        @hookimpl
        def agent_memory_check_read(self, content: bytes) -> None:
            self.seen.append(content)
            if len(self.seen) == 1:
                other.write("a.md", "theirs")

    store = MemoryBackend()
    other = AgentMemory.open(store)
    memory = AgentMemory.open(store, plugins=[Changing()])
    memory.write("a.md", "mine")
    memory.edit("a.md", lambda text: text + "!")
    assert Changing.seen == [b"mine", b"theirs"]
    assert other.read("a.md") == "theirs!"


def test_without_a_guard_of_reads_nothing_is_asked() -> None:
    memory = AgentMemory.open(MemoryBackend())
    assert memory._tree.hooks.guards_of_reads is False
    assert memory._tree.read_guard(never) is None  # type: ignore[arg-type]  # it looks at no call


TOOLS: dict[str, Callable[[AgentMemory], object]] = {
    "MemoryTool.view": lambda m: MemoryTool(m).call({"command": "view", "path": "/memories/a.md"}),
    "MemoryTool.str_replace": lambda m: MemoryTool(m).call(
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "x", "new_str": "y"}
    ),
    "MemoryTool.insert": lambda m: MemoryTool(m).call(
        {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "y"}
    ),
    "AgentMemoryTools.read": lambda m: AgentMemoryTools(m).call("read_agent_memory_file", {"file_path": "a.md"}),
    "MemorySearch.call": lambda m: MemorySearch(m).call({"query": "secret"}),
    "MemorySearch.search": lambda m: MemorySearch(m).search("secret"),
    "ConversationMemory.load_history": lambda m: ConversationMemory(m).load_history(),
    "ConversationMemory.load_global_memory": lambda m: ConversationMemory(m).load_global_memory(),
    "SearchHistoryTool": lambda m: SearchHistoryTool(ConversationMemory(m)).call({"query": "secret"}),
}
FILES: dict[str, Callable[[Any], object]] = {
    "cat": lambda fs: fs.cat("a.md"),
    "cat_ranges": lambda fs: fs.cat_ranges(["a.md"], [0], [20]),
    "head": lambda fs: fs.head("a.md"),
    "tail": lambda fs: fs.tail("a.md"),
    "read_text": lambda fs: fs.read_text("a.md"),
    "open": lambda fs: fs.open("a.md").read(),
    "read_block": lambda fs: fs.read_block("a.md", 0, 20),
}


@pytest.fixture(params=[lambda store: store, "async"], ids=["blocking", "async"])
def guarded(request: pytest.FixtureRequest) -> AgentMemory:
    """A memory whose files, also those of a conversation, have the secret; a guard refuses to read them."""
    store = MemoryBackend()
    backend: MemoryBackend | Backend = AsyncTwin(store) if request.param == "async" else store
    plain = AgentMemory.open(backend)
    plain.write("a.md", f"{SECRET} x\n")
    conversation = ConversationMemory(plain)
    conversation.append_message(Message("user", SECRET))
    conversation.save_global_memory(SECRET)
    return AgentMemory.open(backend, plugins=[Guard()])


def result_of(call: Callable[[], object]) -> str:
    """What a caller gets: the result, or the error with its notes and causes."""
    try:
        result = call()
        return str(list(result)) if inspect.isgenerator(result) else repr(result)
    except OperationDenied as error:
        return repr(error)


@pytest.mark.parametrize("name", TOOLS)
def test_no_tool_returns_refused_content(guarded: AgentMemory, name: str) -> None:
    shown = result_of(lambda: TOOLS[name](guarded))
    assert SECRET not in shown
    assert "not what was written" in shown


@pytest.mark.parametrize("name", FILES)
def test_the_filesystem_returns_no_refused_content(guarded: AgentMemory, name: str) -> None:
    fs = filesystem(guarded)
    shown = result_of(lambda: FILES[name](fs))
    assert SECRET not in shown
    assert "not what was written" in shown


@pytest.mark.asyncio
async def test_the_mcp_server_returns_no_refused_content(guarded: AgentMemory) -> None:
    server = mcp_server(guarded.as_async(), actor="me", history=True)
    shown: list[str] = []
    for tool, arguments in (
        ("view", {"path": "/memories/a.md"}),
        ("search", {"query": "secret"}),
        ("str_replace", {"path": "/memories/a.md", "old_str": "x", "new_str": "y"}),
    ):
        shown.append(repr(await server.call_tool(tool, arguments)))
    resource = next(str(each.uri) for each in await server.list_resources() if each.name == "a.md")
    with pytest.raises(Exception, match="a.md") as raised:  # noqa: RUF043 - the SDK's error
        await server.read_resource(resource)
    assert SECRET not in f"{shown}{raised.value}"
    assert all("not what was written" in each for each in shown)
