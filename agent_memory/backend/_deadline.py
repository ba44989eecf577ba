"""How long an operation may take, as whoever starts it tells whatever it awaits; `agent_memory.backend` has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

DEFAULT_SECONDS = 60.0
"""What an operation that may wait for others has, if whoever started it set nothing."""


class Deadline(NamedTuple):
    """When an operation has to be over: ``at``, by `time.monotonic`, the clock of event loops, after ``seconds``."""

    seconds: float
    at: float

    def renewed(self, now: float) -> Deadline:
        """As much time again."""
        return Deadline(self.seconds, now + self.seconds)


_default = DEFAULT_SECONDS
_current: ContextVar[Deadline | None] = ContextVar("agent_memory_deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the operation that is under way; None if whoever started it set none."""
    return _current.get()


def deadline_or_default(now: float) -> Deadline:
    """The deadline of the operation that is under way, or one made now."""
    return _current.get() or Deadline(_default, now + _default)


@contextmanager
def default_seconds(seconds: float) -> Iterator[None]:
    """Give operations without a deadline another time, in all threads: for a program of its own, such as ``doctor``."""
    global _default
    before, _default = _default, seconds
    try:
        yield
    finally:
        _default = before


class deadline_scope(AbstractContextManager[None]):  # noqa: N801 - as those of contextlib
    """Set the deadline of what happens inside, in this thread or task and in what it starts."""

    __slots__ = ("_limit", "_token")

    def __init__(self, limit: Deadline | None) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        self._token = _current.set(self._limit)

    def __exit__(self, *exc_info: object) -> None:
        try:  # noqa: SIM105 - every operation pays for it
            _current.reset(self._token)
        except ValueError:  # a coroutine that is given up ends in the context of whoever clears it away
            pass


def renewed_deadline(now: float) -> AbstractContextManager[None]:
    """Begin the deadline of the operation anew: it is for one file, one page of a listing, or one range."""
    limit = current_deadline()
    return deadline_scope(limit.renewed(now)) if limit else nullcontext()
