"""Who acts, as whoever runs a piece of code tells what it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple


class Actor(NamedTuple):
    """Who acts, and for which call of a tool, as far as that is known."""

    actor: str | None
    tool_call_id: str | None = None

    @classmethod
    def of(cls, actor: object, tool_call_id: object = None) -> Actor:
        """The same of what a caller gives; a subclass of `str` becomes the plain text it holds.

        Raises:
            TypeError: one of them is neither a str nor None.
        """
        return cls(_text_or_none("actor", actor), _text_or_none("tool_call_id", tool_call_id))


def _text_or_none(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str or None, not {type(value).__name__}")
    return str.__str__(value)


NO_ACTOR: Final = Actor(None)
_current: ContextVar[Actor | None] = ContextVar("agent_memory_acting", default=None)


@contextmanager
def acting_as(actor: str | None, tool_call_id: str | None = None) -> Iterator[None]:
    """Say for the hooks who acts in all calls inside, whichever memory they are made on.

    It holds for this thread or task, the tasks it starts, and `asyncio.to_thread`; a thread started by hand has a
    context of its own: use the view that `agent_memory.AgentMemory.acting_as` returns. Such a view says who acts in
    any context; the actor that a service or a memory was opened with gives way to this one. The innermost counts.

    Raises:
        TypeError: an argument is neither a str nor None.
    """
    token = _current.set(Actor.of(actor, tool_call_id))
    try:
        yield
    finally:
        _current.reset(token)


def current_actor(otherwise: Actor) -> Actor:
    """Who acts here; ``otherwise`` where nobody said."""
    return _current.get() or otherwise
