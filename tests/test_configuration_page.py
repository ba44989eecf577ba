"""``docs/configuration.md`` has every variable that the source reads, every argument and option, and the defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    VersionLimits,
)
from agent_memory.backend import Backend
from agent_memory.backend._deadline import DEFAULT_SECONDS
from agent_memory.cli.mcp import mcp
from agent_memory.cli.settings import global_options
from agent_memory.errors import DISTRIBUTION
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.plugins.configuration import installed_plugins
from agent_memory_local import LocalBackend

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/configuration.md").read_text()
_OURS = re.compile(r"\bAGENT_MEMORY_[A-Z][A-Z_]*\b")
_READ = re.compile(r"\benviron(?:\.get\(|\[)\"(\w+)\"")
_PLUGINS = [each for each in installed_plugins() if each.package.startswith(f"{DISTRIBUTION} ")]
_OPENING = (AgentMemoryService, AsyncAgentMemoryService, AgentMemory.open, AsyncAgentMemory.open)


def _part(title: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def _rows(title: str) -> list[list[str]]:
    return [re.split(r" *\| *", line)[1:-1] for line in _part(title).splitlines() if line.startswith("|")][2:]


def _arguments(function: Callable[..., object]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def _shown(default: object) -> str:
    return "required" if default is inspect.Parameter.empty else f"`{default!r}`"


def test_every_variable_that_the_source_reads_is_on_the_page() -> None:
    files = [file for top in ("agent_memory", "backends") for file in (ROOT / top).rglob("*.py")]
    read = {name for file in files for form in (_OURS, _READ) for name in form.findall(file.read_text())}
    assert {"AGENT_MEMORY_URL", "AGENT_MEMORY_PLUGINS", "NO_COLOR"} <= read
    assert sorted(read - set(re.findall(r"`(\w+)`", _part("Environment variables")))) == []


@pytest.mark.parametrize("opening", _OPENING, ids=lambda opening: opening.__qualname__)
def test_every_argument_of_a_service_and_of_open_is_on_the_page(opening: Callable[..., object]) -> None:
    shown = {row[0].strip("`"): row[1] for row in _rows("Services and memories")}
    assert shown == {name: _shown(default) for name, default in _arguments(opening).items()}


def test_the_plugins_of_this_package_are_found() -> None:
    assert len(_PLUGINS) >= 3


@pytest.mark.parametrize("plugin", _PLUGINS, ids=lambda plugin: plugin.name)
def test_every_option_of_an_included_plugin_is_on_the_page(plugin: Any) -> None:
    (options,) = [row[1] for row in _rows("Plugins") if row[0] == f"`[plugins.{plugin.name}]`"]
    assert set(_arguments(plugin.point.load())) <= set(re.findall(r"`(\w+)`", options))


def test_every_option_of_local_disk_is_on_the_page() -> None:
    shown = {row[1].strip("`") for row in _rows("URLs and storage options")}
    assert set(_arguments(LocalBackend)) - {"root"} <= shown


def test_the_attributes_of_a_backend_have_their_defaults() -> None:
    shown = {row[0]: row[1] for row in _rows("Attributes of a backend")}
    assert shown["`max_bytes`"] == f"{Backend.max_bytes:,}"
    assert shown["`part_bytes`"] == f"{Backend.part_bytes:,} (5 MiB)"
    assert shown["`timeout`"] == f"`{LocalBackend.timeout}`; {ObjectStoreBackend.timeout:g} s on object stores"
    assert ObjectStoreBackend.timeout == DEFAULT_SECONDS


def test_every_global_option_is_on_the_page_with_its_variable() -> None:
    shown = {name: row[1].strip("`") for row in _rows("Command line") for name in re.findall(r"`(-[\w-]+)`", row[0])}
    options = [each for each in global_options(again=False) if isinstance(each, click.Option)]
    assert set(shown) == {name for option in options for name in option.opts}
    for option in options:
        assert option.envvar is None or shown[option.opts[0]] == option.envvar


def test_the_limits_of_versions_have_their_defaults() -> None:
    shown = {row[0].strip("`"): row[2] for row in _rows("Versions")}
    assert shown == {name: f"{int(value):,}" for name, value in dataclasses.asdict(VersionLimits()).items()}


def test_every_option_of_the_mcp_server_is_on_the_page() -> None:
    options = [each for each in mcp.params if isinstance(each, click.Option) and not each.hidden]
    names = {name for option in options for name in option.opts}
    assert names - {"--help"} <= set(re.findall(r"`(--[\w-]+)`", _part("MCP server")))
