"""The line at the end of a tool's answer that warns of a budget or limit, and what it costs."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    AgentMemoryService,
    AsyncAgentMemoryService,
    Budget,
    Limits,
    Operation,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import Page, Snapshot
from agent_memory.conversation import ConversationMemory, MemoryWriteTool
from agent_memory.key import Key
from agent_memory.memory import AgentMemory
from agent_memory.tools import AgentMemoryTools, MemoryTool, ToolResult
from agent_memory.tools._toolset import Toolset
from agent_memory_memory import MemoryBackend
from tests.support.servers import Root
from tests.tools.calls import Call, caller, refused, succeeded

TEN_LINES = "line\n" * 10
LINES = Limits(warn_at={"**/MEMORY.md": Budget(lines=10)})
FILES = Limits(warn_at={"/": Budget(files=3)})
FULL = "/memories/MEMORY.md has {} of 10 lines; move older notes to other files."


class Counting(MemoryBackend):
    """Counts the requests for the files of agents."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()

    def read(self, key: Key, *args: Any, **options: Any) -> Snapshot:
        self.requests["read"] += not key.is_internal
        return super().read(key, *args, **options)

    def list(self, prefix: Key, *args: Any, **options: Any) -> Page:
        self.requests["list"] += not prefix.is_internal
        return super().list(prefix, *args, **options)


def memory_with(limits: Limits | None, **options: Any) -> tuple[AgentMemory, Counting]:
    backend = Counting()
    memory = AgentMemoryService(backend, limits=limits, **options).agent("ann")
    memory.write("first", "")
    backend.requests.clear()
    return memory, backend


def call_with(limits: Limits | None, **options: Any) -> tuple[Call, AgentMemory, Counting]:
    memory, backend = memory_with(limits)
    return caller(memory, **options), memory, backend


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# The memory tool.


def test_each_change_of_the_memory_tool_warns_from_90_percent_on() -> None:
    call, memory, _ = call_with(LINES)
    path = "/memories/MEMORY.md"
    created = "File created successfully at: /memories/MEMORY.md"
    assert succeeded(call("create", path=path, file_text="line\n" * 8)) == created
    edited = "The file /memories/MEMORY.md has been edited."
    assert succeeded(call("insert", path=path, insert_line=0, insert_text="new\n")) == f"{edited}\n{FULL.format(9)}"
    replaced = succeeded(call("str_replace", path=path, old_str="new\n", new_str="a\nb\nc\n"))
    assert replaced.startswith("The memory file has been edited.\n     1\ta\n")
    assert replaced.splitlines()[-1] == FULL.format(11)
    renamed = succeeded(call("rename", old_path=path, new_path="/memories/d/MEMORY.md"))
    assert renamed.splitlines() == [
        f"Successfully renamed {path} to /memories/d/MEMORY.md",
        "/memories/d/MEMORY.md has 11 of 10 lines; move older notes to other files.",
    ]
    assert succeeded(call("delete", path="/memories/d/MEMORY.md")) == "Successfully deleted /memories/d/MEMORY.md"
    assert succeeded(call("create", path=path, file_text=TEN_LINES)) == f"{created}\n{FULL.format(10)}"
    assert memory.read("MEMORY.md") == TEN_LINES


@pytest.mark.parametrize("strings", ["docs", "sdk"])
@pytest.mark.parametrize("on_existing", ["error", "overwrite"])
def test_the_answer_without_the_warning_is_the_documented_one(strings: str, on_existing: str) -> None:
    (warning, _, _), (plain, _, _) = (
        call_with(each, strings=strings, on_existing=on_existing) for each in (LINES, None)
    )
    path = "/memories/MEMORY.md"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create", {"path": path, "file_text": TEN_LINES}),
        ("str_replace", {"path": path, "old_str": TEN_LINES, "new_str": TEN_LINES + "x"}),
        ("insert", {"path": path, "insert_line": 0, "insert_text": "new\n"}),
        ("rename", {"old_path": path, "new_path": "/memories/d/MEMORY.md"}),
    ]
    for command, arguments in calls:
        answer, lines = succeeded(plain(command, **arguments)), succeeded(warning(command, **arguments))
        assert lines.rpartition("\n")[0] == answer
        assert "MEMORY.md has 1" in lines.rpartition("\n")[2]


def test_errors_and_views_have_no_warning() -> None:
    call, memory, _ = call_with(Limits(warn_at={"**": Budget(lines=1), "/": Budget(files=1)}))
    memory.write("MEMORY.md", TEN_LINES)
    for command, arguments in (
        ("create", {"path": "/memories/MEMORY.md", "file_text": "x"}),
        ("str_replace", {"path": "/memories/MEMORY.md", "old_str": "missing", "new_str": ""}),
        ("insert", {"path": "/memories/none", "insert_line": 0, "insert_text": "x"}),
        ("delete", {"path": "/memories/none"}),
        ("rename", {"old_path": "/memories/none", "new_path": "/memories/other"}),
    ):
        assert "; " not in refused(call(command, **arguments))
    assert "move older notes" not in succeeded(call("view", path="/memories/MEMORY.md"))


def test_the_fullest_budget_of_a_file_is_shown_and_only_one_line() -> None:
    budgets = {"*.md": Budget(lines=11, bytes=51), "MEMORY.md": Budget(lines=10), "/": Budget(files=1)}
    call, _, _ = call_with(Limits(file_bytes=55, warn_at=budgets))
    answer = succeeded(call("create", path="/memories/MEMORY.md", file_text=TEN_LINES))
    assert answer.splitlines()[1:] == [FULL.format(10)]
    answer = succeeded(call("create", path="/memories/b.md", file_text="x" * 50))
    assert answer.splitlines()[1:] == ["/memories/b.md has 50 of 51 bytes; move older notes to other files."]


def test_patterns_match_the_path_in_the_agents_tree() -> None:
    memory, _ = memory_with(Limits(warn_at={"notes/MEMORY.md": Budget(lines=10)}))
    arguments = {"path": "/memories/MEMORY.md", "file_text": TEN_LINES}
    assert "has 10" not in succeeded(caller(memory)("create", **arguments))
    assert succeeded(caller(memory.subtree("notes"))("create", **arguments)).endswith(FULL.format(10))


def test_a_budget_of_the_tree_warns_also_after_a_deletion() -> None:
    call, _, _ = call_with(FILES)
    assert "\n" not in succeeded(call("create", path="/memories/b", file_text="x"))
    line = "Your memory has {} of 3 files; delete files that you no longer need, or merge files."
    assert succeeded(call("create", path="/memories/c", file_text="x")).endswith(f"\n{line.format(3)}")
    succeeded(call("create", path="/memories/d/e", file_text="x"))
    assert succeeded(call("delete", path="/memories/c")).endswith(f"\n{line.format(3)}")
    assert "\n" not in succeeded(call("delete", path="/memories/d"))
    call, _, _ = call_with(Limits(warn_at={"/": Budget(bytes=100)}))
    assert "\nYour memory has 95 of 100 bytes;" in succeeded(call("create", path="/memories/b", file_text="x" * 95))


def test_a_renamed_directory_has_no_warning_of_a_file() -> None:
    call, memory, _ = call_with(Limits(warn_at={"**": Budget(lines=1)}))
    memory.write("d/a", TEN_LINES)
    assert succeeded(call("rename", old_path="/memories/d", new_path="/memories/e")).endswith("to /memories/e")


def test_hard_limits_warn_too() -> None:
    call, _, _ = call_with(Limits(file_bytes=100))
    assert succeeded(call("create", path="/memories/a", file_text="x" * 89)).count("\n") == 0
    assert succeeded(call("create", path="/memories/b", file_text="x" * 90)).endswith(
        "\n/memories/b has 90 of 100 bytes; move older notes to other files."
    )
    call, _, backend = call_with(Limits(agent_files=10, agent_bytes=10_000))
    answers = [succeeded(call("create", path=f"/memories/{n}", file_text="x")) for n in range(9)]
    assert [answer.partition("\n")[2][:31] for answer in answers[6:]] == [
        "",
        "Your memory has 9 of 10 files; ",
        "Your memory has 10 of 10 files;",
    ]
    assert backend.requests["list"] == 0
    assert succeeded(call("delete", path="/memories/1")).count("\n") == 1
    assert succeeded(call("delete", path="/memories/2")).count("\n") == 0


# What it costs.


CHANGES: list[Callable[[Call], ToolResult]] = [
    lambda call: call("create", path="/memories/MEMORY.md", file_text=TEN_LINES),
    lambda call: call("insert", path="/memories/MEMORY.md", insert_line=0, insert_text="x"),
    lambda call: call("str_replace", path="/memories/MEMORY.md", old_str="x", new_str="y"),
    lambda call: call("rename", old_path="/memories/MEMORY.md", new_path="/memories/d/MEMORY.md"),
    lambda call: call("delete", path="/memories/d/MEMORY.md"),
]


@pytest.mark.parametrize(
    ("limits", "more"),
    [
        (Limits(warn_at={"other": Budget(lines=1)}), [(0, 0)] * 5),
        (Limits(file_bytes=1_000), [(0, 0)] * 5),
        (LINES, [(0, 0), (0, 0), (0, 0), (1, 0), (0, 0)]),
        (Limits(warn_at={"/": Budget(files=100)}), [(0, 1)] * 5),
        (Limits(warn_at={"**": Budget(bytes=10), "/": Budget(files=100)}), [(0, 0), (0, 0), (0, 0), (1, 0), (0, 1)]),
    ],
)
def test_a_budget_costs_at_most_one_read_or_one_listing(limits: Limits, more: list[tuple[int, int]]) -> None:
    (budgeted, _, seen), (plain, _, usual) = call_with(limits), call_with(None)
    for change, (reads, lists) in zip(CHANGES, more, strict=True):
        usual.requests.clear()
        seen.requests.clear()
        succeeded(change(plain))
        succeeded(change(budgeted))
        found = {name: seen.requests[name] - usual.requests[name] for name in ("read", "list")}
        assert found == {"read": reads, "list": lists}


def test_lines_are_counted_in_the_first_mib_and_5_000_files() -> None:
    memory, _ = memory_with(Limits(warn_at={"log": Budget(lines=10)}))
    memory.write("log", "x\n" * (1 << 20))
    tools = AgentMemoryTools(memory)
    arguments = {"file_path": "log", "content_to_append_base64": encoded("x")}
    data = tools.call("append_to_agent_memory_file", arguments).data
    assert data
    assert str(data["warning"]).startswith("log has at least 524,288 of 10 lines; ")
    memory, backend = memory_with(Limits(warn_at={"/": Budget(files=5_000)}))
    for number in range(5_100):
        memory.write(f"{number}", "")
    backend.requests.clear()
    answer = succeeded(caller(memory)("create", path="/memories/new", file_text="x"))
    assert answer.splitlines()[1].startswith("Your memory has at least 5,000 of 5,000 files; ")
    assert backend.requests["list"] == 1


@pytest.mark.parametrize("error", [OSError("no"), ValueError("a plugin's defect")])
def test_a_warning_that_fails_does_not_fail_the_change(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.kind == "list":
                raise error

    memory, _ = memory_with(FILES, plugins=[Broken()])
    assert succeeded(caller(memory)("create", path="/memories/a", file_text="x")) == (
        "File created successfully at: /memories/a"
    )
    assert "the budgets could not be compared" in caplog.text


# All tools of a model.


def test_the_agent_tools_have_the_warning_in_their_payload() -> None:
    tools = AgentMemoryTools(memory_with(LINES)[0])
    arguments = {"file_path": "MEMORY.md", "content_base64": encoded("line\n" * 9)}
    written = tools.call("write_agent_memory_file", arguments)
    assert (
        written.data
        == json.loads(written.output)
        == {
            "file_path_written": "MEMORY.md",
            "status_message": "File saved successfully.",
            "warning": "MEMORY.md has 9 of 10 lines; move older notes to other files.",
        }
    )
    arguments = {"file_path": "MEMORY.md", "content_to_append_base64": encoded("new")}
    appended = tools.call("append_to_agent_memory_file", arguments)
    assert (
        appended.data
        == json.loads(appended.output)
        == {
            "file_path_appended": "MEMORY.md",
            "status_message": "Content appended successfully.",
            "warning": "MEMORY.md has 10 of 10 lines; move older notes to other files.",
        }
    )
    other = {"file_path": "other.md", "content_base64": encoded(TEN_LINES)}
    assert "warning" not in tools.call("write_agent_memory_file", other).output


def test_the_memory_document_of_a_conversation_has_the_warning() -> None:
    tool = MemoryWriteTool(ConversationMemory(memory_with(LINES)[0]))
    assert succeeded(tool.call({"content": TEN_LINES})) == (
        "Memory updated successfully.\nMEMORY.md has 10 of 10 lines; move older notes to other files."
    )


@pytest.mark.asyncio
async def test_append_and_restore_of_the_server_have_the_warning() -> None:
    service = AsyncAgentMemoryService(MemoryBackend(), limits=LINES, versions=VersionLimits())
    memory = service.agent("ann")
    tools = Toolset(memory)
    await memory.write("MEMORY.md", "line\n" * 9)
    path = {"path": "/memories/MEMORY.md"}
    appended = succeeded(await tools.call("append", {**path, "text": "new"}))
    assert appended == f"The text was added to /memories/MEMORY.md.\n{FULL.format(10)}"
    await memory.write("MEMORY.md", "short")
    version = (await memory.versions.list("MEMORY.md", limit=2))[-1].id
    restored = succeeded(await tools.call("memory_restore", {**path, "version": version}))
    assert restored.splitlines()[1:] == [FULL.format(10)]
    assert "\n" in succeeded(await tools.call("insert", {**path, "insert_line": 0, "insert_text": "x"}))
    await service.aclose()


@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
def test_another_process_warns_too(root: Root) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        service.set_limits(Limits(agent_files=2, warn_at={"/": Budget(files=2), "a.md": Budget(lines=2)}))
    with AgentMemoryService(root.url, storage_options=root.options) as other:
        tool = MemoryTool(other.agent("ann"))
        created = tool.call({"command": "create", "path": "/memories/a.md", "file_text": "1\n2\n"})
        assert succeeded(created).endswith("/memories/a.md has 2 of 2 lines; move older notes to other files.")
        created = tool.call({"command": "create", "path": "/memories/b.md", "file_text": "1\n2\n"})
        assert "\nYour memory has 2 of 2 files;" in succeeded(created)
