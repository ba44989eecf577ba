"""The functions of ``docs/model-apis.md`` return what the types of Anthropic's and OpenAI's SDKs allow."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anthropic.types
import pytest
from anthropic.types import MessageParam, ToolUnionParam
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryWriteTool, Message, SearchHistoryTool
from agent_memory.tools import AgentMemoryTools, MemorySearch, MemoryTool
from tests.support.pages import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "model-apis.md"
VIEW = {"command": "view", "path": "/memories"}
READ = {"command": "view", "path": "/memories/walk.md", "view_range": [1, -1]}
EXCHANGE = [
    Message("user", "Where do we walk?", channel="cli", sender_id="ann"),
    Message(
        "assistant",
        "I look.",
        tool_calls=[{"id": "1", "name": "memory", "arguments": VIEW}, {"id": "2", "name": "memory", "arguments": READ}],
    ),
    Message("tool", "Here're the files", tool_call_id="1"),
    Message("tool", "", tool_call_id="2"),
    Message("assistant", "By the river.", reasoning_content="The note says so."),
]
HISTORY = [Message("system", "You are helpful."), *EXCHANGE, Message("user", "And tomorrow?")]
DEFINITIONS = [
    MemoryTool.tool_definition("json_schema"),
    MemorySearch.tool_definition(),
    SearchHistoryTool.tool_definition(),
    MemoryWriteTool.tool_definition(),
    *AgentMemoryTools.tool_definitions(),
]


@cache
def functions() -> dict[str, Any]:
    """The functions of the page's programs; of the programs, only the imports and the functions run."""
    names: dict[str, Any] = {}
    for block in blocks_of(PAGE.read_text()):
        if block.language == "python":
            body = ast.parse(block.code).body
            kept = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom | ast.FunctionDef)]
            exec(compile(ast.Module(body=[*kept], type_ignores=[]), PAGE.name, "exec"), names)
    return names


@cache
def adapter(kind: str) -> TypeAdapter[Any]:
    kinds: dict[str, Any] = {
        "anthropic": list[MessageParam],
        "anthropic tools": list[ToolUnionParam],
        "chat": list[ChatCompletionMessageParam],
        "chat tools": list[ChatCompletionFunctionToolParam],
        "responses": list[ResponseInputItemParam],
        "responses tools": list[FunctionToolParam],
    }
    return TypeAdapter(kinds[kind])


def validate(kind: str, values: list[Any]) -> None:
    """Validate values and all that they contain, and require that no field is unknown.

    Pydantic checks the elements of an ``Iterable`` only during an iteration, and drops unknown fields.
    """
    assert iterated(adapter(kind).validate_python(values)) == values


def iterated(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: iterated(each) for name, each in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [iterated(each) for each in value]


def converted(kind: str, messages: list[Message]) -> list[Any]:
    """The messages in the form of an API, without the system prompt of Anthropic."""
    convert: dict[str, Callable[[], list[Any]]] = {
        "anthropic": lambda: list(functions()["to_anthropic"](messages)[1]),
        "chat": lambda: [functions()["to_chat"](each) for each in messages],
        "responses": lambda: [item for each in messages for item in functions()["to_responses"](each)],
    }
    return convert[kind]()


def facts(message: Message) -> tuple[object, ...]:
    """All of an answer but its time."""
    return message.role, message.content, message.tool_calls, message.reasoning_content


every_api = pytest.mark.parametrize("kind", ["anthropic", "chat", "responses"])


@every_api
def test_a_history_has_the_types_of_the_sdk(kind: str) -> None:
    validate(kind, converted(kind, HISTORY))


@every_api
def test_a_stored_history_has_the_types_of_the_sdk(kind: str, agent_memory: AgentMemory) -> None:
    conversation = ConversationMemory(agent_memory)
    conversation.append_messages(EXCHANGE)
    stored = converted(kind, conversation.load_history())
    validate(kind, stored)
    assert stored == converted(kind, EXCHANGE)


ROBOT = Message("robot", "Beep.")
WITHOUT_CALL = Message("tool", "a result")
WITHOUT_ID = Message("assistant", tool_calls=[{"id": None, "name": "memory", "arguments": VIEW}])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        *[(kind, message) for kind in ("anthropic", "chat") for message in (ROBOT, WITHOUT_CALL, WITHOUT_ID)],
        *[("responses", message) for message in (ROBOT, WITHOUT_ID)],  # openai's type of a result requires no call
    ],
)
def test_a_message_that_the_api_would_refuse_is_found(kind: str, message: Message) -> None:
    with pytest.raises(ValidationError):
        validate(kind, converted(kind, [message]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("anthropic", {"role": "user", "content": [{"type": "tool_result", "content": "a"}]}),
        ("anthropic", {"role": "robot", "content": "a"}),
        ("chat", {"role": "tool", "content": "a"}),
        ("chat", {"role": "assistant", "content": "a", "tool_calls": [{"id": "1", "type": "function"}]}),
        ("responses", {"type": "function_call_output", "call_id": "1"}),
        ("responses", {"role": "tool", "content": "a"}),
        ("chat tools", {"type": "function", "function": {"description": "a"}}),
        ("responses tools", {"type": "function", "name": "memory", "parameters": "a"}),
    ],
)
def test_a_form_without_a_required_field_is_found(kind: str, value: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate(kind, [value])


@every_api
def test_an_unknown_field_is_found(kind: str) -> None:
    first, *_ = converted(kind, EXCHANGE)
    with pytest.raises(AssertionError):
        validate(kind, [{**first, "tool_call": "1"}])


def test_the_system_prompt_of_anthropic_is_apart_and_roles_alternate() -> None:
    system, messages = functions()["to_anthropic"](HISTORY)
    assert system == "You are helpful."
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["1", "2"]
    assert [block["type"] for block in messages[1]["content"]] == ["text", "tool_use", "tool_use"]


def test_each_result_of_openai_has_the_id_of_its_call() -> None:
    chat, items = converted("chat", EXCHANGE), converted("responses", EXCHANGE)
    assert [call["id"] for call in chat[1]["tool_calls"]] == [each["tool_call_id"] for each in chat[2:4]]
    assert [item.get("call_id") for item in items] == [None, None, "1", "2", "1", "2", None]


def test_an_answer_of_anthropic_becomes_a_message() -> None:
    answer = anthropic.types.Message.construct(
        content=[
            {"type": "thinking", "thinking": "A note?", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "1", "name": "memory", "input": VIEW},
        ]
    )
    message = functions()["from_anthropic"](answer)
    assert facts(message) == ("assistant", "I look.", [{"id": "1", "name": "memory", "arguments": VIEW}], "A note?")
    validate("anthropic", converted("anthropic", [message]))


def test_an_answer_of_chat_completions_becomes_a_message() -> None:
    function = {"name": "memory", "arguments": '{"command": "view", "path": "/memories"}'}
    answer = ChatCompletionMessage.construct(
        role="assistant", content=None, refusal=None, tool_calls=[{"id": "1", "type": "function", "function": function}]
    )
    message = functions()["from_chat"](answer)
    assert facts(message) == ("assistant", "", [{"id": "1", "name": "memory", "arguments": VIEW}], None)
    validate("chat", converted("chat", [message]))


def test_a_refusal_of_chat_completions_becomes_the_text_of_a_message() -> None:
    answer = ChatCompletionMessage.construct(role="assistant", content=None, refusal="No.", tool_calls=None)
    assert facts(functions()["from_chat"](answer)) == ("assistant", "No.", None, None)


def test_an_answer_of_responses_becomes_a_message() -> None:
    text = {"type": "output_text", "text": "I look.", "annotations": []}
    answer = Response.construct(
        output=[
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]},
            {"type": "function_call", "call_id": "1", "name": "memory", "arguments": '{"command": "view"}'},
        ]
    )
    message = functions()["from_responses"](answer)
    calls = [{"id": "1", "name": "memory", "arguments": {"command": "view"}}]
    assert facts(message) == ("assistant", "I look.", calls, None)
    validate("responses", converted("responses", [message]))


@pytest.mark.parametrize(
    "arguments",
    ['{"command": ', '["view"]', "", "[" * 100_000, '{"command": NaN}'],
    ids=["cut off", "no object", "empty", "nested too deeply", "no number"],
)
def test_malformed_arguments_are_stored_and_the_tool_refuses_them(arguments: str, agent_memory: AgentMemory) -> None:
    parsed = functions()["parsed"](arguments)
    message = Message("assistant", tool_calls=[{"id": "1", "name": "memory", "arguments": parsed}])
    ConversationMemory(agent_memory).append_message(message)
    assert MemoryTool(agent_memory).call(parsed).is_error


def test_the_definitions_of_all_tools_have_the_types_of_the_sdks() -> None:
    validate("anthropic tools", [MemoryTool.tool_definition(), *DEFINITIONS])
    validate("chat tools", [functions()["chat_tool"](each) for each in DEFINITIONS])
    validate("responses tools", [functions()["responses_tool"](each) for each in DEFINITIONS])
