"""The current operation's deadline, in a context variable; exported by `agent_memory.backend`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

DEFAULT_SECONDS = 60.0
"""The default timeout of an operation that waits for other writers, in seconds."""


class Deadline(NamedTuple):
    """The end of an operation: ``at``, in seconds of `time.monotonic` (as in event loops), after ``seconds`` in all."""

    seconds: float
    at: float

    def renewed(self, now: float) -> Deadline:
        """Return a deadline with the same ``seconds``, from now on."""
        return Deadline(self.seconds, now + self.seconds)


_default = DEFAULT_SECONDS
_current: ContextVar[Deadline | None] = ContextVar("agent_memory_deadline", default=None)


restore_deadline = _current.set
"""Set the deadline without a scope: after an error, to what it was before."""


def current_deadline() -> Deadline | None:
    """Return the deadline of the current operation; None if it has none."""
    return _current.get()


def deadline_or_default(now: float) -> Deadline:
    """Return the deadline of the current operation, or the default deadline from ``now`` on."""
    return _current.get() or Deadline(_default, now + _default)


@contextmanager
def default_seconds(seconds: float) -> Iterator[None]:
    """Change the default timeout in all threads: only for a whole program, such as ``doctor``."""
    global _default
    before, _default = _default, seconds
    try:
        yield
    finally:
        _default = before


class deadline_scope(AbstractContextManager[None]):  # noqa: N801 - as those of contextlib
    """Set the deadline for the block, in this thread or task and in the tasks that it starts."""

    __slots__ = ("_limit", "_token")

    def __init__(self, limit: Deadline | None) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        self._token = _current.set(self._limit)

    def __exit__(self, *exc_info: object) -> None:
        try:  # noqa: SIM105 - suppress() is slower, and every operation runs this
            _current.reset(self._token)
        except ValueError:  # an abandoned coroutine is closed in another context
            pass


def renewed_deadline(now: float) -> AbstractContextManager[None]:
    """Restart the operation's deadline for the block: for one file, one page of a listing, or one range."""
    limit = current_deadline()
    return deadline_scope(limit.renewed(now)) if limit else nullcontext()
