"""Time: the current operation's deadline, waiting for a lock without a thread (`TryLater`), and the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import NamedTuple

DEFAULT_SECONDS = 60.0
"""The default timeout of an operation that waits for other writers, in seconds."""
_STEP_SECONDS = 1.0
"""A smaller difference of the clocks is no setting of the host's clock."""


class Deadline(NamedTuple):
    """The end of an operation: ``at``, in seconds of `time.monotonic` (as in event loops), after ``seconds`` in all."""

    seconds: float
    at: float


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
    return deadline_scope(Deadline(limit.seconds, now + limit.seconds)) if limit else nullcontext()


class TryLater(Exception):
    """A lock is taken and the primitive did nothing; the caller waits and calls it again.

    Raised only if `may_try_later` is true. ``seconds``: the timeout, if the operation has no deadline. ``give_up``:
    makes the error to raise after the timeout. ``kept``: an object that must stay alive until the next try, such as
    the descriptor that announces an exclusive lock.
    """

    def __init__(self, seconds: float, give_up: Callable[[Deadline], Exception], kept: object = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.give_up = give_up
        self.kept = kept


_allowed: ContextVar[bool] = ContextVar("agent_memory_may_try_later", default=False)


def may_try_later() -> bool:
    """Whether a primitive may raise `TryLater` instead of waiting in its thread."""
    return _allowed.get()


class trying_later(AbstractContextManager[None]):  # noqa: N801 - as those of contextlib
    """Allow the primitives in the block to raise `TryLater`, or forbid it."""

    __slots__ = ("_allow", "_token")

    _token: Token[bool]

    def __init__(self, allow: bool = True) -> None:
        self._allow = allow

    def __enter__(self) -> None:
        self._token = _allowed.set(self._allow)

    def __exit__(self, *exc_info: object) -> None:
        _allowed.reset(self._token)


class HostClock:
    """Tells that the host's clock was set, also while the process was an image of its memory.

    It compares the wall clock with the monotonic clock, which stands still in an image and in a sleeping machine.
    """

    def __init__(self) -> None:
        self._apart = _clocks_apart()

    def was_set(self) -> bool:
        """Whether the wall clock was set by more than a second since the last call."""
        apart = _clocks_apart()
        if abs(apart - self._apart) <= _STEP_SECONDS:
            return False
        self._apart = apart
        return True


def _clocks_apart() -> float:
    return time.time() - time.monotonic()
