"""Plugins by name: the ones that packages install, and the ones that a configuration enables.

A configuration is a TOML file with one table ``[plugins.NAME]`` per plugin, whose keys are the plugin's options, with a
table ``[limits]``, whose keys are the fields of `agent_memory.Limits`, and the environment: ``AGENT_MEMORY_CONFIG``
names the file, and ``AGENT_MEMORY_PLUGINS`` is the table ``plugins`` as JSON; its plugins replace those of the file
with the same name. A configuration can only name plugins that are installed under the entry-point group
``agent_memory.plugins``, never a module or a path of code. There is no default file.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from agent_memory._json import parse_json
from agent_memory.core.hooks import attempt
from agent_memory.core.limits.settings import Budget, Limits
from agent_memory.core.registration import manager_with
from agent_memory.core.switches import LOAD_VARIABLE, loads_plugins
from agent_memory.errors import AgentMemoryError, BackendNotAvailableError
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.checkpoints import CheckpointFile

GROUP: Final = "agent_memory.plugins"
CHECKPOINT_FILE: Final = "checkpoint-file"
"""The table of the file that receives the checkpoints of ``[plugins.audit]``; it enables no plugin."""
_LOG: Final = "audit"
_LIMITS: Final = "limits"
_WARN_AT: Final = "warn_at"
_log = logging.getLogger("agent_memory")
T = TypeVar("T")
CONFIG_VARIABLE: Final = "AGENT_MEMORY_CONFIG"
PLUGINS_VARIABLE: Final = "AGENT_MEMORY_PLUGINS"
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Installed(NamedTuple):
    """An installed plugin: its name in configurations, its package with version, and its entry point."""

    name: str
    package: str
    point: importlib.metadata.EntryPoint


def installed_plugins() -> tuple[Installed, ...]:
    """All installed plugins, sorted by name; none is loaded."""
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return tuple(Installed(point.name, package_of(point), point) for point in points)


def configuration(file: str | os.PathLike[str] | None = None) -> dict[str, dict[str, Any]]:
    """The enabled plugins with their options, from a file (by default the one in the environment) and the environment.

    None if `agent_memory.core.switches.loads_plugins` says so, with a warning.

    Raises:
        ValueError: a source is not a regular file of at most 5 MB, is not TOML or JSON, or has another structure; the
            message names it.
    """
    if not loads_plugins():
        _log.warning("%s=0: no plugin of the configuration is enabled, also no audit log and no guard", LOAD_VARIABLE)
        return {}
    source = _source(file)
    tables = {} if source is None else _checked(_document(source).get("plugins", {}), source.name)
    if text := os.environ.get(PLUGINS_VARIABLE):
        try:
            more = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{PLUGINS_VARIABLE} is not JSON: {error}") from None
        tables |= _checked(more, PLUGINS_VARIABLE)
    return tables


def limits_from(file: str | os.PathLike[str] | None = None) -> Limits | None:
    """Return the table ``[limits]`` of a configuration, for ``limits=`` of a service; None if there is none.

    Args:
        file: the TOML file; by default the one that the environment names.

    Raises:
        ValueError: as `configuration`; a name or a value of the table is wrong.
    """
    source = _source(file)
    if source is None or not loads_plugins() or (table := _document(source).get(_LIMITS)) is None:
        return None
    if not isinstance(table, dict):
        raise ValueError(f"{source.name}: limits must be a table")
    return _called(_LIMITS, _limits, table)


def _limits(**values: Any) -> Limits:
    _check_names(Limits, values)
    if isinstance(tables := values.get(_WARN_AT), dict):
        values[_WARN_AT] = {pattern: _budget(pattern, amounts) for pattern, amounts in tables.items()}
    return Limits(**values)


def _budget(pattern: str, amounts: object) -> Budget:
    if not isinstance(amounts, dict):
        raise ValueError(f"{_WARN_AT} of {pattern!a} must be a table, for example {{ lines = 200 }}")
    try:
        _check_names(Budget, amounts)
        return Budget(**amounts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{_WARN_AT} of {pattern!a}: {error}") from None


def plugins_from(file: str | os.PathLike[str] | None = None) -> list[Any]:
    """Make the plugins that a configuration enables, in its order: for ``plugins=``; the service closes them.

    Args:
        file: the TOML file; by default the one that the environment names.

    Raises:
        ValueError: as `configuration`; a plugin is not installed; a plugin does not take an option.
        BackendNotAvailableError: a package that a plugin needs is not installed.
    """
    return plugins_of(configuration(file))


def plugins_of(tables: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """Make the plugins of a configuration's tables, in their order; errors as `plugins_from`."""
    plugins: list[Any] = []
    try:
        for name, options in _with_checkpoints(tables).items():
            plugins.append(made(name, options))
    except BaseException:
        close(plugins)
        raise
    return plugins


def _with_checkpoints(tables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Make the file of checkpoints an option of the audit log."""
    if (receiver := checkpoint_file(tables)) is None:
        return tables
    log = tables.get(_LOG)
    if log is None:
        raise ValueError(f"[plugins.{CHECKPOINT_FILE}] gets the checkpoints of [plugins.{_LOG}], which is not enabled")
    if "checkpoints" in log:
        raise ValueError(f"[plugins.{_LOG}] has checkpoints, [plugins.{CHECKPOINT_FILE}] is a second file: keep one")
    others = {name: options for name, options in tables.items() if name != CHECKPOINT_FILE}
    return {**others, _LOG: {**log, "checkpoints": receiver}}


def checkpoint_file(tables: Mapping[str, Mapping[str, Any]]) -> CheckpointFile | None:
    """Make the receiver of the table ``[plugins.checkpoint-file]``, if there is one; errors as `plugins_from`."""
    options = tables.get(CHECKPOINT_FILE)
    return None if options is None else _called(f"plugins.{CHECKPOINT_FILE}", CheckpointFile, options)


def close(plugins: Iterable[object]) -> None:
    """Close plugins, the last one first; a failure is logged."""
    for plugin in reversed([*plugins]):
        attempt(plugin, "close")


def made(name: str, options: Mapping[str, Any]) -> object:
    """Make one plugin; errors as `plugins_from`."""
    found = [each for each in installed_plugins() if each.name == name]
    if not found:
        names = ", ".join(sorted({each.name for each in installed_plugins()}))
        raise ValueError(f"no plugin {name!r} is installed; installed: {names}")
    if len(found) > 1:
        raise ValueError(f"several packages install a plugin {name!r}: {', '.join(each.package for each in found)}")
    try:
        factory = found[0].point.load()
    except BackendNotAvailableError as error:
        raise BackendNotAvailableError(f"[plugins.{name}]: {error}") from error
    except Exception as error:
        raise ValueError(f"the plugin {name!r} of {found[0].package} does not load: {error}") from error
    plugin: object = _called(f"plugins.{name}", factory, options)
    try:
        manager_with([plugin])
    except Exception as error:
        close([plugin])
        raise ValueError(f"[plugins.{name}]: {error}") from error
    return plugin


def _called(table: str, factory: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Call a factory with the options of a table; its errors name the table."""
    try:
        _check_names(factory, options)
        return factory(**options)
    except AgentMemoryError as error:
        error.args = (f"[{table}]: {error}", *error.args[1:])
        if isinstance(error, ImportError):
            error.msg = error.args[0]  # `ImportError` shows `msg`, not its arguments
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(f"[{table}]: {error}") from error
    except Exception as error:
        raise ValueError(f"[{table}]: {type(error).__name__}: {error}") from error


def _check_names(factory: Callable[..., object], options: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option that is missing or that the plugin does not have; the message lists all."""
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        named = (each.name for each in signature.parameters.values() if each.kind in _BY_NAME)
        raise TypeError(f"{error}; its options: {', '.join(named) or 'none'}") from None


def _source(file: str | os.PathLike[str] | None) -> Path | None:
    named = file if file is not None else os.environ.get(CONFIG_VARIABLE) or None
    return None if named is None else Path(named)


def _document(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_host_file(file).decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{file.name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name}: {error}") from None
    if others := document.keys() - {"plugins", _LIMITS}:
        names = ", ".join(map(ascii, sorted(others)))
        raise ValueError(f"{file.name}: only tables [plugins.NAME] and [limits] are allowed, not {names}")
    return document


def _checked(tables: object, source: str) -> dict[str, dict[str, Any]]:
    if not isinstance(tables, dict) or not all(isinstance(options, dict) for options in tables.values()):
        raise ValueError(f"{source}: plugins must be a table of tables, one per plugin, with its options")
    return tables


def package_of(point: importlib.metadata.EntryPoint) -> str:
    """The package that declares an entry point, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "-"
