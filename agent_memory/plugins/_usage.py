"""The numbers of files and bytes of agents: counted by a listing, then updated with each operation."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, cast

from agent_memory.backend import AnyBackend
from agent_memory.backend.helpers import Uncopied
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import WRITING, Operation, Outcome
from agent_memory.key import Key
from agent_memory.plugins._agent_usage import AgentUsage, Planned, PlannedChange
from agent_memory.plugins._sizes import unknown

RECOUNT_SECONDS: Final = 300.0
LEAST_SECONDS: Final = 5.0
_MOST_AGENTS: Final = 1000
_NOBODY: Final = object()
_MOVING: Final = ("delete", "delete_tree", "forget", "rename", "copy")


class Usage(Uncopied):
    """The limits of an agent, and the usage of all agents."""

    def __init__(self, backend: AnyBackend, max_files: int | None, max_bytes: int | None) -> None:
        self._store = BlockingStore(backend)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self.forget()

    def forget(self) -> None:
        """Forget all usage, as after a fork: the operations under way belong to the parent."""
        self._agents: OrderedDict[str | None, AgentUsage] = OrderedDict()
        self._guard = threading.RLock()

    def permit(self, operation: Operation, size: int) -> None:
        """Raise `OperationDenied` if content of this size exceeds a limit; else count it as written until `follow`."""
        self._with_agent(operation.agent, lambda agent: self._permit(agent, operation, size))

    def _permit(self, agent: AgentUsage, operation: Operation, size: int) -> None:
        planned = Planned(operation.path, size, operation.kind == "append")
        self._begin(agent, operation, PlannedChange(operation.path, planned))

    def permit_copy(self, operation: Operation) -> None:
        """Raise `OperationDenied` if a copy of a file or directory exceeds a limit; else as `permit`."""
        change = PlannedChange(operation.path, target=operation.target, copies=True)
        self._with_agent(operation.agent, lambda agent: self._begin(agent, operation, change))

    def permit_rename(self, operation: Operation) -> None:
        """Raise `OperationDenied` if a rename exceeds a limit, which is possible only with concurrent operations."""
        self._with_agent(operation.agent, lambda agent: self._permit_rename(agent, operation))

    def _permit_rename(self, agent: AgentUsage, operation: Operation) -> None:
        change = PlannedChange(operation.path, target=operation.target)
        if agent.is_changing or not agent.was_counted:
            self._begin(agent, operation, change)
        else:
            agent.begin(operation.id, change)

    def note(self, operation: Operation) -> None:
        """Note that a file is about to be deleted."""
        self._with_agent(operation.agent, lambda agent: self._note(agent, operation))

    def _note(self, agent: AgentUsage, operation: Operation) -> None:
        agent.withdraw(operation.id)  # an earlier attempt of the same edit
        agent.begin(operation.id, PlannedChange(operation.path))

    def follow(self, operation: Operation, outcome: Outcome) -> None:
        """Update the usage after an operation; if its effect is unknown, the next change causes a new count."""
        if operation.agent in self._agents:
            self._with_agent(operation.agent, lambda agent: self._follow(agent, operation, outcome))

    def _follow(self, agent: AgentUsage, operation: Operation, outcome: Outcome) -> None:
        counted, agent.counted = agent.counted, None  # so that an interrupt here causes a new count
        if outcome.status == "denied":
            agent.cancel(operation.id)
        elif unknown(outcome):
            agent.leave(operation.id)
            return
        elif not agent.end(operation.id) or not self._apply(agent, operation, outcome):
            return
        agent.counted = counted

    def _apply(self, agent: AgentUsage, operation: Operation, outcome: Outcome) -> bool:
        """Apply a known outcome; returns whether the sizes of all files are still known."""
        done = outcome.status == "ok"
        if operation.kind in WRITING and done and outcome.size is not None:
            agent.put(operation.path, outcome.size)
        elif operation.kind in ("delete", "edit") and done:
            agent.drop(operation.path)
        elif operation.kind == "rename" and done:
            agent.rename(operation.path, operation.target or "")
            return False
        return operation.kind not in _MOVING or (operation.kind == "delete" and done)

    def _with_agent(self, name: str | None, work: Callable[[AgentUsage], None]) -> None:
        """Run ``work`` with an agent's lock; no generator may hold it: an interrupt could leave it suspended."""
        with self._guard:
            agent = self._agents.setdefault(name, AgentUsage())
            agent.users += 1
            self._agents.move_to_end(name)
            self._evict()
        try:
            with agent.lock:
                work(agent)
        finally:
            with self._guard:
                agent.users -= 1

    def _evict(self) -> None:
        """Forget the agent that was idle longest; agents that are not idle have changes that no listing shows."""
        if len(self._agents) > _MOST_AGENTS:
            idle = next((name for name, agent in list(self._agents.items()) if agent.is_idle), _NOBODY)
            if idle is not _NOBODY:
                del self._agents[cast("str | None", idle)]

    def _begin(self, agent: AgentUsage, operation: Operation, change: PlannedChange) -> None:
        """Raise `OperationDenied` if a change exceeds a limit; else it is under way."""
        agent.withdraw(operation.id)  # an earlier attempt of the same edit
        if agent.counted is None or time.monotonic() - agent.counted > RECOUNT_SECONDS:
            self._count(agent, operation.agent)
        excess = self._excess(agent, change)
        if excess and time.monotonic() - (agent.counted or 0.0) > LEAST_SECONDS:
            self._count(agent, operation.agent)
            excess = self._excess(agent, change)
        if excess:
            raise OperationDenied(excess, path=operation.path)
        agent.begin(operation.id, change)

    def _excess(self, agent: AgentUsage, change: PlannedChange) -> str | None:
        """The limit that a change would exceed, or None; a change that makes nothing larger is always permitted."""
        files, size = agent.usage_with(change)
        if self._max_files is not None and files > self._max_files and agent.grows(change, by_files=True):
            return f"{files:,} files; an agent may have {self._max_files:,}"
        if self._max_bytes is not None and size > self._max_bytes and agent.grows(change, by_files=False):
            return f"{size:,} bytes in all; an agent may have {self._max_bytes:,}"
        return None

    def _count(self, agent: AgentUsage, name: str | None) -> None:
        began = time.monotonic()
        top = Key.tree() if name is None else Key.agent(name)
        listing = self._store.run(tree_flows.list_all, top)
        agent.count({entry.key.path: entry.size for entry in listing.entries}, began)
