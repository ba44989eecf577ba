"""`InProgress`: the operations of one service that have begun and not ended, for which `close` waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final

from agent_memory.errors import FileOperationError
from agent_memory.runtime.fork import renewed_in_child

CLOSE_SECONDS: Final = 30.0
"""The longest time in seconds that `close` and `aclose` wait for operations in progress."""
_POLL_SECONDS: Final = 0.002
_log = logging.getLogger("agent_memory")


class InProgress:
    """The operations and hooks of a service that are in progress, and whether more may begin.

    Attributes:
        threads: the thread in which each of them began. To add or remove one is a single step of the dict: a signal
            handler may perform an operation, or raise, at the start of any function of Python.
    """

    def __init__(self) -> None:
        self.threads: dict[object, int] = {}
        self._is_closed = False
        self._closer: int | None = None
        _all.add(self)

    def require_open(self) -> None:
        """Refuse an operation after `wait`; called when the operation is in `threads`, so no operation is missed.

        Raises:
            FileOperationError: the service is closed, and the caller is not a plugin that it closes.
        """
        if self._is_closed and self._closer != get_ident():
            raise FileOperationError("this memory is closed, and nothing was done; open it again")

    def wait(self) -> None:
        """Let no more operations begin, and wait at most `CLOSE_SECONDS` for the others.

        An operation that began in this thread, and makes this call, is left out.
        """
        self._is_closed = True
        mine, limit = get_ident(), time.monotonic() + CLOSE_SECONDS
        while (left := sum(thread != mine for thread in [*self.threads.values()])) and time.monotonic() < limit:
            time.sleep(_POLL_SECONDS)
        _warn(left)

    async def wait_async(self) -> None:
        """`wait` for an async caller, also for the work of its own event loop."""
        self._is_closed = True
        limit = time.monotonic() + CLOSE_SECONDS
        while self.threads and time.monotonic() < limit:  # noqa: ASYNC110 - threads end the work
            await asyncio.sleep(_POLL_SECONDS)
        _warn(len(self.threads))

    @contextmanager
    def for_plugins(self) -> Iterator[None]:
        """Let the plugins that this thread closes still perform operations."""
        self._closer = get_ident()
        try:
            yield
        finally:
            self._closer = None

    def refuse_plugins(self) -> None:
        """Refuse the operations of plugins, too, because an observer is closed and would not record them."""
        self._closer = None

    def _forget(self) -> None:
        self.threads.clear()  # the threads of the parent do not exist in the child of a fork


def _warn(left: int) -> None:
    if left:
        _log.warning(
            "closed after a wait of %g s while operations were in progress (%d): a log may lack their records",
            CLOSE_SECONDS,
            left,
        )


_all = renewed_in_child(InProgress._forget)
