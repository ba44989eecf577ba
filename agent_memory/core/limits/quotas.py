"""`Quotas`: the quotas of the agents of one service."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from agent_memory.backend import Backend
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import tree_flows
from agent_memory.core.limits.quota import Quota
from agent_memory.runtime.run import Run

_CLOSE_SECONDS: Final = 10.0
"""How long a service that is closed gives leases back."""
_MOST_AGENTS: Final = 4096


class Quotas:
    """The quotas of a service's agents; with too many, the oldest is dropped, and its lease ends by its time."""

    def __init__(self) -> None:
        self._quotas: OrderedDict[str | None, Quota] = OrderedDict()

    def of(self, agent: str | None) -> Quota:
        """Return the quota of an agent."""
        quota = self._quotas.get(agent)
        if quota is None:
            quota = self._quotas.setdefault(agent, Quota(agent))
            if len(self._quotas) > _MOST_AGENTS:
                self._quotas.popitem(last=False)
        return quota

    @property
    def is_used(self) -> bool:
        """Whether an operation had limits to keep."""
        return bool(self._quotas)

    async def release(self, store: Backend, run: Run) -> None:
        """End all leases."""
        with deadline_scope(Deadline(_CLOSE_SECONDS, run.now() + _CLOSE_SECONDS)):
            await run.map(lambda quota: quota.release(store, run), list(self._quotas.values()), tree_flows.AT_ONCE)
