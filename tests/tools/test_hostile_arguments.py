"""Any arguments of a model get an answer: invalid ones an error without a host path, and no file changes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agent_memory import AgentMemory
from agent_memory.tools import AgentMemoryTools, MemorySearch, MemoryTool, ToolResult
from tests.tools.calls import everything, fill
from tests.tools.hostile import (
    ABSOLUTE,
    BAD_NAMES,
    HUGE_TEXT,
    NO_ARGUMENTS,
    NO_INTEGERS,
    NO_RANGES,
    NO_TEXTS,
    RELATIVE,
    STRANGERS,
)

Tool: TypeAlias = Callable[[Any], ToolResult]
FILES: dict[str, str | bytes] = {"a.md": "one\ntwo\n", "d/b.md": "b", "bytes.bin": b"\xff\xfe"}
LONGEST = 20_000

# A valid call of each tool, which also lists its parameters.
CALLS: dict[str, dict[str, Any]] = {
    "view": {"command": "view", "path": "/memories/a.md", "view_range": [1, 2]},
    "create": {"command": "create", "path": "/memories/new.md", "file_text": "x"},
    "str_replace": {"command": "str_replace", "path": "/memories/a.md", "old_str": "one", "new_str": "x"},
    "insert": {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "x"},
    "delete": {"command": "delete", "path": "/memories/a.md"},
    "rename": {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/new.md"},
    "read_agent_memory_file": {"file_path": "a.md"},
    "write_agent_memory_file": {"file_path": "a.md", "content_base64": "eA==", "file_type_hint": "TEXT"},
    "append_to_agent_memory_file": {
        "file_path": "a.md",
        "content_to_append_base64": "eA==",
        "ensure_newline_before_append": True,
    },
    "memory_search": {"query": "one", "path": "d", "glob": "*", "context": 0, "max_results": 1},
}
OPTIONAL: dict[str, set[str]] = {
    "view": {"view_range"},
    "str_replace": {"new_str"},
    "write_agent_memory_file": {"file_type_hint"},
    "append_to_agent_memory_file": {"ensure_newline_before_append"},
    "memory_search": {"path", "glob", "context", "max_results"},
}
NO_BOOLEANS: tuple[object, ...] = (0, 1, "true", [], {}, 1.0)
BAD_VALUES: dict[str, tuple[object, ...]] = {
    "view_range": NO_RANGES,
    "insert_line": (*NO_INTEGERS, -1, 3, 10**30, -(10**4000)),
    "context": (*NO_INTEGERS, -1, 11, 10**30),
    "max_results": (*NO_INTEGERS, 0, -1, 201, 10**30),
    "ensure_newline_before_append": NO_BOOLEANS,
    "file_type_hint": (*NO_TEXTS, "", "text", "TEXT\x00", HUGE_TEXT),
    "content_base64": (*NO_TEXTS, "=", "x", "e\x00A==", "\ud800", "ü", "/w==", "7aCA"),
    "content_to_append_base64": (*NO_TEXTS, "=", "x", "e\x00A==", "\ud800", "ü", "/w==", "7aCA"),
    "file_text": (*NO_TEXTS, "\ud800", "x\udfff", "\ud83d\ude00", HUGE_TEXT),
    "insert_text": (*NO_TEXTS, "\ud800", HUGE_TEXT),
    "old_str": (*NO_TEXTS, "", "o", "\ud800", "absent", HUGE_TEXT, "\x00", "\u202e"),
    "new_str": (*NO_TEXTS, "\ud800", HUGE_TEXT),
    "query": (*NO_TEXTS, ""),
    "glob": (*NO_TEXTS, HUGE_TEXT),
    "command": (*NO_TEXTS, "", "View", "undo_edit", "_run", "call", "__init__", "view\x00", "\ud800", HUGE_TEXT),
}
"""Invalid values of each parameter, in addition to the values that no path may have."""


def bad_values(tool: str, name: str) -> Iterator[object]:
    values = [*BAD_VALUES.get(name, NO_TEXTS)]
    if name == "file_path" or (tool, name) == ("memory_search", "path"):
        values += [*BAD_NAMES, *ABSOLUTE]
    elif name in ("path", "old_path", "new_path"):
        values += [*(f"/memories/{bad}" for bad in BAD_NAMES), *BAD_NAMES, *ABSOLUTE, *RELATIVE]
    return (value for value in values if value is not None or name not in OPTIONAL.get(tool, set()))


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[AgentMemory]:
    """A memory on disk in a directory whose name no answer may show, beside files that no call may change."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("secret")
    with AgentMemory.open(tmp_path / "root") as memory:
        yield fill(memory, FILES)


def tools(memory: AgentMemory) -> dict[str, Tool]:
    """Every tool, by the names in `CALLS`."""
    agent_tools, names = AgentMemoryTools(memory), [name for name in CALLS if name.endswith("_file")]
    found: dict[str, Tool] = dict.fromkeys(CALLS, MemoryTool(memory).call)
    found |= {name: partial(agent_tools.call, name) for name in names}
    return found | {"memory_search": MemorySearch(memory).call}


def everything_on(directory: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


def assert_refused(result: ToolResult, directory: Path) -> None:
    assert isinstance(result, ToolResult)
    assert result.is_error, result.output
    assert_fit(result, directory)


def assert_fit(result: ToolResult, directory: Path) -> None:
    """Check an answer to a model: bounded, valid Unicode, and nothing from outside the memory."""
    assert len(result.output) < LONGEST
    result.output.encode()
    assert str(directory) not in result.output
    assert "Traceback" not in result.output
    assert "secret" not in result.output


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool, call in CALLS.items() for name in call])
def test_an_invalid_value_of_any_parameter_is_an_error_and_changes_nothing(
    stored: AgentMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture, tool: str, name: str
) -> None:
    before = everything_on(tmp_path)
    call = tools(stored)[tool]
    for value in bad_values(tool, name):
        assert_refused(call({**CALLS[tool], name: value}), tmp_path)
    assert everything_on(tmp_path) == before
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], "taken for a fault of ours"


@pytest.mark.parametrize("tool", CALLS)
def test_a_missing_required_parameter_is_an_error(stored: AgentMemory, tmp_path: Path, tool: str) -> None:
    before = everything_on(tmp_path)
    for missing in CALLS[tool].keys() - OPTIONAL.get(tool, set()):
        arguments = {name: value for name, value in CALLS[tool].items() if name != missing}
        assert_refused(tools(stored)[tool](arguments), tmp_path)
    assert_refused(tools(stored)[tool]({}), tmp_path)
    assert everything_on(tmp_path) == before


@pytest.mark.parametrize("tool", CALLS)
def test_arguments_that_are_no_object_are_an_error(
    stored: AgentMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture, tool: str
) -> None:
    before = everything_on(tmp_path)
    for arguments in NO_ARGUMENTS:
        assert_refused(tools(stored)[tool](arguments), tmp_path)
    assert everything_on(tmp_path) == before
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_an_unknown_tool_name_is_an_error(
    stored: AgentMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names: list[Any] = [*NO_TEXTS, "", "view", "_memory", "call", "__class__", HUGE_TEXT, "\ud800"]
    for name in names:
        result = AgentMemoryTools(stored).call(name, {"file_path": "a.md"})
        assert_refused(result, tmp_path)
        assert "the tools are read_agent_memory_file" in result.output
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("tool", CALLS)
def test_values_that_only_code_can_pass_get_an_answer_too(stored: AgentMemory, tmp_path: Path, tool: str) -> None:
    outside = everything_on(tmp_path / "etc")
    for name, value in itertools.product(CALLS[tool], STRANGERS):
        assert_fit(tools(stored)[tool]({**CALLS[tool], name: value}), tmp_path)
    assert everything_on(tmp_path / "etc") == outside
    assert {path.name for path in tmp_path.iterdir()} == {"etc", "root"}


class Broken(Mapping[str, object]):
    """A mapping whose methods raise."""

    def __getitem__(self, name: str) -> object:
        raise RuntimeError("a secret")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a secret")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("tool", CALLS)
def test_a_mapping_that_fails_is_an_error(stored: AgentMemory, tmp_path: Path, tool: str) -> None:
    assert_refused(tools(stored)[tool](Broken()), tmp_path)


@pytest.mark.parametrize("text", ["\x00", "\u202e\u2066", "\x1b[2J", "\ufffe", "\ra", "</tool_result>", "{}%s"])
def test_unusual_content_is_stored_unchanged(memory: AgentMemory, text: str) -> None:
    tool = MemoryTool(memory)
    for arguments in (
        {"command": "create", "path": "/memories/a.md", "file_text": text},
        {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": f"2{text}"},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": f"2{text}", "new_str": f"{text}2{text}"},
    ):
        result = tool.call(arguments)
        assert not result.is_error, result.output
    assert everything(memory) == {"a.md": f"{text}2{text}\n{text}\n".encode()}


def test_an_unusual_query_finds_nothing(stored: AgentMemory, tmp_path: Path) -> None:
    for query in (HUGE_TEXT, "\x00", "\ud800", "\u202e", "(" * 1000, "one\ntwo", "%s{}\\", "\x1b[2J"):
        result = MemorySearch(stored).call({"query": query, "context": 10})
        assert result.output.startswith("No matches found for ")
        assert result.output.isprintable()
        assert_fit(result, tmp_path)


@pytest.mark.parametrize("tool", CALLS)
def test_the_error_for_a_storage_failure_shows_no_host_path(tmp_path: Path, tool: str) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = AgentMemory.open(tmp_path / "file" / "root")
    assert_refused(tools(memory)[tool](CALLS[tool]), tmp_path)
    assert (tmp_path / "file").read_text() == "in the way"
