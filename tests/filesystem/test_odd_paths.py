"""A path that is none, or one of another store, is refused in words by every call of the filesystem and of UPath."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.filesystem import AgentMemoryFileSystem, filesystem

UPath: Any = pytest.importorskip("upath").UPath
_PATHS = {"path", "path1", "path2", "rpath", "lpath"}
_UNUSED = {"sign", "invalidate_cache", "unstrip_protocol"}
"""Calls that do nothing, or that fsspec itself refuses."""


def _calls() -> Iterator[tuple[str, str]]:
    for name, function in inspect.getmembers(AgentMemoryFileSystem, inspect.isfunction):
        if not name.startswith("_") and name not in _UNUSED:
            for parameter in inspect.signature(function).parameters:
                if parameter in _PATHS:
                    yield name, parameter


ODD: dict[str, Callable[[], Any]] = {
    "a path of another store": lambda: UPath("memory://another/a.md"),
    "a list with one": lambda: [UPath("memory://another/a.md")],
    "a number": lambda: 5,
    "none": lambda: None,
    "a mapping": lambda: {"a.md": 1},
    "bytes": lambda: b"a.md",
}


def all_of(function: Any, given: dict[str, Any]) -> None:
    result = function(**given)
    if inspect.isgenerator(result):
        list(result)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("call", "parameter"), list(_calls()))
def test_every_call_that_takes_a_path_refuses_it(call: str, parameter: str, odd: str, tmp_path: Path) -> None:
    memory = AgentMemory.open(tmp_path / "store")
    memory.write("a.md", "x")
    (tmp_path / "local.md").write_text("local")
    function = getattr(filesystem(memory), call)
    given: dict[str, Any] = {}
    for name, each in inspect.signature(function).parameters.items():
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            given[name] = b"x" if name == "value" else os.fspath(tmp_path / "local.md") if name == "lpath" else "a.md"
    given[parameter] = ODD[odd]()
    if (call, odd) == ("pipe", "a mapping"):
        given["path"] = {UPath("memory://another/a.md"): b"x"}
    with pytest.raises((TypeError, ValueError)) as refused:
        all_of(function, given)
    assert not isinstance(refused.value, UnicodeError)
    assert "object" not in str(refused.value)  # Python's own words: "'int' object is not iterable"
    assert [entry.path for entry in memory.list()] == ["a.md"]
    assert memory.read("a.md") == "x"


@pytest.mark.parametrize("call", ["rename", "copy"])
def test_a_memory_refuses_a_new_name_that_is_none(call: str, tmp_path: Path) -> None:
    memory = AgentMemory.open(tmp_path / "store")
    memory.write("a.md", "x")
    with pytest.raises(ValueError, match="a path must be a str"):
        getattr(memory, call)("a.md", None)
    assert memory.read("a.md") == "x"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "call", ["rename", "joinpath", "__truediv__", "relative_to", "is_relative_to", "samefile", "glob", "rglob", "match"]
)
def test_a_path_of_a_memory_refuses_it_or_says_no(call: str, odd: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    path = UPath("agentmemory://a.md", root=os.fspath(tmp_path / "store"))
    path.write_text("x")
    try:
        result = getattr(path, call)(ODD[odd]())
        result = list(result) if inspect.isgenerator(result) else result
    except (TypeError, ValueError, NotImplementedError):
        pass
    else:
        assert result in (False, []) or result is NotImplemented
    assert path.read_text() == "x"
