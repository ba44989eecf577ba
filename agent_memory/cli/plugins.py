"""The command plugins: lists installed and enabled plugins, their hooks and their load errors."""

from __future__ import annotations

import importlib.metadata
import typing
from typing import Any, NamedTuple

import click

from agent_memory.cli.output import Exit, draw, printable, show_json
from agent_memory.cli.settings import Command, Settings, pass_settings
from agent_memory.errors import DISTRIBUTION, AgentMemoryError
from agent_memory.hookspecs import PROJECT
from agent_memory.plugins.configuration import Installed, close, configuration, installed_plugins, made, package_of
from agent_memory.registry import GROUP, broken_plugins

_ALWAYS = "logging"


class PluginRow(NamedTuple):
    """One plugin: its package, whether it is enabled, its hooks, and its load error."""

    name: str
    package: str
    enabled: bool
    hooks: tuple[str, ...]
    error: str | None = None


@click.command(cls=Command)
@pass_settings
def plugins(settings: Settings) -> None:
    """List the installed plugins, their hooks, and whether --config or the environment enables them.

    Exits with 1 if an enabled plugin does not load.
    """
    try:
        enabled = configuration(settings.config)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = [*_always(), *_configurable(enabled), *_backends()]
    if settings.json:
        show_json({"plugins": [row._asdict() for row in rows]})
    else:
        _show(rows)
    if any(row.error for row in rows if row.enabled):
        raise click.exceptions.Exit(Exit.FAILED)


def _always() -> list[PluginRow]:
    from agent_memory.plugins.logging import LoggingPlugin

    version = importlib.metadata.version(DISTRIBUTION)
    return [PluginRow(_ALWAYS, f"{DISTRIBUTION} {version}", True, _hooks(LoggingPlugin))]


def _configurable(enabled: dict[str, dict[str, Any]]) -> list[PluginRow]:
    rows = [_row(each, enabled) for each in installed_plugins()]
    missing = enabled.keys() - {row.name for row in rows}
    return rows + [PluginRow(name, "-", True, (), "not installed") for name in sorted(missing)]


def _row(installed: Installed, enabled: dict[str, dict[str, Any]]) -> PluginRow:
    name, package, point = installed
    try:
        if name not in enabled:
            return PluginRow(name, package, False, _hooks(_made_by(point.load())))
        plugin = made(name, enabled[name])
    except (ValueError, AgentMemoryError) as error:
        return PluginRow(name, package, name in enabled, (), str(error))
    except Exception as error:  # noqa: BLE001 - a broken package may fail in any way
        return PluginRow(name, package, name in enabled, (), f"{type(error).__name__}: {error}")
    try:
        return PluginRow(name, package, True, _hooks(plugin))
    finally:
        close([plugin])


def _backends() -> list[PluginRow]:
    """Packages that add backends; they are always enabled."""
    broken = broken_plugins()
    rows = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        hooks = () if point.name in broken else (f"{PROJECT}_register_backends",)
        rows.append(PluginRow(point.name, package_of(point), point.name not in broken, hooks, broken.get(point.name)))
    return rows


def _made_by(factory: Any) -> object:
    """The class of the objects that a factory makes; None if the factory does not declare it."""
    return factory if isinstance(factory, type) else typing.get_type_hints(factory).get("return")


def _hooks(plugin: object) -> tuple[str, ...]:
    return tuple(name for name in dir(plugin) if hasattr(getattr(plugin, name, None), f"{PROJECT}_impl"))


def _show(rows: list[PluginRow]) -> None:
    from rich import box
    from rich.table import Table

    table = Table("plugin", "from", "enabled", "hooks", box=box.SIMPLE)
    for row in rows:
        short = ", ".join(name.removeprefix(f"{PROJECT}_") for name in row.hooks)
        table.add_row(row.name, row.package, "yes" if row.enabled else "no", "does not load" if row.error else short)
    draw(table)
    for row in rows:
        if row.error:
            click.echo(printable(f"{row.name} does not load: {row.error}"))
