"""Calls the hooks of one service's plugins, with the failure policy of each hook.

Guards fail closed: an exception in a guard refuses the operation. Observers fail open: an exception in an
observer is logged, unless its plugin is required.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from agent_memory import hookspecs
from agent_memory.errors import AgentMemoryError, InvalidPathError, OperationDenied, OutcomeUnknownError
from agent_memory.hookspecs import AuditCheckpoint, BackendFactory, Operation, Outcome

_log = logging.getLogger("agent_memory")


class Hooks:
    """One service's plugins, registered in order; the last registered is called first.

    Raises:
        pluggy.PluginValidationError: a plugin misspells a hook or its arguments, or implements one as a
            wrapper or as ``async def``.
    """

    def __init__(self, plugins: Iterable[object] = ()) -> None:
        self._manager = manager_with(plugins)
        hook = self._manager.hook
        self._before = hook.agent_memory_before_operation
        self._check = hook.agent_memory_check_content
        self._after = hook.agent_memory_after_operation
        self._rejected = hook.agent_memory_key_rejected
        self._checkpoint = hook.agent_memory_audit_checkpoint
        self.guards = bool(self._before.get_hookimpls())
        self.content_guards = bool(self._check.get_hookimpls())
        observers = [implementation.plugin for implementation in self._after.get_hookimpls()]
        self.observers = bool(observers)
        self._ask = tuple(getattr(plugin, "listening", _always) for plugin in observers)
        for plugin, ask in zip(observers, self._ask, strict=True):
            if not callable(ask):
                raise pluggy.PluginValidationError(plugin, f"{_label(plugin)!r}: listening is a method, not {ask!r}")
        for plugin in self._manager.get_plugins():
            if send_to := getattr(plugin, "send_checkpoints_to", None):
                send_to(self.checkpoint)

    def register_backends(self, register: Callable[[str, BackendFactory], None]) -> None:
        """Let the plugins add backends."""
        self._manager.hook.agent_memory_register_backends(register=register)

    def before(self, operation: Operation) -> None:
        """Ask the guards.

        Raises:
            OperationDenied: one refused, or one failed.
        """
        _guard(lambda: self._before(operation=operation))

    def check(self, operation: Operation, content: bytes) -> None:
        """Ask the guards of content; errors as `before`."""
        _guard(lambda: self._check(operation=operation, content=content))

    def hear_successes(self) -> bool:
        """Whether an observer wants to be told of an operation that did what it was asked, and nothing else.

        An observer that does not always want it has a method ``listening() -> bool``.
        """
        try:
            for listening in self._ask:
                if listening():
                    return True
        except Exception:  # noqa: BLE001 - an observer may fail in any way
            _log.exception("a plugin failed in listening()")
            return True
        return False

    def after(self, operation: Operation, outcome: Outcome) -> None:
        """Tell every observer, each on its own.

        Raises:
            OutcomeUnknownError: a required observer failed.
        """
        self._tell(self._after, {"operation": operation, "outcome": outcome})

    def key_rejected(self, agent: str | None, error: InvalidPathError, actor: str | None) -> None:
        """Tell every observer that a name was refused; the caller raises ``error`` whatever they do."""
        try:
            facts = {"agent": agent, "text": error.refused, "reason": error.rule, "actor": actor}
            self._tell(self._rejected, facts)
        except OutcomeUnknownError as unreported:
            error.add_note(f"and it could not be reported: {unreported}")

    def checkpoint(self, checkpoint: AuditCheckpoint) -> None:
        """Tell every plugin that keeps checkpoints of an audit log.

        Raises:
            OutcomeUnknownError: a required one failed.
        """
        self._tell(self._checkpoint, {"checkpoint": checkpoint})

    def _tell(self, caller: pluggy.HookCaller, facts: Mapping[str, object]) -> None:
        failed: tuple[str, Exception] | None = None
        for implementation in reversed(caller.get_hookimpls()):
            try:
                implementation.function(*(facts[name] for name in implementation.argnames))
            except Exception as failure:  # noqa: BLE001 - an observer may fail in any way
                _log.exception("the plugin %r failed in %s", _label(implementation.plugin), caller.name)
                if getattr(implementation.plugin, "required", False):
                    failed = failed or (_label(implementation.plugin), failure)
        if failed:
            name, error = failed
            raise OutcomeUnknownError(
                f"the storage did its part, but the required plugin {name!r} could not report it"
            ) from error


def _always() -> bool:
    return True


def manager_with(plugins: Iterable[object]) -> pluggy.PluginManager:
    """A plugin manager with these plugins, each found valid."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for plugin in plugins:
        _refuse_unmarked(plugin)
        manager.register(plugin)
        _refuse_colours(manager, plugin)
    manager.check_pending()
    return manager


def _refuse_unmarked(plugin: object) -> None:
    for name in dir(plugin):
        method = getattr(plugin, name, None) if name.startswith(f"{hookspecs.PROJECT}_") else None
        if inspect.isroutine(method) and not hasattr(method, f"{hookspecs.PROJECT}_impl"):
            raise pluggy.PluginValidationError(
                plugin, f"the plugin {_label(plugin)!r} defines {name} without @hookimpl, so it would never be called"
            )


def _label(plugin: object) -> str:
    return str(getattr(plugin, "__name__", type(plugin).__name__))


def _refuse_colours(manager: pluggy.PluginManager, plugin: object) -> None:
    for caller in manager.get_hookcallers(plugin) or ():
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin and (fault := _fault(implementation)):
                message = f"the plugin {_label(plugin)!r} implements {caller.name} as {fault}"
                raise pluggy.PluginValidationError(plugin, message)


def _fault(implementation: Any) -> str | None:
    if implementation.wrapper or implementation.hookwrapper:
        return "a wrapper, which could change results; hooks only observe or refuse"
    if inspect.iscoroutinefunction(implementation.function) or inspect.isasyncgenfunction(implementation.function):
        return "async def, which nobody would await; write a plain function"
    if inspect.isgeneratorfunction(implementation.function):
        return "a generator, which nobody would run; write a plain function"
    return None


def _guard(ask: Callable[[], object]) -> None:
    try:
        answers = ask()
    except OperationDenied:
        raise
    except AgentMemoryError as error:
        raise OperationDenied(f"refused: {error}") from error
    except Exception as error:
        raise OperationDenied(f"refused: a guard failed with {type(error).__name__}") from error
    if answers:  # `return False` was meant as a veto, or a coroutine is never awaited: either way, fail closed
        raise OperationDenied("refused: a guard returned something; guards raise to refuse and return nothing")
