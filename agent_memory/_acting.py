"""Who acts, as whoever runs a piece of code tells what it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple


class Acting(NamedTuple):
    """Who acts, and for which call of a tool, as far as that is known."""

    actor: str | None
    tool_call_id: str | None = None


NOBODY: Final = Acting(None)
_current: ContextVar[Acting | None] = ContextVar("agent_memory_acting", default=None)


@contextmanager
def acting_as(actor: str | None, tool_call_id: str | None = None) -> Iterator[None]:
    """Say for the hooks who acts in all calls inside, whichever memory they are made on.

    It holds for this thread or task, the tasks it starts, and `asyncio.to_thread`; a thread started by hand has a
    context of its own: use the view that `agent_memory.AgentMemory.acting_as` returns. Such a view says who acts in
    any context; the actor that a service or a memory was opened with gives way to this one. The innermost counts.
    """
    token = _current.set(Acting(actor, tool_call_id))
    try:
        yield
    finally:
        _current.reset(token)


def acting(otherwise: Acting) -> Acting:
    """Who acts here; ``otherwise`` where nobody said."""
    return _current.get() or otherwise
