"""A tree without a conversation: tools may use all names, and a conversation is refused until a person allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory, OperationDenied
from agent_memory.conversation import AsyncConversationMemory, ConversationMemory, MemoryContext, Message
from agent_memory.core import conversation_marks
from agent_memory.mcp_server import mcp_server
from agent_memory.tools import AgentMemoryTools, AsyncMemoryTool, MemorySearch, MemoryTool
from agent_memory.tools._toolset import Toolset
from agent_memory_memory import MemoryBackend
from tests.tools.calls import refused, succeeded

NAMES = ("history.jsonl", "cron/jobs.json", "jobs.json", "notes/history.jsonl")
HELLO = Message("user", "hello")


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def memory(backend: MemoryBackend) -> AgentMemory:
    return AgentMemory.open(backend)


def write(memory: AgentMemory, path: str) -> None:
    tool = MemoryTool(memory, conversation=False)
    succeeded(tool.call({"command": "create", "path": f"/memories/{path}", "file_text": "x"}))


def is_refused(memory: AgentMemory) -> bool:
    conversation = ConversationMemory(memory)
    calls: list[Callable[[], object]] = [
        conversation.load_history,
        lambda: conversation.append_message(HELLO),
        lambda: conversation.search("x"),
        lambda: [*conversation.iter_history()],
        conversation.load_cron_jobs,
        lambda: conversation.save_cron_jobs([]),
        conversation.load_global_memory,
        lambda: conversation.save_global_memory("x"),
    ]
    answers: set[str] = set()
    for call in calls:
        try:
            call()
        except OperationDenied as error:
            answers.add(str(error).partition(": ")[2])
        else:
            answers.add("")
    (answer,) = answers
    return "holding no conversation" in answer


@pytest.mark.parametrize("name", NAMES)
def test_a_model_uses_every_name_and_then_a_conversation_is_refused(memory: AgentMemory, name: str) -> None:
    tool = MemoryTool(memory, conversation=False)
    commands: dict[str, dict[str, object]] = {
        "create": {"file_text": "one\n"},
        "str_replace": {"old_str": "one", "new_str": "two"},
        "insert": {"insert_line": 0, "insert_text": "zero"},
        "view": {},
        "delete": {},
    }
    for command, arguments in commands.items():
        succeeded(tool.call({"command": command, "path": f"/memories/{name}", **arguments}))
    assert is_refused(memory)


def test_a_change_of_any_file_puts_the_mark_and_a_view_puts_none(memory: AgentMemory) -> None:
    succeeded(MemoryTool(memory, conversation=False).call({"command": "view", "path": "/memories"}))
    succeeded(MemorySearch(memory, conversation=False).call({"query": "x"}))
    assert not is_refused(memory)
    write(memory, "plan.md")
    assert is_refused(memory)


def test_every_tool_takes_the_option() -> None:
    async def run() -> None:
        for number in range(3):
            memory = AsyncAgentMemory.open(MemoryBackend())
            path, text = "/memories/jobs.json", "x"
            if number == 0:
                await AsyncMemoryTool(memory, conversation=False).call(
                    {"command": "create", "path": path, "file_text": text}
                )
            elif number == 1:
                succeeded(await Toolset(memory, conversation=False).call("append", {"path": path, "text": text}))
            else:
                server = mcp_server(memory, conversation=False)
                for name in ("append", "append"):
                    await server.call_tool(name, {"path": path, "text": text})
            assert await memory.exists("jobs.json")
            with pytest.raises(OperationDenied, match="holding no conversation"):
                await AsyncConversationMemory(memory).load_history()

    asyncio.run(run())
    memory = AgentMemory.open(MemoryBackend())
    tools = AgentMemoryTools(memory, conversation=False)
    succeeded(tools.call("write_agent_memory_file", {"file_path": "history.jsonl", "content_base64": ""}))
    assert is_refused(memory)


def test_a_mark_is_about_its_directory_and_what_is_below(memory: AgentMemory) -> None:
    write(memory.subtree("notes"), "history.jsonl")
    assert is_refused(memory.subtree("notes"))
    assert is_refused(memory.subtree("notes/deep"))
    for other in (memory, memory.subtree("conversation"), memory.subtree("notes2")):
        assert not is_refused(other)
    write(memory.subtree("chat/cron"), "jobs.json")  # a file of the conversation in `chat`
    assert is_refused(memory.subtree("chat"))


def test_each_agent_has_its_own_marks(memory: AgentMemory) -> None:
    with AgentMemoryService("memory://") as service:
        write(service.agent("a"), "history.jsonl")
        assert is_refused(service.agent("a"))
        assert not is_refused(service.agent("b"))
    assert not is_refused(memory)


def test_a_conversation_that_is_open_notices_a_mark_within_a_minute(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = ConversationMemory(memory)
    conversation.append_message(HELLO)
    write(memory, "plan.md")
    conversation.append_message(HELLO)
    monkeypatch.setattr(conversation_marks, "SECONDS", 0.0)
    with pytest.raises(OperationDenied):
        conversation.append_message(HELLO)
    context = MemoryContext(conversation)
    assert context.build_messages("system", "user").degraded
    assert not context.persist_exchange("user", "reply")


def test_other_tools_still_keep_off_the_names(memory: AgentMemory) -> None:
    write(memory, "history.jsonl")
    tool = MemoryTool(memory)
    refused(tool.call({"command": "delete", "path": "/memories/history.jsonl"}))
    assert "history.jsonl" not in succeeded(tool.call({"command": "view", "path": "/memories"}))


def test_a_read_only_memory_puts_no_mark(memory: AgentMemory) -> None:
    memory.write("history.jsonl", "x")
    tool = MemoryTool(memory.read_only(), conversation=False)
    assert "x" in succeeded(tool.call({"command": "view", "path": "/memories/history.jsonl"}))
    assert "read-only" in refused(tool.call({"command": "delete", "path": "/memories/history.jsonl"}))
    assert ConversationMemory(memory).load_history() == []


@pytest.mark.parametrize("value", [None, 0, "no"])
def test_another_value_is_refused(memory: AgentMemory, value: bool) -> None:
    with pytest.raises(TypeError, match="conversation must be True or False"):
        MemoryTool(memory, conversation=value)
