"""`OperationContexts`: the context managers that plugins put around the storage's part of an operation."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager

from agent_memory.core.hooks import Implementation, log_defect
from agent_memory.core.registration import label
from agent_memory.hookspecs import Operation

_log = logging.getLogger("agent_memory")


class OperationContexts:
    """The context managers of one operation: entered in the order of the plugins, left in the reverse order.

    They only observe: a plugin that fails is logged, without the text of its exception, and the others are still
    called.
    """

    def __init__(self, implementations: Iterable[Implementation], operation: Operation) -> None:
        self._implementations = implementations
        self._facts = {"operation": operation}
        self._exits: list[Implementation] = []
        self._error: BaseException | None = None

    def enter(self) -> None:
        """Call the hook and enter the contexts.

        Raises:
            BaseException: an interrupt; `leave` leaves the contexts that were entered before it.
        """
        for each in self._implementations:
            context = self._attempt(each)
            if isinstance(context, AbstractContextManager):
                self._enter(each, context)
            elif context is not None:
                name, hook = label(each.plugin), each.hook
                _log.error("the plugin %r returned a value from %s that is no context manager", name, hook)

    def _enter(self, implementation: Implementation, context: AbstractContextManager[object]) -> None:
        begin, end = type(context).__enter__, type(context).__exit__

        def leave(_: object) -> None:
            error = self._error
            facts = (None, None, None) if error is None else (type(error), error, error.__traceback__)
            del self._exits[-1]  # just before the call: a signal handler may raise where the call begins
            end(context, *facts)

        def enter(_: object) -> None:
            begin(context)
            self._exits.append(exits)  # just after the call, for the same reason

        exits = implementation.at_step("exit", leave)
        self._attempt(implementation.at_step("enter", enter))

    def leave(self, error: BaseException | None) -> None:
        """Leave the contexts that are still entered, also if one of them fails; their return values are ignored.

        Args:
            error: the exception of the operation.

        Raises:
            BaseException: the first interrupt. A second call leaves the contexts that a signal handler prevented this
                one from leaving.
        """
        self._error = error
        interrupt: BaseException | None = None
        while self._exits:
            try:
                self._attempt(self._exits[-1])
            except BaseException as raised:  # noqa: BLE001 - raised below
                interrupt = interrupt or raised
        self._error = None
        if interrupt is not None:
            raise interrupt

    def _attempt(self, implementation: Implementation) -> object:
        try:
            return implementation(self._facts)
        except Exception as error:  # noqa: BLE001 - an observer may fail in any way
            log_defect(implementation, error)
            return None
