"""`TryLater`: lets a blocking backend wait for a lock without occupying its thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token

from agent_memory.backend._deadline import Deadline


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
