"""How many files and bytes agents have: counted by a listing, and followed from then on."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, cast

from agent_memory import tree_flows
from agent_memory._uncopied import Uncopied
from agent_memory.backend import AnyBackend, Backend
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome
from agent_memory.key import Key
from agent_memory.runners import run_sync

RECOUNT_SECONDS: Final = 300.0
LEAST_SECONDS: Final = 5.0
_MOST_AGENTS: Final = 1000
_WRITING: Final = ("write", "create", "append", "edit")
_MOVING: Final = ("delete", "delete_tree", "forget", "rename", "copy")


class Planned(NamedTuple):
    """What an operation that is under way may make of a file: this size, or with ``added`` so much more."""

    path: str
    size: int
    added: bool = False


class _Agent(Uncopied):
    """One agent's files with their sizes, and what operations that are under way may make of them.

    Of operations on one file that were under way at the same time, nobody knows which was the last.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sizes: dict[str, int] = {}
        self._under_way: dict[str, tuple[frozenset[str], Sequence[Planned]]] = {}
        self._overlapping: set[str] = set()
        self.counted: float | None = None
        self._total = 0

    def count(self, sizes: dict[str, int]) -> None:
        """Take sizes as they were listed."""
        self.sizes, self._total = sizes, sum(sizes.values())
        self.counted = time.monotonic()

    def begin(self, operation: str, paths: Iterable[str], planned: Sequence[Planned] = ()) -> None:
        """An operation on these files is under way."""
        names = frozenset(paths)
        for other, (others, _) in self._under_way.items():
            if not names.isdisjoint(others):
                self._overlapping |= {operation, other}
        self._under_way[operation] = names, planned

    def withdraw(self, operation: str) -> None:
        """What an operation plans is planned anew."""
        self._under_way.pop(operation, None)

    def end(self, operation: str) -> bool:
        """It is not under way any more; whether no other one was on its files meanwhile."""
        self.withdraw(operation)
        alone = operation not in self._overlapping
        self._overlapping.discard(operation)
        return alone

    def put(self, path: str, size: int) -> None:
        """A file has this size now."""
        self.drop(path)
        self.sizes[path] = size
        self._total += size

    def drop(self, path: str) -> None:
        """A file is gone."""
        self._total -= self.sizes.pop(path, 0)

    def usage(self, planned: Sequence[Planned] = ()) -> tuple[int, int]:
        """The most files and bytes there can be, once all that is under way is done, and this."""
        files, total = len(self.sizes), self._total
        by_path: dict[str, list[Planned]] = {}
        for each in itertools.chain(planned, *(others for _, others in self._under_way.values())):
            by_path.setdefault(each.path, []).append(each)
        for path, plans in by_path.items():
            known = self.sizes.get(path)
            files += known is None
            highest = max([known or 0, *(plan.size for plan in plans if not plan.added)])
            total += highest - (known or 0) + sum(plan.size for plan in plans if plan.added)
        return files, total

    def below(self, path: str) -> list[str]:
        """The files at a name and below it."""
        top = path + "/" if path else ""
        return [path] if path in self.sizes else [name for name in self.sizes if name.startswith(top)]


class Usage(Uncopied):
    """The limits of every agent, and what each has."""

    def __init__(self, backend: AnyBackend, max_files: int | None, max_bytes: int | None) -> None:
        self._backend = backend
        self._max_files = max_files
        self._max_bytes = max_bytes
        self.forget()

    def forget(self) -> None:
        """Know nothing, as after a fork: what is under way is the parent's."""
        self._agents: OrderedDict[str | None, _Agent] = OrderedDict()
        self._guard = threading.Lock()

    def permit(self, operation: Operation, size: int) -> None:
        """Raise `OperationDenied` if a content of so many bytes is too much; until `follow` it counts as written."""
        with self._counted(operation) as agent:
            self._require(agent, operation, [Planned(operation.path, size, operation.kind == "append")])

    def permit_copy(self, operation: Operation) -> None:
        """The same for a file or directory that is copied."""
        with self._counted(operation) as agent:
            skip, target = len(operation.path), operation.target or ""
            planned = [Planned(target + name[skip:], agent.sizes[name]) for name in agent.below(operation.path)]
            self._require(agent, operation, planned)

    def note(self, operation: Operation) -> None:
        """A file is about to be deleted."""
        agent = self._agent(operation.agent)
        with agent.lock:
            agent.begin(operation.id, [operation.path])

    def follow(self, operation: Operation, outcome: Outcome) -> None:
        """Note what an operation did; where that is not known, the agent is counted anew before its next."""
        agent = self._agents.get(operation.agent)
        if agent is None:
            return
        with agent.lock:
            if not agent.end(operation.id):
                agent.counted = None
            elif operation.kind in _WRITING and outcome.status == "ok" and outcome.size is not None:
                agent.put(operation.path, outcome.size)
            elif operation.kind == "delete" and outcome.status == "ok":
                agent.drop(operation.path)
            elif outcome.status == "unknown" or (operation.kind in _MOVING and outcome.error != "operation_denied"):
                agent.counted = None

    def _agent(self, name: str | None) -> _Agent:
        with self._guard:
            agent = self._agents.setdefault(name, _Agent())
            self._agents.move_to_end(name)
            if len(self._agents) > _MOST_AGENTS:
                self._agents.popitem(last=False)
        return agent

    @contextmanager
    def _counted(self, operation: Operation) -> Iterator[_Agent]:
        agent = self._agent(operation.agent)
        with agent.lock:
            agent.withdraw(operation.id)  # of an edit that is tried again
            if agent.counted is None or time.monotonic() - agent.counted > RECOUNT_SECONDS:
                self._count(agent, operation.agent)
            yield agent

    def _require(self, agent: _Agent, operation: Operation, planned: Sequence[Planned]) -> None:
        excess = self._excess(agent, planned)
        if excess and time.monotonic() - (agent.counted or 0.0) > LEAST_SECONDS:
            self._count(agent, operation.agent)
            excess = self._excess(agent, planned)
        if excess:
            raise OperationDenied(f"{operation.path!r}: {excess}")
        agent.begin(operation.id, [operation.path, *(each.path for each in planned)], planned)

    def _excess(self, agent: _Agent, planned: Sequence[Planned]) -> str | None:
        """Which limit would be exceeded by more than it is without this; who is over one may still shrink."""
        (before, held), (files, size) = agent.usage(), agent.usage(planned)
        if self._max_files is not None and files > max(self._max_files, before):
            return f"{files:,} files; an agent may have {self._max_files:,}"
        if self._max_bytes is not None and size > max(self._max_bytes, held):
            return f"{size:,} bytes in all; an agent may have {self._max_bytes:,}"
        return None

    def _count(self, agent: _Agent, name: str | None) -> None:
        store = cast(Backend, self._backend)
        top = Key.tree() if name is None else Key.agent(name)
        listing = run_sync(self._backend, lambda run: tree_flows.list_all(store, run, top))
        agent.count({entry.key.path: entry.size for entry in listing.entries})
