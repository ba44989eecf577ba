"""Every answer to a model is bounded and says how to continue, for any stored content and any arguments."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

import agent_memory.conversation
import agent_memory.tools
from agent_memory import AgentMemory, hookimpl
from agent_memory.conversation import ConversationMemory, Message, SearchHistoryTool
from agent_memory.runtime.run import step
from agent_memory.tools import AgentMemoryTools, MemorySearch, MemoryTool, ToolResult, search
from agent_memory.tools.results import MAX_AROUND, MAX_CHARACTERS, Malformed, answered
from tests.support import sizes

HUGE = 1_000_000
LONG_NAME = "/".join(["n" * 240] * 3)
QUOTES = '\\"\t' * 100


class Tool(NamedTuple):
    """One tool that a model may call: its name, its parameters and its function."""

    name: str
    parameters: Mapping[str, object]
    required: Sequence[str]
    call: Callable[[dict[str, object]], ToolResult]


def tools(memory: AgentMemory) -> Iterator[Tool]:
    """Every tool of every public class that has a method `call`; async classes run the same logic."""
    for module in (agent_memory.tools, agent_memory.conversation):
        for name in module.__all__:
            kind: Any = getattr(module, name)
            if hasattr(kind, "call") and not inspect.iscoroutinefunction(kind.call):
                yield from tools_of(kind(ConversationMemory(memory) if module is agent_memory.conversation else memory))


def tools_of(tool: Any) -> Iterator[Tool]:
    if hasattr(tool, "tool_definitions"):
        for each in tool.tool_definitions():
            yield described(each, partial(tool.call, each["name"]))
    else:
        is_claude = isinstance(tool, MemoryTool)
        yield described(tool.tool_definition("json_schema") if is_claude else tool.tool_definition(), tool.call)


def described(definition: Any, call: Callable[[dict[str, object]], ToolResult]) -> Tool:
    schema = definition["input_schema"]
    return Tool(definition["name"], schema["properties"], schema["required"], call)


@pytest.fixture(scope="module")
def memory() -> AgentMemory:
    """A memory with a line of 10 MB, 5,000 lines, binary content, 400 files with the longest names, a long history."""
    memory = AgentMemory.open("memory://")
    memory.write("line.md", "needle " + "x" * 10 * HUGE)
    memory.write("lines.md", f"needle {QUOTES}\n" * 5_000)
    memory.write("control.md", "needle \x01\n" * 5_000)
    memory.write("bytes.bin", b"\xff\x00" * 1_000_000)
    for number in range(400):
        memory.write(f"many/{LONG_NAME}/{number:04}.md", f"needle {QUOTES}\n" * 3)
    conversation = ConversationMemory(memory)
    for number in range(120):
        long = Message("user", f"{number} needle " + "y" * 50_000, channel="c" * 20_000, sender_id="s" * 20_000)
        conversation.append_message(long)
    return memory


PATHS = ["lines.md", "line.md", "control.md", "bytes.bin", f"many/{LONG_NAME}/0001.md", "absent.md", "many", ""]
NAMES = [f"/memories/{path}" for path in PATHS]
HOSTILE: list[object] = ["x" * HUGE, "\x01" * HUGE, "../" * HUGE, "./" * HUGE + "a", "\ud800" * 1000, ""]
INTEGERS: list[object] = [0, 1, 10, 50, 200, -1, 10**18, 10**999]
VALUES: dict[str, list[object]] = {
    "command": ["view", "create", "str_replace", "insert", "delete", "rename", *HOSTILE],
    "path": [*NAMES, *HOSTILE],
    "memory_search path": [*PATHS[::-1], *HOSTILE],
    "view_range": [[1, -1], [2, 5_000], [10**999, -(10**999)]],
    "line_offset": [0, 5, 10 * HUGE - 10, *INTEGERS],
    "file_text": ["x"],
    "old_str": ["needle", *HOSTILE],
    "new_str": ["noodle", "z" * HUGE],
    "insert_line": INTEGERS,
    "insert_text": ["x"],
    "old_path": ["/memories/absent.md", *HOSTILE],
    "new_path": ["/memories/lines.md", *HOSTILE],
    "query": ["needle", "NEEDLE", "absent", *HOSTILE],
    "glob": ["*.md", *HOSTILE],
    "context": [10, *INTEGERS],
    "max_results": [200, *INTEGERS],
    "search_history max_results": [50, *INTEGERS],
    "after": ["a.md:1", "lines.md:17", *HOSTILE, "a:" + "1" * HUGE],
    "file_path": [*PATHS, *HOSTILE],
    "offset": [0, 12_000, *INTEGERS],
    "limit": [12_000, *INTEGERS],
    "content_base64": ["eA==", "x" * HUGE],
    "content_to_append_base64": ["eA==", "x" * HUGE],
    "file_type_hint": ["YAML", "x" * HUGE],
    "ensure_newline_before_append": [True, "x" * HUGE],
    "days": INTEGERS,
    "text": ["x", "\x01" * HUGE, "\ud800" * 1000],
    "content": ["x", "\ud800" * 1000],
}
"""The values sent for each parameter; a new parameter of a tool must be added here."""


def calls(tool: Tool) -> Iterator[dict[str, object]]:
    """Every value of every parameter, together with valid values of all or only the required other parameters."""
    values = {name: VALUES.get(f"{tool.name} {name}", VALUES[name]) for name in tool.parameters}
    commands: list[object] = values.pop("command", [None])
    for command in commands:
        base = {} if command is None else {"command": command}
        for others in (values, tool.required) if sizes.is_long else (values,):
            good = {**base, **{name: values[name][0] for name in values if name in others}}
            yield from ({**good, name: value} for name in values for value in values[name])
    yield dict.fromkeys(values, "x" * HUGE)
    yield {"x" * HUGE: "x"}


def can_read(tool: Tool) -> bool:
    return tool.name in ("memory", "memory_search", "read_agent_memory_file", "search_history")


def assert_bounded(result: ToolResult, what: object) -> None:
    most = MAX_CHARACTERS + MAX_AROUND
    assert len(result.output) <= most, what
    assert len(json.dumps(result.data, ensure_ascii=False)) <= most, what


def test_every_answer_of_every_tool_is_bounded(memory: AgentMemory) -> None:
    names = []
    for tool in tools(memory.read_only()):
        names.append(tool.name)
        longest = 0
        for given in calls(tool):
            result = tool.call(given)
            assert_bounded(
                result,
                (
                    tool.name,
                    {
                        name[:20]: str(value)[:60] if not isinstance(value, int) else "int"
                        for name, value in given.items()
                    },
                ),
            )
            longest = max(longest, 0 if result.is_error else len(result.output))
        assert longest > 14_000 or not can_read(tool), "the calls do not try the bound"
    assert sorted(names) == [
        "append_to_agent_memory_file",
        "memory",
        "memory_search",
        "memory_write",
        "read_agent_memory_file",
        "search_history",
        "write_agent_memory_file",
    ]


def test_every_answer_of_a_change_is_bounded() -> None:
    tool = MemoryTool(AgentMemory.open("memory://"))
    line = "needle " + "x" * 1_000_000
    for given in (
        {"command": "create", "path": "/memories/a.md", "file_text": line},
        {"command": "create", "path": "/memories/a.md", "file_text": line},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "needle", "new_str": "z" * 1_000_000},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": "/memories/a.md", "insert_line": 1, "insert_text": line},
        {"command": "rename", "old_path": "/memories/a.md", "new_path": f"/memories/{LONG_NAME}"},
        {"command": "delete", "path": f"/memories/{LONG_NAME}"},
    ):
        assert_bounded(tool.call(given), given["command"])


class Talkative:
    @hookimpl
    def agent_memory_before_operation(self) -> None:
        from agent_memory import OperationDenied

        raise OperationDenied("no " * HUGE)


def test_a_long_message_of_a_plugin_is_cut_with_a_hint() -> None:
    with AgentMemory.open("memory://", plugins=[Talkative()]) as memory:
        result = MemoryTool(memory).call({"command": "view", "path": "/memories"})
    assert_bounded(result, "denied")
    assert result.is_error
    assert result.output.endswith("characters: ask for less at once]")


def test_data_that_is_too_long_is_omitted_from_every_answer() -> None:
    async def call() -> ToolResult:
        return ToolResult("x", data={"all": "y" * HUGE})

    async def fails() -> ToolResult:
        raise Malformed("z" * HUGE)

    assert step(answered(call)) == ToolResult("x", data={"truncated": True})
    assert_bounded(step(answered(fails)), "error")


def test_the_tools_option_sets_the_bound_of_a_view() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", "x" * 1_000_000)
    result = MemoryTool(memory, max_view_characters=100_000).call({"command": "view", "path": "/memories/a.md"})
    assert 100_000 < len(result.output) <= 100_000 + MAX_AROUND


@pytest.mark.parametrize("path", ["line.md", "bytes.bin", "control.md"])
def test_following_the_read_hints_returns_every_byte_once(memory: AgentMemory, path: str) -> None:
    tool = AgentMemoryTools(memory)
    parts: list[bytes] = []
    given: dict[str, object] = {"file_path": path}
    while True:
        data = tool.call("read_agent_memory_file", given).data or {}
        parts.append(base64.b64decode(str(data["content_base64"])))
        if not data.get("truncated"):
            break
        assert f"call again with offset {data['next_offset']}" in str(data["hint"])
        given["offset"] = data["next_offset"]
    assert b"".join(parts) == memory.read_bytes(path)


@pytest.mark.parametrize("offset", [0, 1, 4, 5, 6, 10**9])
def test_a_partial_read_reports_where_it_ends(offset: int) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", "12345")
    answer = AgentMemoryTools(memory).call(
        "read_agent_memory_file", {"file_path": "a.md", "offset": offset, "limit": 2}
    )
    data = answer.data or {}
    assert base64.b64decode(str(data["content_base64"])) == b"12345"[offset : offset + 2]
    assert (data["size"], data["truncated"]) == (5, offset + 2 < 5)


@pytest.mark.parametrize(
    ("name", "value"), [("offset", -1), ("offset", 2**62), ("limit", 0), ("limit", 12_001), ("limit", "1")]
)
def test_an_invalid_offset_or_limit_is_an_error(name: str, value: object) -> None:
    tool = AgentMemoryTools(AgentMemory.open("memory://"))
    answer = tool.call("read_agent_memory_file", {"file_path": "a.md", name: value})
    assert answer.is_error
    allowed = {"offset": "0 to 4,611,686,018,427,387,903", "limit": "1 to 12,000"}[name]
    assert f"`{name}` must be {'an integer' if isinstance(value, str) else allowed}" in answer.output


@pytest.mark.parametrize(("path", "context"), [("lines.md", 10), ("control.md", 0), ("many", 0), ("many", 10)])
def test_following_the_search_hints_returns_every_match_once(context: int, path: str) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("lines.md", f"needle {QUOTES}\n\n" * 300)
    memory.write("control.md", "needle \x01\n" * 1000)
    for number in range(40):
        memory.write(f"many/{LONG_NAME}/{number:04}.md", f"needle {QUOTES}\n" * 4)
    expected = [
        (entry.path, line)
        for entry in memory.list(path) or (memory.stat(path),)
        for line, text in enumerate(memory.read(entry.path).split("\n"), 1)
        if "needle" in text
    ]
    given: dict[str, object] = {"query": "needle", "path": path, "context": context, "max_results": 200}
    found: list[tuple[object, object]] = []
    while True:
        result = MemorySearch(memory).call(given)
        assert_bounded(result, given)
        data: Any = result.data or {}
        found += [(match["path"], match["line"]) for match in data["matches"]]
        if not data["more"]:
            break
        assert f"go on with after {json.dumps(data['next'])}" in result.output
        given["after"] = data["next"]
    assert found == expected


def test_a_match_whose_context_lines_do_not_fit_has_fewer_of_them() -> None:
    memory = AgentMemory.open("memory://")
    memory.write(f"{LONG_NAME}/a.md", "x" * 300 + "\n" + ("y" * 300 + "\n") * 10 + "needle\n" + ("z" * 300 + "\n") * 10)
    result = MemorySearch(memory).call({"query": "needle", "context": 10})
    assert_bounded(result, "context")
    data: Any = result.data
    (match,) = data["matches"]
    assert 5 < len(match["before"]) < 10
    assert abs(len(match["before"]) - len(match["after"])) <= 1
    assert result.output.endswith("[The lines around it are cut: view the file there, or ask for less context]")
    assert data["truncated"] is True


def test_a_search_does_not_keep_matches_that_it_does_not_show(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    original = search.LineMatch.__init__

    def counting(self: Any, *args: Any, **options: Any) -> None:
        nonlocal made
        made += 1
        original(self, *args, **options)

    monkeypatch.setattr(search.LineMatch, "__init__", counting)
    MemorySearch(memory).call({"query": "needle", "context": 10, "max_results": 200})
    assert made < 100


def test_following_the_history_search_hints_returns_every_match_once(memory: AgentMemory) -> None:
    tool = SearchHistoryTool(ConversationMemory(memory))
    found: list[int] = []
    offset = 0
    while True:
        result = tool.call({"query": "needle", "max_results": 50, "offset": offset})
        assert_bounded(result, offset)
        hits = [row for row in result.output.split("\n") if row.startswith("**USER: ")]
        found += [int(row.removeprefix("**USER: ").split()[0]) for row in hits]
        if not hits:
            break
        offset += len(hits)
        assert f"## Match {offset} " in result.output
        assert result.output.endswith("---") or f"go on with offset {offset}," in result.output
    assert found == list(range(120))
