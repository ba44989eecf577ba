"""The definitions of the tools for a model, and calls that follow them."""

from __future__ import annotations

import inspect
import json
from typing import Any, Literal

import pytest

from agent_memory import AgentMemory
from agent_memory.tools import (
    AgentMemoryTools,
    AsyncAgentMemoryTools,
    AsyncFileSystemManager,
    AsyncMemorySearch,
    AsyncMemoryTool,
    FileSystemManager,
    MemorySearch,
    MemoryTool,
)
from tests.tools.calls import everything, fill, succeeded

EXAMPLES: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories", "view_range": [1, 10]},
    {"command": "create", "path": "/memories/notes.txt", "file_text": "Meeting notes:\n- Discussed project timeline\n"},
    {
        "command": "str_replace",
        "path": "/memories/preferences.txt",
        "old_str": "Favorite color: blue",
        "new_str": "Favorite color: green",
    },
    {
        "command": "insert",
        "path": "/memories/todo.txt",
        "insert_line": 2,
        "insert_text": "- Review memory tool documentation\n",
    },
    {"command": "delete", "path": "/memories/old_file.txt"},
    {"command": "rename", "old_path": "/memories/draft.txt", "new_path": "/memories/final.txt"},
]
FILES = {
    "preferences.txt": "Favorite color: blue\n",
    "todo.txt": "one\ntwo\nthree\n",
    "old_file.txt": "old",
    "draft.txt": "draft",
}
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["command"])
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


def accepts(schema: dict[str, Any], value: object) -> bool:
    """Whether a value matches a JSON schema; supports only the keywords of these tools."""
    unknown = schema.keys() - {"type", "properties", "required", "additionalProperties", "enum", "items", "description"}
    assert unknown <= {"minItems", "maxItems"}, unknown
    if not isinstance(value, TYPES[schema["type"]]) or (schema["type"] == "integer" and isinstance(value, bool)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list):
        items = all(accepts(schema["items"], item) for item in value)
        return items and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    if isinstance(value, dict):
        known = schema["additionalProperties"] or value.keys() <= schema["properties"].keys()
        return (
            known
            and value.keys() >= set(schema["required"])
            and all(accepts(schema["properties"][name], item) for name, item in value.items())
        )
    return True


def input_schema() -> dict[str, Any]:
    definition: dict[str, Any] = MemoryTool.tool_definition("json_schema")
    schema: dict[str, Any] = definition["input_schema"]
    return schema


@pytest.mark.parametrize("tool", [MemoryTool, AsyncMemoryTool])
def test_the_claude_definition_has_a_type_and_a_name(tool: type[MemoryTool | AsyncMemoryTool]) -> None:
    assert tool.tool_definition() == {"type": "memory_20250818", "name": "memory"}
    assert tool.tool_definition("claude") == tool.tool_definition()
    assert tool.tool_definition("json_schema") == MemoryTool.tool_definition("json_schema")


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="style must be 'claude' or 'json_schema', not 'openai'"):
        MemoryTool.tool_definition("openai")  # type: ignore[arg-type]


def test_the_json_schema_definition_has_a_name_a_description_and_a_schema() -> None:
    definition = MemoryTool.tool_definition("json_schema")
    assert definition.keys() == {"name", "description", "input_schema"}
    assert definition["name"] == "memory"
    assert json.loads(json.dumps(definition)) == definition
    schema = input_schema()
    assert schema["properties"]["command"]["enum"] == [example["command"] for example in EXAMPLES]
    assert schema["required"] == ["command"]
    assert all(parameter["description"] for parameter in schema["properties"].values())


def test_the_caller_may_change_a_definition() -> None:
    styles: list[Literal["claude", "json_schema"]] = ["claude", "json_schema"]
    for style in styles:
        MemoryTool.tool_definition(style).clear()
        assert MemoryTool.tool_definition(style)["name"] == "memory"
    input_schema()["properties"].clear()
    assert "command" in input_schema()["properties"]


@every_example
def test_the_documented_examples_match_the_schema_and_succeed(memory: AgentMemory, example: dict[str, Any]) -> None:
    assert accepts(input_schema(), example)
    succeeded(MemoryTool(fill(memory, FILES)).call(example))


@every_example
def test_the_schema_refuses_invalid_arguments(example: dict[str, Any]) -> None:
    schema = input_schema()
    assert not accepts(schema, {**example, "unknown": "x"})
    assert not accepts(schema, {**example, "command": "undo_edit"})
    assert not accepts(schema, {name: value for name, value in example.items() if name != "command"})
    for name in example:
        assert not accepts(schema, {**example, name: {}})
    assert not accepts(schema, {**example, "view_range": [1]})


@every_example
def test_arguments_may_be_a_mapping_or_json_text(example: dict[str, Any]) -> None:
    answers, stored = [], []
    for arguments in (example, json.dumps(example), f"\n {json.dumps(example, indent=1, ensure_ascii=False)} "):
        memory = fill(AgentMemory.open("memory://"), FILES)
        answers.append(succeeded(MemoryTool(memory).call(arguments)))
        stored.append(everything(memory))
    assert answers[1:] == answers[:1] * 2
    assert stored[1:] == stored[:1] * 2


def test_parameters_of_other_commands_and_unknown_ones_are_ignored(memory: AgentMemory) -> None:
    arguments = {"command": "create", "path": "/memories/a.md", "file_text": "x", "insert_line": "no", "unknown": {}}
    succeeded(MemoryTool(memory).call(arguments))
    assert everything(memory) == {"a.md": b"x"}


def test_the_schema_of_every_other_tool_refuses_unknown_arguments() -> None:
    definitions: list[dict[str, Any]] = [*AgentMemoryTools.tool_definitions(), MemorySearch.tool_definition()]
    assert [definition["name"] for definition in definitions] == [
        "read_agent_memory_file",
        "write_agent_memory_file",
        "append_to_agent_memory_file",
        "memory_search",
    ]
    for definition in definitions:
        schema = definition["input_schema"]
        least = dict.fromkeys(schema["required"], "x")
        assert accepts(schema, least)
        assert not accepts(schema, {**least, "unknown": "x"})
        assert not accepts(schema, {})
        assert definition["description"]
        assert json.loads(json.dumps(definition)) == definition


KINDS: list[tuple[type, type]] = [
    (MemoryTool, AsyncMemoryTool),
    (AgentMemoryTools, AsyncAgentMemoryTools),
    (MemorySearch, AsyncMemorySearch),
    (FileSystemManager, AsyncFileSystemManager),
]


@pytest.mark.parametrize(("sync", "asynchronous"), KINDS)
def test_sync_and_async_have_the_same_methods_and_arguments(sync: type, asynchronous: type) -> None:
    here, there = public_methods(sync), public_methods(asynchronous)
    assert here.keys() == there.keys()
    for name in here:
        assert parameters(here[name]) == parameters(there[name]), name
    assert parameters(sync).keys() == parameters(asynchronous).keys()
    waits = {name for name, method in there.items() if inspect.iscoroutinefunction(method)}
    assert there.keys() - waits <= {"for_project", "for_repository", "tool_definition", "tool_definitions"}


def public_methods(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls, inspect.isroutine) if not name.startswith("_")}


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)
