"""An object that is no plugin, or has no hook that would be called, is refused when it is registered."""

from __future__ import annotations

import types
from pathlib import Path

import pluggy
import pytest

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemoryService, Operation, OperationDenied, hookimpl
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.readonly import ReadOnlyPlugin
from agent_memory.plugins.redaction import RedactionPlugin


class Refusing:
    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        raise OperationDenied(operation.path)


class Renamed:
    @hookimpl(specname="agent_memory_before_operation")
    def refuse(self, operation: Operation) -> None:
        raise OperationDenied(operation.path)


class Misspelt:
    @hookimpl
    def before_operation(self, operation: Operation) -> None: ...


class Hookless:
    def close(self) -> None: ...


@hookimpl
def agent_memory_before_operation(operation: Operation) -> None:
    raise OperationDenied(operation.path)


NO_PLUGINS = [
    (Refusing, r"'Refusing' is a class; a plugin is an instance: Refusing\(\)"),
    (ReadOnlyPlugin, r"'ReadOnlyPlugin' is a class; a plugin is an instance: ReadOnlyPlugin\(\)"),
    (RedactionPlugin, "is a class"),
    (agent_memory_before_operation, "'agent_memory_before_operation' has no hook .*pass an object or a module"),
    (Refusing().agent_memory_before_operation, "has no hook"),
    (lambda: Refusing(), "has no hook"),
    (Hookless(), "'Hookless' has no hook and would never be called"),
    ("readonly", "'str' has no hook .*plugins_from"),
    (None, "'NoneType' has no hook"),
    (5, "'int' has no hook"),
    ([Refusing()], "'list' has no hook"),
    ({"readonly": {}}, "'dict' has no hook"),
    (types.ModuleType("empty"), "'empty' has no hook"),
]


@pytest.mark.parametrize(("given", "told"), NO_PLUGINS)
@pytest.mark.parametrize("opened", [AgentMemoryService, AsyncAgentMemoryService, AgentMemory.open])
def test_an_object_that_is_no_plugin_is_refused(opened: type[AgentMemoryService], given: object, told: str) -> None:
    with pytest.raises(pluggy.PluginValidationError, match=told):
        opened("memory://", plugins=[given])


def test_a_misspelt_hook_is_refused() -> None:
    with pytest.raises(pluggy.PluginValidationError, match="before_operation"):
        AgentMemoryService("memory://", plugins=[Misspelt()])


def module() -> types.ModuleType:
    made = types.ModuleType("a_module")
    made.agent_memory_before_operation = agent_memory_before_operation  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("plugin", [Refusing(), Renamed(), module()])
def test_an_object_and_a_module_are_valid_plugins(plugin: object) -> None:
    with AgentMemoryService("memory://", plugins=[plugin]) as service, pytest.raises(OperationDenied):
        service.agent("bob").write("a.md", "x")


def test_a_configured_pattern_that_matches_no_path_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agent-memory.toml"
    file.write_text("[plugins.readonly]\npatterns = ['policies\\**']\n")
    with pytest.raises(ValueError, match=r"\[plugins.readonly\]: .* matches no path: .*; try 'policies/\*\*'"):
        plugins_from(file)
