"""`Sweep`: deletes expired internal files, a few in each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_SWEEP_SECONDS: Final = 3600.0
_SWEPT_PER_CALL: Final = 2
_MOST_AGENTS: Final = 1000
"""The maximum number of agents that a sweep remembers; with more, it forgets all, which costs each one more listing."""


class _Expired(NamedTuple):
    """The expired files of an agent in its last listing, without the deleted ones."""

    listed_at: float
    keys: list[Key]


class Sweep:
    """Deletes expired files of this package's own data: at most two in each call.

    They are found by a listing of the agent's files, at most once an hour.
    """

    def __init__(self) -> None:
        self._found: dict[str | None, _Expired] = {}

    async def delete_a_few(
        self,
        run: Run,
        agent: str | None,
        listed: Callable[[], Awaitable[list[Key]]],
        delete: Callable[[Key], Awaitable[None]],
    ) -> None:
        """Delete a few expired files; errors are ignored, because a later call tries again."""
        now = run.now()
        with suppress(AgentMemoryError):
            found = self._found.get(agent)
            if found is None or (not found.keys and now >= found.listed_at + _SWEEP_SECONDS):
                if len(self._found) >= _MOST_AGENTS:
                    self._found.clear()
                self._found[agent] = found = _Expired(now, [])
                found.keys.extend(await listed())
            for _ in range(_SWEPT_PER_CALL):
                if found.keys:  # other calls take from it, too
                    await delete(found.keys.pop())
