"""The memory tool in the Claude SDK's tool runner, with a local server in place of the API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anthropic
import pytest
from anthropic.tools import ToolError
from stand_in import Api, Turn, serving

from agent_memory import AgentMemory, AsyncAgentMemory, Budget, Limits, OperationDenied
from agent_memory.hookspecs import Operation, hookimpl
from agent_memory.integrations.anthropic import AgentMemoryTool, AsyncAgentMemoryTool
from tests.support.servers import ATOMIC, Root

LOOP = Path(__file__).parents[2] / "examples" / "claude-loop" / "loop.py"
SESSION: Sequence[Turn] = [
    [{"command": "view", "path": "/memories"}],
    [{"command": "create", "path": "/memories/notes.md", "file_text": "one\ntwo\n"}],
    [{"command": "str_replace", "path": "/memories/notes.md", "old_str": "two", "new_str": "zwei"}],
    [{"command": "insert", "path": "/memories/notes.md", "insert_line": 2, "insert_text": "three"}],
    [{"command": "rename", "old_path": "/memories/notes.md", "new_path": "/memories/old/notes.md"}],
    [{"command": "view", "path": "/memories/old/notes.md"}],
    [{"command": "delete", "path": "/memories/old/notes.md"}],
]
ANSWERS = [
    (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:"
        "\n0B\t/memories",
        False,
    ),
    ("File created successfully at: /memories/notes.md", False),
    ("The memory file has been edited.\n     1\tone\n     2\tzwei\n     3\t", False),
    ("The file /memories/notes.md has been edited.", False),
    ("Successfully renamed /memories/notes.md to /memories/old/notes.md", False),
    (
        "Here's the content of /memories/old/notes.md with line numbers:\n"
        "     1\tone\n     2\tzwei\n     3\tthree\n     4\t",
        False,
    ),
    ("Successfully deleted /memories/old/notes.md", False),
]
MALFORMED: Turn = [
    {"command": "view"},
    {"command": "view", "path": 7},
    {"command": "view", "path": "/memories/../../etc/passwd"},
    {"command": "view", "path": "/memories/a\0b"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": "1", "insert_text": "x"},
    {"command": "str_replace", "path": "/memories/a.md"},
    {"command": "format_disk"},
    {},
]


def run(tool: AgentMemoryTool, api: Api) -> str:
    with anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=99, messages=[{"role": "user", "content": "go"}], tools=[tool]
        )
        return _said(runner.until_done().content)


async def arun(tool: AsyncAgentMemoryTool, api: Api) -> str:
    async with anthropic.AsyncAnthropic(base_url=api.url, api_key="none", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=99, messages=[{"role": "user", "content": "go"}], tools=[tool]
        )
        return _said((await runner.until_done()).content)


def _said(content: Sequence[object]) -> str:
    return "".join(getattr(block, "text", "") for block in content)


def test_the_tool_runner_completes_a_session_of_all_six_commands(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory, serving(SESSION) as api:
        assert run(AgentMemoryTool(memory), api) == "done"
        assert api.results == ANSWERS
        assert memory.list() == ()
    assert api.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]


@pytest.mark.asyncio
async def test_the_async_tool_runner_completes_a_session_of_all_six_commands(root: Root) -> None:
    async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
        with serving(SESSION) as api:
            assert await arun(AsyncAgentMemoryTool(memory), api) == "done"
            assert api.results == ANSWERS
        assert await memory.list() == ()


def test_the_answers_of_the_session_warn_of_a_budget() -> None:
    limits = Limits(warn_at={"notes.md": Budget(lines=3)})
    with AgentMemory.open("memory://", limits=limits) as memory, serving(SESSION) as api:
        assert run(AgentMemoryTool(memory), api) == "done"
    warned = "\n/memories/notes.md has 3 of 3 lines; move older notes to other files."
    assert api.results == [
        (f"{text}{warned}" if "notes.md has been edited" in text else text, error) for text, error in ANSWERS
    ]


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
@pytest.mark.asyncio
async def test_forty_concurrent_inserts_keep_forty_lines_none_refused(root: Root) -> None:
    inserts = [
        {"command": "insert", "path": "/memories/log.md", "insert_line": 0, "insert_text": f"line {number}"}
        for number in range(40)
    ]
    async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
        await memory.create("log.md", "")
        tool = AsyncAgentMemoryTool(memory)
        answers = await asyncio.gather(*(tool.call(arguments) for arguments in inserts))
        assert set(answers) == {"The file /memories/log.md has been edited."}
        lines = (await memory.read("log.md")).splitlines()
    assert sorted(lines) == sorted(f"line {number}" for number in range(40))


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_two_concurrent_sessions_lose_no_insert(root: Root) -> None:
    async def sessions() -> None:
        turns = [[{"command": "insert", "path": "/memories/log.md", "insert_line": 0, "insert_text": "x"}]] * 10
        async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
            await memory.create("log.md", "")
            with serving(turns) as first, serving(turns) as second:
                tool = AsyncAgentMemoryTool(memory)
                await asyncio.gather(arun(tool, first), arun(tool, second))
            assert await memory.read("log.md") == "x\n" * 20

    asyncio.run(sessions())


def test_a_models_mistake_is_an_error_text_and_the_session_continues(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory, serving([MALFORMED]) as api:
        memory.write("a.md", "kept")
        assert run(AgentMemoryTool(memory), api) == "done"
        assert memory.read("a.md") == "kept"
    assert len(api.results) == len(MALFORMED)
    for text, is_error in api.results:
        assert is_error
        assert text
        assert "Traceback" not in text
        assert "(" not in text.partition("is refused")[0], "a repr of an exception"


def test_the_command_objects_of_the_sdk_work_too() -> None:
    from anthropic.types.beta import BetaMemoryTool20250818CreateCommand as Create

    with AgentMemory.open("memory://") as memory:
        tool = AgentMemoryTool(memory)
        command = Create(command="create", path="/memories/a.md", file_text="x")
        assert tool.create(command) == "File created successfully at: /memories/a.md"
        assert tool.clear_all_memory() == "All memory cleared"
        assert memory.list() == ()


def test_the_error_names_the_missing_extra() -> None:
    code = (
        "import sys; sys.modules['anthropic'] = None\n"
        "try:\n    import agent_memory.integrations.anthropic\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'agent-memory-files[anthropic]'" in done.stdout


def test_the_example_loop_runs_unchanged(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, LOOP], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "the model says: done" in done.stdout
    assert "try /memories/12-30 walk.md" in done.stdout
    assert done.stdout.endswith("on disk:\n  12-30 walk.md\n  likes.md\n")
    assert (tmp_path / "memories" / "likes.md").read_text() == "- coffee\n- walks at 12:30\n"


def test_answers_and_errors_are_bounded() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", "x" * 10_000_000)
    tool = AgentMemoryTool(memory)
    shown = tool.call({"command": "view", "path": "/memories/a.md"})
    assert len(shown) <= 20_000
    assert "line_offset" in shown
    for arguments in ({"command": "view", "path": "y" * 10_000_000}, "z" * 10_000_000, {"command": "w" * 10_000_000}):
        with pytest.raises(ToolError) as raised:
            tool.call(arguments)
        assert len(str(raised.value)) <= 20_000


def test_clearing_deletes_all_files_that_can_be_deleted_and_names_another_one() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.path == "b.md" and operation.kind == "delete":
                raise OperationDenied("it stays")

    memory = AgentMemory.open("memory://", plugins=[Guard()])
    for name in ("a.md", "b.md", "c.md"):
        memory.write(name, "x")
    with pytest.raises(ToolError, match=r"1 of 3 files could not be deleted; one is b\.md: it stays"):
        AgentMemoryTool(memory).clear_all_memory()
    assert [entry.path for entry in memory.list()] == ["b.md"]
