"""The agent memory tools: the parameters and payloads of the toolset for reading, writing and appending in Base64."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory
from agent_memory.testing import race
from agent_memory.tools import AgentMemoryTools, AsyncAgentMemoryTools, ToolResult
from tests.support.servers import ATOMIC, Root
from tests.tools.calls import everything, fill, refused, succeeded

AnyCall = Callable[..., ToolResult]
READ, WRITE, APPEND = "read_agent_memory_file", "write_agent_memory_file", "append_to_agent_memory_file"


def encoded(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def payload(result: ToolResult) -> dict[str, Any]:
    """The answer of a call that must succeed. Check that its JSON and its data are equal."""
    data: dict[str, Any] = json.loads(succeeded(result))
    assert data == result.data
    return data


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        yield memory


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, memory: AgentMemory, root: Root) -> Iterator[AnyCall]:
    """``call(tool, **parameters)``, sync or async."""
    if request.param == "sync":
        tools = AgentMemoryTools(memory)
        yield lambda name, **parameters: tools.call(name, parameters)
    else:
        other = AsyncAgentMemory.open(root.url, storage_options=root.options)
        async_tools = AsyncAgentMemoryTools(other)
        yield lambda name, **parameters: asyncio.run(async_tools.call(name, parameters))
        asyncio.run(other.aclose())


def test_read_returns_a_files_content_in_base64(memory: AgentMemory, call: AnyCall) -> None:
    memory.write("notes/today.md", "# Grüße\n")
    assert payload(call(READ, file_path="notes/today.md")) == {
        "file_path_read": "notes/today.md",
        "content_base64": encoded("# Grüße\n"),
        "file_exists": True,
        "file_type_hint": "MARKDOWN",
    }


def test_read_of_a_missing_file_is_no_error(memory: AgentMemory, call: AnyCall) -> None:
    memory.write("notes/today.md", "x")
    for path in ("missing.md", "notes", "notes/today.md/below"):
        found = payload(call(READ, file_path=path))
        assert (found["file_path_read"], found["content_base64"], found["file_exists"]) == (path, "", False)
    assert everything(memory) == {"notes/today.md": b"x"}


def test_reading_an_empty_file_reports_that_it_exists(memory: AgentMemory, call: AnyCall) -> None:
    memory.write("a.md", "")
    found = payload(call(READ, file_path="a.md"))
    assert (found["content_base64"], found["file_exists"]) == ("", True)


def test_write_creates_and_replaces_a_file(memory: AgentMemory, call: AnyCall) -> None:
    for content in ("a longer text", "# Grüße\r\n", ""):
        assert payload(call(WRITE, file_path="deep/er/a.md", content_base64=encoded(content))) == {
            "file_path_written": "deep/er/a.md",
            "status_message": "File saved successfully.",
        }
        assert everything(memory) == {"deep/er/a.md": content.encode()}


def test_append_creates_a_file_and_begins_on_a_new_line(memory: AgentMemory, call: AnyCall) -> None:
    for content in ("one", "two\n", "three"):
        assert payload(call(APPEND, file_path="log.md", content_to_append_base64=encoded(content))) == {
            "file_path_appended": "log.md",
            "status_message": "Content appended successfully.",
        }
    assert everything(memory) == {"log.md": b"one\ntwo\nthree"}


def test_append_without_the_newline_option_continues_the_last_line(memory: AgentMemory, call: AnyCall) -> None:
    for ensure in (False, True, None):
        memory.write("log.md", "one")
        appended = call(
            APPEND, file_path="log.md", content_to_append_base64=encoded("two"), ensure_newline_before_append=ensure
        )
        succeeded(appended)
        assert memory.read("log.md") == ("onetwo" if ensure is False else "one\ntwo")


def test_a_directory_is_neither_written_nor_appended_to(memory: AgentMemory, call: AnyCall) -> None:
    memory.write("d/a.md", "a")
    for path in ("d", "d/a.md/below"):
        refused(call(WRITE, file_path=path, content_base64=encoded("x")))
        refused(call(APPEND, file_path=path, content_to_append_base64=encoded("x")))
    assert everything(memory) == {"d/a.md": b"a"}


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_no_concurrent_append_is_lost_and_each_has_its_own_line(memory: AgentMemory) -> None:
    tools = AgentMemoryTools(memory)
    appends = [{"file_path": "log.md", "content_to_append_base64": encoded(f"line {number}")} for number in range(8)]
    for result in race([partial(tools.call, APPEND, arguments) for arguments in appends]):
        assert isinstance(result, ToolResult)
        succeeded(result)
    assert sorted(memory.read("log.md").split("\n")) == [f"line {number}" for number in range(8)]


# The tests below do not depend on the storage.


@pytest.fixture
def private() -> AgentMemory:
    return AgentMemory.open("memory://")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("a.yaml", "YAML"),
        ("a.YML", "YAML"),
        ("a.md", "MARKDOWN"),
        ("d.txt/a.Markdown", "MARKDOWN"),
        ("a.txt", "TEXT"),
        ("a.tar.txt", "TEXT"),
        ("a.json", "UNKNOWN"),
        ("md", "UNKNOWN"),
        (".md", "UNKNOWN"),
        ("a.md.bak", "UNKNOWN"),
    ],
)
def test_the_type_hint_follows_from_the_extension(private: AgentMemory, path: str, hint: str) -> None:
    tools = AgentMemoryTools(private)
    for exists in (False, True):
        found = payload(tools.call(READ, {"file_path": path}))
        assert (found["file_exists"], found["file_type_hint"]) == (exists, hint)
        private.write(path, "x")


@pytest.mark.parametrize("hint", ["YAML", "MARKDOWN", "TEXT", "UNKNOWN", None])
def test_a_given_type_hint_is_accepted(private: AgentMemory, hint: str | None) -> None:
    arguments = {"file_path": "a.md", "content_base64": encoded("x"), "file_type_hint": hint}
    succeeded(AgentMemoryTools(private).call(WRITE, arguments))


def test_an_unknown_type_hint_is_refused(private: AgentMemory) -> None:
    arguments = {"file_path": "a.md", "content_base64": encoded("x"), "file_type_hint": "markdown"}
    output = refused(AgentMemoryTools(private).call(WRITE, arguments))
    assert output == "Error: the parameter `file_type_hint` must be one of YAML, MARKDOWN, TEXT, UNKNOWN"
    assert everything(private) == {}


def test_base64_with_line_breaks_is_accepted(private: AgentMemory) -> None:
    content = "a long text " * 20
    lines = base64.encodebytes(content.encode()).decode()
    assert lines.count("\n") > 2
    succeeded(AgentMemoryTools(private).call(WRITE, {"file_path": "a.md", "content_base64": f"\r\n  {lines}\t"}))
    assert private.read("a.md") == content


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("eA=", "is not valid base64"),
        ("e", "is not valid base64"),
        ("e-_=", "is not valid base64"),
        ("eA==eA==", "is not valid base64"),
        ("plain text!", "is not valid base64"),
        ("ü", "is not valid base64"),
        (encoded(b"\xff"), "does not hold UTF-8 text"),
        (encoded(b"\xed\xa0\x80"), "does not hold UTF-8 text"),
    ],
)
@pytest.mark.parametrize(("tool", "name"), [(WRITE, "content_base64"), (APPEND, "content_to_append_base64")])
def test_content_that_is_no_text_in_base64_is_refused(
    private: AgentMemory, tool: str, name: str, text: str, why: str
) -> None:
    private.write("a.md", "old")
    output = refused(AgentMemoryTools(private).call(tool, {"file_path": "a.md", name: text}))
    assert output == f"Error: the parameter `{name}` {why}"
    assert everything(private) == {"a.md": b"old"}


def test_bytes_that_are_no_text_are_read_unchanged(private: AgentMemory) -> None:
    private.write("a.png", b"\x89PNG\xff\x00")
    found = payload(AgentMemoryTools(private).call(READ, {"file_path": "a.png"}))
    assert base64.b64decode(found["content_base64"]) == b"\x89PNG\xff\x00"


def test_arguments_may_be_json_text(private: AgentMemory) -> None:
    arguments = json.dumps({"file_path": "a.md", "content_base64": encoded("x")})
    succeeded(AgentMemoryTools(private).call(WRITE, arguments))
    assert private.read("a.md") == "x"


def test_an_agent_reaches_only_its_own_memory() -> None:
    with AgentMemoryService("memory://") as service:
        fill(service.agent("bob"), {"secret.md": "bob's"})
        tools = AgentMemoryTools(service.agent("alice"))
        for path in ("../bob/secret.md", "/agent_memory/bob/secret.md", "..%2fbob%2fsecret.md", "../../bob/secret.md"):
            assert "try " in refused(tools.call(READ, {"file_path": path}))
            refused(tools.call(WRITE, {"file_path": path, "content_base64": encoded("x")}))
            refused(tools.call(APPEND, {"file_path": path, "content_to_append_base64": encoded("x")}))
        assert not payload(tools.call(READ, {"file_path": "bob/secret.md"}))["file_exists"]
        assert everything(service.agent("bob")) == {"secret.md": b"bob's"}
        assert everything(service.agent("alice")) == {}


def test_the_refusal_of_a_name_suggests_a_valid_name(private: AgentMemory) -> None:
    tools = AgentMemoryTools(private)
    output = refused(tools.call(WRITE, {"file_path": "Meeting: today?.md", "content_base64": encoded("x")}))
    suggested = output.rpartition("; try ")[2].strip("'")
    succeeded(tools.call(WRITE, {"file_path": suggested, "content_base64": encoded("x")}))
    assert everything(private) == {suggested: b"x"}
