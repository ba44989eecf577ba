"""Calls the hooks of one service's plugins, with the failure policy of each hook.

Guards fail closed: an exception in a guard refuses the operation. Observers fail open: an exception in an
observer is logged, unless its plugin is required.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet

import pluggy

from agent_memory.core.in_progress import InProgress
from agent_memory.core.registration import label, manager_with
from agent_memory.core.statistics import Tally
from agent_memory.core.switches import traces_plugins
from agent_memory.errors import AgentMemoryError, InvalidPathError, OperationDenied, OutcomeUnknownError
from agent_memory.hookspecs import BackendFactory, Operation, Outcome, Plugin

SLOW_SECONDS: Final = 1.0
"""Seconds: a plugin that takes longer in one hook is named in the log."""
_log = logging.getLogger("agent_memory")


class Hooks:
    """The plugins of one service; the plugin registered last is called first.

    Attributes:
        in_progress: the service's operations that may still call the plugins.
        tally: counts the service's operations, also if it has no plugins.
        contexts: the implementations that put a context manager around the storage's part of an operation.

    Raises:
        pluggy.PluginValidationError: a plugin misspells a hook or its arguments, or implements one as a
            wrapper or as ``async def``.
    """

    def __init__(self, plugins: Iterable[object] = ()) -> None:
        self.in_progress = InProgress()
        self.tally = Tally()
        self._manager = manager_with(plugins)
        hook = self._manager.hook
        self._before = _implementations(hook.agent_memory_before_operation)
        self._filter = _implementations(hook.agent_memory_filter_content)
        self._check = _implementations(hook.agent_memory_check_content)
        self._read = _implementations(hook.agent_memory_check_read)
        self._size = _implementations(hook.agent_memory_check_size)
        self.contexts = _implementations(hook.agent_memory_operation_context)
        self._after = _implementations(hook.agent_memory_after_operation)
        self._rejected = _implementations(hook.agent_memory_key_rejected)
        self.guards = bool(self._before)
        self.guards_of_reads = bool(self._read)
        self.see_content = bool(self._filter or self._check)
        by_size = [each.plugin for each in self._size]
        self.need_content = [each.plugin for each in (*self._filter, *self._check) if each.plugin not in by_size]
        observers = [implementation.plugin for implementation in self._after]
        self.observers = bool(observers)
        self._listening = [(plugin, _method(plugin, "listening")) for plugin in observers]
        self._plugins = [plugin for _, plugin in self._manager.list_name_plugin()]
        with _guard:
            for plugin in self._plugins:
                users = _users.setdefault(id(plugin), WeakSet())
                users.add(self)
                _users[id(plugin)] = users  # the collector may have removed it: see `_guard`

    def register_backends(self, register: Callable[[str, BackendFactory], None]) -> None:
        """Let the plugins add backends."""
        self._manager.hook.agent_memory_register_backends(register=register)

    def before(self, operation: Operation) -> None:
        """Call the guards.

        Raises:
            OperationDenied: a guard refused or failed.
        """
        _call_guards(self._before, {"operation": operation})

    def apply_filters(self, operation: Operation, content: bytes) -> bytes:
        """Return the filtered content, after the guards of content have accepted it; errors as `before`."""
        for each in self._filter:
            content = _filtered(each, operation, content)
        _call_guards(self._check, {"operation": operation, "content": content})
        return content

    def check_read(self, operation: Operation, content: bytes, start: int, size: int) -> None:
        """Call the guards of content that was read; errors as `before`."""
        _call_guards(self._read, {"operation": operation, "content": content, "start": start, "size": size})

    def call_size_guards(self, operation: Operation, size: int) -> None:
        """Call the guards of sizes for content that plugins cannot see.

        Raises:
            OperationDenied: a guard refused or failed, or a plugin has to see the content.
        """
        if self.need_content:
            raise OperationDenied(
                f"{size:,} bytes are more than the limit for one call, so the plugin "
                f"{label(self.need_content[0])!r} cannot be given the content; nothing was written",
                path=operation.path,
            )
        _call_guards(self._size, {"operation": operation, "size": size})

    def wants_successes(self) -> bool:
        """Whether an observer needs plain successes; see `agent_memory.hookspecs.Plugin.listening`."""
        for plugin, listening in self._listening:
            try:
                if listening():
                    return True
            except Exception:  # noqa: BLE001 - an observer may fail in any way
                _log.exception("the plugin %r failed in listening()", label(plugin))
                return True
        return False

    def report(self, operation: Operation, outcome: Outcome) -> Report:
        """Return a report; calling it calls every observer of the operation."""
        done = "the storage completed the operation, but " if outcome.status == "ok" else ""
        return Report(self._after, {"operation": operation, "outcome": outcome}, done)

    def key_rejected(self, agent: str | None, error: InvalidPathError, actor: str | None) -> None:
        """Report to every observer that a name was refused; the caller raises ``error`` even if an observer fails."""
        self.tally.pending.append(None)
        try:
            facts = {"agent": agent, "text": error.refused, "reason": error.rule, "actor": actor}
            Report(self._rejected, facts)()
        except OutcomeUnknownError as unreported:
            error.add_note(f"the refusal could not be reported: {unreported}")

    def close(self) -> None:
        """Flush the plugins, and close those that no other open service uses and that are not shared.

        Observers are closed last, so that they record the operations that other plugins perform while they are closed.
        As soon as one observer is closed, further operations are refused. A failure is logged. A second call does
        nothing.
        """
        with self.in_progress.for_plugins():
            for plugin in self._plugins:
                attempt(plugin, "flush")
            plugins = self._plugins[::-1]
            plugins.sort(key=self._observes)
            for plugin in plugins:
                if self._is_last_user(plugin) and not getattr(plugin, "is_shared", Plugin.is_shared):
                    attempt(plugin, "close")
                    if self._observes(plugin):
                        self.in_progress.refuse_plugins()

    def _observes(self, plugin: object) -> bool:
        return any(each.plugin is plugin for each in self._after)

    def _is_last_user(self, plugin: object) -> bool:
        """Remove this service from the users of a plugin; return whether it was the last."""
        with _guard:
            users = _users.get(id(plugin))
            if users is None or self not in users:
                return False
            users.discard(self)
            if not users:
                del _users[id(plugin)]
            return not users


_users: dict[int, WeakSet[Hooks]] = {}
"""The open services of each plugin, by `id()`, because a plugin need not be hashable."""
_guard = threading.RLock()  # reentrant: the garbage collector may close a service in a thread that opens another one


def _nothing(*_: object) -> bool:
    return True


def _method(plugin: object, name: str) -> Callable[..., Any]:
    """Return a plugin's method of `agent_memory.hookspecs.Plugin`, or a function that does nothing if it has none.

    Raises:
        pluggy.PluginValidationError: the attribute is not a method.
    """
    method = getattr(plugin, name, _nothing)
    if not callable(method):
        raise pluggy.PluginValidationError(plugin, f"{label(plugin)!r}: {name} must be a method, not {method!r}")
    return cast("Callable[..., Any]", method)


def attempt(plugin: object, name: str) -> None:
    """Call a method of `agent_memory.hookspecs.Plugin`; a failure is logged."""
    try:
        _method(plugin, name)()
    except Exception:  # noqa: BLE001 - a plugin may fail in any way
        _log.exception("the plugin %r failed in %s()", label(plugin), name)


class Implementation(NamedTuple):
    """One plugin's implementation of one hook."""

    plugin: object
    hook: str
    function: Callable[..., object]
    arguments: tuple[str, ...]
    is_traced: bool = False

    def __call__(self, facts: Mapping[str, object]) -> object:
        began = time.perf_counter()
        try:
            return self.function(*(facts[name] for name in self.arguments))
        finally:
            if (took := time.perf_counter() - began) >= SLOW_SECONDS:
                _log.warning("the plugin %r took %.1f s in %s", label(self.plugin), took, self.hook)

    def at_step(self, step: str, function: Callable[[object], object]) -> Implementation:
        """Return a later step of the same hook: a function of the operation."""
        hook = f"{self.hook}.{step}"
        if self.is_traced:
            function = _traced(label(self.plugin), hook, function)
        return Implementation(self.plugin, hook, function, ("operation",))


def _implementations(caller: pluggy.HookCaller) -> tuple[Implementation, ...]:
    """Return the implementations of a hook in the order of their calls: the plugin registered last first."""
    traced = traces_plugins()

    def function(each: pluggy.HookImpl) -> Callable[..., object]:
        return _traced(label(each.plugin), caller.name, each.function) if traced else each.function

    found = reversed(caller.get_hookimpls())
    return tuple(
        Implementation(each.plugin, caller.name, function(each), tuple(each.argnames), traced) for each in found
    )


def _traced(plugin: str, hook: str, function: Callable[..., object]) -> Callable[..., object]:
    """A hook that prints a line on stderr for each call: plugin, hook, milliseconds, operation, error; no content."""

    def traced(*facts: object) -> object:
        began, end = time.perf_counter(), ""
        try:
            return function(*facts)
        except BaseException as error:
            end = f" raised {type(error).__name__}"
            raise
        finally:
            took = (time.perf_counter() - began) * 1000
            of = next((f" {each.kind} {each.id}" for each in facts if isinstance(each, Operation)), "")
            print(f"{plugin} {hook} {took:.3f} ms{of}{end}", file=sys.stderr)  # noqa: T201 - the switch asks for it

    return traced


class Report:
    """Calls each observer once with one event, even if others raise.

    An interrupt is an exception that is no `Exception`. It skips the remaining observers that are not required, and a
    required observer that it ended is called once more. ``done`` begins the message of the error.

    Attributes:
        pending: the observers that have not returned; a second call of this object begins with them.

    Raises:
        OutcomeUnknownError: when called: a required observer failed.
        BaseException: when called: the interrupt; it has a note if a required observer failed.
    """

    def __init__(self, observers: Iterable[Implementation], facts: Mapping[str, object], done: str = "") -> None:
        self.pending = [*observers]
        self._facts = facts
        self._done = done
        self._failures: list[tuple[Implementation, Exception]] = []

    def __call__(self) -> None:
        try:
            self._call_pending()
        except Exception:
            raise
        except BaseException as interrupt:
            self.pending = [each for each in self.pending if _is_required(each)]
            try:
                self._call_pending()
            except OutcomeUnknownError as failure:
                interrupt.add_note(str(failure))
            except BaseException:  # noqa: BLE001 - the first interrupt is raised
                interrupt.add_note("a second interrupt followed: required plugins may have failed to report it")
            self.pending, self._failures = [], []
            raise

    def _call_pending(self) -> None:
        while self.pending:
            try:
                self.pending[0](self._facts)
            except Exception as failure:  # noqa: BLE001 - an observer may fail in any way
                self._failures.append((self.pending[0], failure))
            del self.pending[0]
        for observer, error in self._failures:
            _log.error("the plugin %r failed in %s", label(observer.plugin), observer.hook, exc_info=error)
        missed = next((each for each in self._failures if _is_required(each[0])), None)
        if missed:
            message = f"{self._done}the required plugin {label(missed[0].plugin)!r} could not report it"
            raise OutcomeUnknownError(message) from missed[1]


def _is_required(observer: Implementation) -> bool:
    return bool(getattr(observer.plugin, "required", Plugin.required))


def _filtered(implementation: Implementation, operation: Operation, content: bytes) -> bytes:
    with _failing_closed(implementation):
        answer = implementation({"operation": operation, "content": content})
        if type(answer) is not bytes and isinstance(answer, bytes):
            answer = bytes(memoryview(answer))  # a subclass may report a wrong length
    if answer is None:
        return content
    if not isinstance(answer, bytes):
        name = label(implementation.plugin)
        raise OperationDenied(f"refused: the plugin {name!r} returned a value that is not bytes")
    return answer


@contextmanager
def _failing_closed(implementation: Implementation) -> Iterator[None]:
    """Make any error of a guard or filter a refusal; a defect is logged."""
    try:
        yield
    except OperationDenied:
        raise
    except AgentMemoryError as error:
        raise OperationDenied(f"refused: {error}") from error
    except Exception as error:
        raise OperationDenied(f"refused: {log_defect(implementation, error)}") from error


def log_defect(implementation: Implementation, error: Exception) -> str:
    """Log a failure with its place but without its text, which may contain the content; return it without the place."""
    defect = f"the plugin {label(implementation.plugin)!r} failed in {implementation.hook} with {type(error).__name__}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _log.error("%s: %s:%d", defect, Path(frame.filename).name, frame.lineno)
    return defect


def _call_guards(guards: Iterable[Implementation], facts: Mapping[str, object]) -> None:
    for guard in guards:
        with _failing_closed(guard):
            answer = guard(facts)
        if answer is not None:  # `return False` may be meant as a veto, and a coroutine is never awaited: fail closed
            raise OperationDenied(
                f"refused: the plugin {label(guard.plugin)!r} returned a value; guards raise to refuse, otherwise "
                "return None"
            )
