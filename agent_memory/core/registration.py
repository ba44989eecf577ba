"""Registers plugins, and refuses those with a hook that would never be called or could change results."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pluggy

from agent_memory import hookspecs


class _HookManager(pluggy.PluginManager):
    """Looks for no hooks among Python's own names, which takes pluggy most of the time to open a service."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        return super().parse_hookspec_opts(module_or_class, name) if name.startswith(hookspecs.PROJECT) else None


def manager_with(plugins: Iterable[object]) -> pluggy.PluginManager:
    """Return a plugin manager with these plugins, after it has validated them.

    Raises:
        pluggy.PluginValidationError: a plugin has no hook that would be called; or as `Hooks`.
    """
    manager = _HookManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for plugin in plugins:
        _refuse_unmarked(plugin)
        _register(manager, plugin)
        _refuse_hookless(manager, plugin)
        _refuse_coroutines(manager, plugin)
    return manager


def _register(manager: pluggy.PluginManager, plugin: object) -> None:
    """Register a plugin; error messages have the plugin's name, because pluggy shows only a number."""
    if manager.is_registered(plugin):
        raise ValueError(f"the plugin {label(plugin)!r} is given twice")
    try:
        manager.register(plugin)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        first, *others = str(error).split("\n")
        said = " ".join(others) or first.partition(" in plugin ")[0]
        raise pluggy.PluginValidationError(plugin, f"the plugin {label(plugin)!r}: {said}") from error


def _refuse_unmarked(plugin: object) -> None:
    if inspect.isclass(plugin):
        name = plugin.__name__
        raise pluggy.PluginValidationError(plugin, f"{name!r} is a class; a plugin is an instance: {name}()")
    for name in dir(plugin):
        method = getattr(plugin, name, None) if name.startswith(f"{hookspecs.PROJECT}_") else None
        if inspect.isroutine(method) and not hasattr(method, f"{hookspecs.PROJECT}_impl"):
            raise pluggy.PluginValidationError(
                plugin, f"the plugin {label(plugin)!r} defines {name} without @hookimpl, so it would never be called"
            )


def _refuse_hookless(manager: pluggy.PluginManager, plugin: object) -> None:
    if not manager.get_hookcallers(plugin):
        advice = "pass an object or a module whose functions are marked @hookimpl"
        if isinstance(plugin, str):
            advice += "; plugins_from() makes plugins from their names in a configuration"
        message = f"{label(plugin)!r} has no hook and would never be called: {advice}"
        raise pluggy.PluginValidationError(plugin, message)


def label(plugin: object) -> str:
    return str(getattr(plugin, "__name__", type(plugin).__name__))


def _refuse_coroutines(manager: pluggy.PluginManager, plugin: object) -> None:
    for caller in manager.get_hookcallers(plugin) or ():
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin and (fault := _fault(implementation)):
                message = f"the plugin {label(plugin)!r} implements {caller.name} as {fault}"
                raise pluggy.PluginValidationError(plugin, message)


def _fault(implementation: Any) -> str | None:
    if implementation.wrapper or implementation.hookwrapper:
        return "a wrapper, which could change results; hooks only observe or refuse"
    if inspect.iscoroutinefunction(implementation.function) or inspect.isasyncgenfunction(implementation.function):
        return "async def, which is never awaited; write a plain function"
    if inspect.isgeneratorfunction(implementation.function):
        if implementation.function.__name__ == "agent_memory_operation_context":
            return "a generator, which is never run; decorate it with @contextmanager, too"
        return "a generator, which is never run; write a plain function"
    return None
