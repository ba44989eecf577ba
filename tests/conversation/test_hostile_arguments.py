"""Any arguments of a model get an answer, never an exception, and no change that the answer does not report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryWriteTool, SearchHistoryTool
from agent_memory.tools import ToolResult
from tests.conversation.histories import HISTORY, MEMORY, line

REQUIRED = ToolResult("Error: query is required", is_error=True)
NO_ARGUMENTS: list[Any] = [
    None,
    5,
    [],
    "",
    "{",
    "[]",
    "null",
    "5",
    '"query"',
    b"\xff",
    "[" * 100_000,
    "1" * 5000,
    object(),
]
NUMBERS: list[Any] = [
    0, -1, 1, True, False, None, 10**9, 10**400, -(10**400), 1e308, -1e308, float("nan"), float("inf"),
    "5", "", [], {}, 1.5, b"5", object(),
]  # fmt: skip


@pytest.fixture
def memory() -> AgentMemory:
    memory = AgentMemory.open("memory://")
    memory.write(HISTORY, line("tea") * 60)
    memory.write(MEMORY, "kept")
    return memory


@pytest.fixture
def search(memory: AgentMemory) -> SearchHistoryTool:
    return SearchHistoryTool(ConversationMemory(memory))


@pytest.fixture
def write(memory: AgentMemory) -> MemoryWriteTool:
    return MemoryWriteTool(ConversationMemory(memory))


@pytest.fixture(autouse=True)
def _nothing_failed(caplog: pytest.LogCaptureFixture) -> Any:
    yield
    assert not [record for record in caplog.records if record.exc_info], "a call failed inside"


@pytest.mark.parametrize("arguments", NO_ARGUMENTS, ids=lambda arguments: ascii(arguments)[:20])
def test_arguments_that_are_no_object_are_an_error(
    memory: AgentMemory, search: SearchHistoryTool, write: MemoryWriteTool, arguments: Any
) -> None:
    for tool in (search, write):
        result = tool.call(arguments)
        assert result.is_error
        assert result.output.startswith("Error: the arguments are ")
        assert len(result.output) < 100
    assert memory.read(MEMORY) == "kept"


@pytest.mark.parametrize("query", [None, 5, True, 1e308, [], ["tea"], {}, b"tea", "", " \n\t", "\u3000"])
def test_a_query_that_is_blank_or_no_text_is_an_error(search: SearchHistoryTool, query: Any) -> None:
    assert search.call({"query": query}) == REQUIRED


def test_a_missing_query_is_an_error(search: SearchHistoryTool) -> None:
    assert search.call({}) == search.call("{}") == search.call({"Query": "tea"}) == REQUIRED


@pytest.mark.parametrize("query", ["\ud800", "\udfff\ud800", "\0", "a\nb", "\u202e", "x" * 1_000_000, "{}", "%s {0}"])
def test_a_query_of_unusual_characters_is_searched(search: SearchHistoryTool, query: str) -> None:
    result = search.call({"query": query})
    assert not result.is_error
    assert result.output.startswith("No matches found for '")
    assert result.output.encode()


def matches(result: ToolResult) -> int:
    assert not result.is_error, result.output
    return result.output.count("## Match")


@pytest.mark.parametrize("days", NUMBERS, ids=lambda days: ascii(days)[:14])
def test_days_must_be_an_integer_and_none_or_a_huge_number_means_all_time(search: SearchHistoryTool, days: Any) -> None:
    result = search.call({"query": "tea", "days": days})
    if days is None or type(days) is int:
        assert matches(result) == (0 if days == 1 else 10)
    else:
        assert result.output == f"Error: the parameter `days` must be an integer, not {type(days).__name__}"


@pytest.mark.parametrize("most", NUMBERS, ids=lambda most: ascii(most)[:14])
def test_max_results_must_be_an_integer_and_is_clamped(search: SearchHistoryTool, most: Any) -> None:
    result = search.call({"query": "tea", "max_results": most})
    if most is None:
        assert matches(result) == 10
    elif type(most) is int:
        assert matches(result) == min(50, max(1, most))
    else:
        assert result.output == f"Error: the parameter `max_results` must be an integer, not {type(most).__name__}"


def test_numbers_in_json_arguments_are_checked_the_same_way(search: SearchHistoryTool) -> None:
    for number in ("9" * 4000, "-" + "9" * 4000, "null"):
        result = search.call(f'{{"query": "tea", "days": {number}, "max_results": {number}}}')
        assert 1 <= matches(result) <= 50
    for number in ("1e308", "1e999", "-1e999", "NaN", '"5"', "true", "[]"):
        assert search.call(f'{{"query": "tea", "days": {number}}}').is_error
        assert search.call(f'{{"query": "tea", "max_results": {number}}}').is_error


def test_unknown_arguments_are_ignored(search: SearchHistoryTool) -> None:
    assert matches(search.call({"query": "tea", "regex": True, "": None, "path": "../../etc/passwd"})) == 10


def test_a_document_is_written(memory: AgentMemory, write: MemoryWriteTool) -> None:
    for content in ("# New", "", "\0", "é\r\n"):
        assert write.call({"content": content}) == ToolResult("Memory updated successfully.")
        assert memory.read(MEMORY) == content
    assert not write.call(json.dumps({"content": "by JSON"})).is_error
    assert memory.read(MEMORY) == "by JSON"


@pytest.mark.parametrize("content", [None, 5, True, [], {}, b"text", ["text"]])
def test_a_document_that_is_no_text_is_an_error(memory: AgentMemory, write: MemoryWriteTool, content: Any) -> None:
    assert write.call({"content": content}) == ToolResult("Error: content is required", is_error=True)
    assert memory.read(MEMORY) == "kept"


@pytest.mark.parametrize("content", ["\ud800", "x" * 50_000_001, "é" * 25_000_001])
def test_a_document_that_cannot_be_stored_is_an_error(
    memory: AgentMemory, write: MemoryWriteTool, content: str
) -> None:
    result = write.call({"content": content})
    assert result.is_error
    assert result.output.startswith("Error: ")
    assert len(result.output) < 200
    assert memory.read(MEMORY) == "kept"


def test_the_definitions_are_json() -> None:
    for tool, name in ((SearchHistoryTool, "search_history"), (MemoryWriteTool, "memory_write")):
        definition = json.loads(json.dumps(tool.tool_definition()))
        assert definition["name"] == name
        assert definition["input_schema"]["type"] == "object"
