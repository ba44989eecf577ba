"""The actor of operations, as the caller states it, in a context variable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple


class Actor(NamedTuple):
    """The person or program that acts, and the id of its tool call; None if unknown."""

    actor: str | None
    tool_call_id: str | None = None

    @classmethod
    def of(cls, actor: object, tool_call_id: object = None) -> Actor:
        """Make an actor from a caller's arguments; a subclass of `str` is converted to `str`.

        Raises:
            TypeError: an argument is neither a str nor None.
        """
        return cls(_text_or_none("actor", actor), _text_or_none("tool_call_id", tool_call_id))


def _text_or_none(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")
    return str.__str__(value)


NO_ACTOR: Final = Actor(None)
_current: ContextVar[Actor | None] = ContextVar("agent_memory_acting", default=None)


@contextmanager
def acting_as(actor: str | None, tool_call_id: str | None = None) -> Iterator[None]:
    """Set the actor and tool call that hooks receive, for all calls in the block, on any memory.

    It applies to this thread or task, the tasks it starts, and `asyncio.to_thread`. A thread started in another way
    has its own context: use the view that `agent_memory.AgentMemory.acting_as` returns, because its actor applies in
    any context. In the block, this actor overrides the one given when a service or memory was opened. Of nested
    blocks, the innermost applies.

    Raises:
        TypeError: an argument is neither a str nor None.
    """
    token = _current.set(Actor.of(actor, tool_call_id))
    try:
        yield
    finally:
        _current.reset(token)


def current_actor(otherwise: Actor) -> Actor:
    """Return the actor of the current context, or ``otherwise`` if none is set."""
    return _current.get() or otherwise
