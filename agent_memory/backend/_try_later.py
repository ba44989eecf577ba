"""How a primitive of a blocking backend waits for a lock without its thread, if its caller can wait elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token

from agent_memory.backend._deadline import Deadline


class TryLater(Exception):
    """A primitive cannot go on now and did nothing; its caller waits, and calls it again.

    Raised only where `may_try_later` is true. ``seconds``: how long to try, where the operation has no deadline.
    ``give_up``: makes the error that is raised when the time is over. ``kept``: whatever has to live until the next
    try, like the descriptor that announces an exclusive lock.
    """

    def __init__(self, seconds: float, give_up: Callable[[Deadline], Exception], kept: object = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.give_up = give_up
        self.kept = kept


_allowed: ContextVar[bool] = ContextVar("agent_memory_may_try_later", default=False)


def may_try_later() -> bool:
    """Whether a primitive raises `TryLater` instead of waiting in its thread."""
    return _allowed.get()


class trying_later(AbstractContextManager[None]):  # noqa: N801 - as those of contextlib
    """Let the primitives inside raise `TryLater`, or forbid it."""

    __slots__ = ("_allow", "_token")

    _token: Token[bool]

    def __init__(self, allow: bool = True) -> None:
        self._allow = allow

    def __enter__(self) -> None:
        self._token = _allowed.set(self._allow)

    def __exit__(self, *exc_info: object) -> None:
        _allowed.reset(self._token)
