"""How many files and bytes agents have: counted by a listing, and followed from then on."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from agent_memory import tree_flows
from agent_memory._uncopied import Uncopied
from agent_memory.backend import AnyBackend, Backend
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome
from agent_memory.key import Key
from agent_memory.plugins._sizes import LATE_SECONDS, unknown
from agent_memory.runners import run_sync

RECOUNT_SECONDS: Final = 300.0
LEAST_SECONDS: Final = 5.0
_MOST_AGENTS: Final = 1000
_NOBODY: Final = object()
_WRITING: Final = ("write", "create", "append", "edit")
_MOVING: Final = ("delete", "delete_tree", "forget", "rename", "copy")


class Planned(NamedTuple):
    """What an operation that is under way may make of a file: this size, or with ``added`` so much more."""

    path: str
    size: int
    added: bool = False


@dataclass(slots=True)
class _UnderWay:
    """An operation under way: the files it changes, their planned sizes, and for a rename or copy its two names.

    ``copies``: its source stays.
    ``left``: when its caller left it without a known end, by the clock of `time.monotonic`; None while it waits.
    """

    paths: frozenset[str]
    planned: Sequence[Planned]
    moved: tuple[str, str] | None = None
    copies: bool = False
    left: float | None = None


class _Agent(Uncopied):
    """One agent's files with their sizes, and what operations that are under way may make of them.

    Operations on one file that were under way at the same time took effect in an unknown order.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal's handler may change files, too
        self.users = 0
        self.sizes: dict[str, int] = {}
        self._under_way: dict[str, _UnderWay] = {}
        self._overlapping: set[str] = set()
        self.counted: float | None = None
        self._total = 0

    @property
    def is_idle(self) -> bool:
        """Whether a later listing tells everything: nothing is under way, or left and able to take effect."""
        latest = time.monotonic() - LATE_SECONDS
        return not self.users and all(each.left is not None and each.left < latest for each in self._under_way.values())

    def count(self, sizes: dict[str, int], began: float) -> None:
        """Take sizes as they were listed from a moment on.

        A listing can miss a file that is renamed at the same time, so such a file keeps its size.
        """
        self._settle(began)
        for each in self._under_way.values():
            for name in each.paths if each.moved else ():
                if name in self.sizes:
                    sizes[name] = max(sizes.get(name, 0), self.sizes[name])
        self.sizes, self._total = sizes, sum(sizes.values())
        self.counted = time.monotonic()

    def _settle(self, now: float) -> None:
        late = [name for name, each in self._under_way.items() if each.left and each.left + LATE_SECONDS < now]
        for name in late:
            self.withdraw(name)

    def begin(
        self,
        operation: str,
        paths: Iterable[str],
        planned: Sequence[Planned] = (),
        moved: tuple[str, str] | None = None,
        copies: bool = False,
    ) -> None:
        """An operation on these files is under way."""
        names = frozenset(paths)
        for other, each in self._under_way.items():
            if not names.isdisjoint(each.paths):
                self._overlapping |= {operation, other}
        self._under_way[operation] = _UnderWay(names, planned, moved, copies)

    def leave(self, operation: str) -> None:
        """Its caller left it, and it can still take effect: it stays planned until a listing that began later."""
        if each := self._under_way.get(operation):
            each.left = time.monotonic()
            if each.moved:
                each.planned = [*each.planned, *self.images(*each.moved)]

    def images(self, source: str, target: str) -> list[Planned]:
        """The files that a copy makes, each as large as its source can be."""
        names = {*self.below(source), *(each for other in self._under_way.values() for each in other.paths)}
        top = source + "/"
        found = sorted(name for name in names if name == source or name.startswith(top))
        return [Planned(target + name[len(source) :], self._largest(name)) for name in found]

    def paths(self, source: str, target: str) -> list[str]:
        """The files that a transfer changes: each known one, and its image."""
        images = [each.path for each in self.images(source, target)]
        return [*images, *(source + each[len(target) :] for each in images)]

    def with_images(self, planned: Sequence[Planned]) -> list[Planned]:
        """A plan, and what transfers under way can make of it.

        A copy takes a change of its source along. A rename leaves its source free, so a change of the source can make
        a second file.
        """
        found = list(planned)
        for each in self._under_way.values():
            for plan in planned:
                if each.moved and (plan.path + "/").startswith(each.moved[0] + "/"):
                    image = each.moved[1] + plan.path[len(each.moved[0]) :]
                    if each.copies:
                        found.append(plan._replace(path=image))
                    elif plan.path in self.sizes or self._is_planned(plan.path):
                        found.append(Planned(image, self._largest(plan.path)))
        return found

    def doubled(self, source: str, target: str) -> list[Planned]:
        """The files that a rename can make while a change of its source makes the source anew."""
        return [each for each in self.images(source, target) if self._is_planned(source + each.path[len(target) :])]

    def _is_planned(self, path: str) -> bool:
        return any(plan.path == path for each in self._under_way.values() for plan in each.planned)

    def _largest(self, path: str) -> int:
        plans = [plan for each in self._under_way.values() for plan in each.planned if plan.path == path]
        whole = max([self.sizes.get(path, 0), *(plan.size for plan in plans if not plan.added)])
        return whole + sum(plan.size for plan in plans if plan.added)

    def withdraw(self, operation: str) -> None:
        """What an operation plans is planned anew."""
        self._under_way.pop(operation, None)

    def end(self, operation: str) -> bool:
        """It is not under way any more; whether no other one was on its files meanwhile."""
        if ended := self._under_way.pop(operation, None):
            for each in self._under_way.values():
                if each.moved:  # its images took part in the change
                    top = each.moved[1] + "/"
                    images = [plan for plan in ended.planned if (plan.path + "/").startswith(top)]
                    each.planned = [*each.planned, *images]
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

    def rename(self, path: str, target: str) -> None:
        """A file, or all files below a directory, have another name now."""
        for name in self.below(path):
            self.put(target + name[len(path) :], self.sizes[name])
            self.drop(name)

    def usage(self, planned: Sequence[Planned] = ()) -> tuple[int, int]:
        """The most files and bytes there can be, once all that is under way is done, and this."""
        files, total = len(self.sizes), self._total
        by_path: dict[str, list[Planned]] = {}
        for each in itertools.chain(planned, *(other.planned for other in self._under_way.values())):
            by_path.setdefault(each.path, []).append(each)
        for path, plans in by_path.items():
            known = self.sizes.get(path)
            files += known is None
            highest = max([known or 0, *(plan.size for plan in plans if not plan.added)])
            total += highest - (known or 0) + sum(plan.size for plan in plans if plan.added)
        return files, total

    def grows(self, planned: Iterable[Planned], *, by_files: bool) -> bool:
        """Whether a plan makes a new file, or a file larger than it is; of a transferred file nothing is certain."""
        moving = {path for each in self._under_way.values() if each.moved for path in each.paths}
        certain = {path: size for path, size in self.sizes.items() if path not in moving} if moving else self.sizes
        if by_files:
            return any(plan.path not in certain for plan in planned)
        return any(plan.size > (0 if plan.added else certain.get(plan.path, 0)) for plan in planned)

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
        self._guard = threading.RLock()

    def permit(self, operation: Operation, size: int) -> None:
        """Raise `OperationDenied` if a content of so many bytes is too much; until `follow` it counts as written."""
        self._with_agent(operation.agent, lambda agent: self._permit(agent, operation, size))

    def _permit(self, agent: _Agent, operation: Operation, size: int) -> None:
        self._prepare(agent, operation)
        planned = agent.with_images([Planned(operation.path, size, operation.kind == "append")])
        self._require(agent, operation, planned)
        agent.begin(operation.id, [each.path for each in planned], planned)

    def permit_copy(self, operation: Operation) -> None:
        """The same for a file or directory that is copied."""
        self._with_agent(operation.agent, lambda agent: self._permit_copy(agent, operation))

    def _permit_copy(self, agent: _Agent, operation: Operation) -> None:
        self._prepare(agent, operation)
        names = operation.path, operation.target or ""
        planned = agent.with_images(agent.images(*names))
        self._require(agent, operation, planned)
        agent.begin(operation.id, agent.paths(*names), planned, names, copies=True)

    def note(self, operation: Operation) -> None:
        """A file is about to be deleted."""
        self._with_agent(operation.agent, lambda agent: agent.begin(operation.id, [operation.path]))

    def permit_rename(self, operation: Operation) -> None:
        """A rename needs room only where its source is changed at the same time."""
        self._with_agent(operation.agent, lambda agent: self._permit_rename(agent, operation))

    def _permit_rename(self, agent: _Agent, operation: Operation) -> None:
        if agent.counted is None and not agent.sizes:
            self._count(agent, operation.agent)
        names = operation.path, operation.target or ""
        moved = agent.images(*names)
        taken_along = agent.with_images(moved)[len(moved) :]  # by transfers under way of a directory above the new name
        planned = [*agent.with_images(agent.doubled(*names)), *taken_along]
        if planned:
            self._require(agent, operation, planned)
        agent.begin(operation.id, agent.paths(*names), planned, names)

    def follow(self, operation: Operation, outcome: Outcome) -> None:
        """Note what an operation did; where that is not known, the agent is counted anew before its next."""
        if operation.agent in self._agents:
            self._with_agent(operation.agent, lambda agent: self._follow(agent, operation, outcome))

    def _follow(self, agent: _Agent, operation: Operation, outcome: Outcome) -> None:
        counted, agent.counted = agent.counted, None  # if this is interrupted, the agent is counted anew
        if unknown(outcome):
            agent.leave(operation.id)
            return
        if not agent.end(operation.id):
            return
        if operation.kind in _WRITING and outcome.status == "ok" and outcome.size is not None:
            agent.put(operation.path, outcome.size)
        elif operation.kind == "delete" and outcome.status == "ok":
            agent.drop(operation.path)
        elif operation.kind in _MOVING and outcome.status != "denied":
            if operation.kind == "rename" and outcome.status == "ok":
                agent.rename(operation.path, operation.target or "")
            return
        agent.counted = counted

    def _with_agent(self, name: str | None, work: Callable[[_Agent], None]) -> None:
        """Work on an agent that is locked; no generator holds the lock, because an interrupt would suspend it there."""
        with self._guard:
            agent = self._agents.setdefault(name, _Agent())
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
        """Forget the agent that was idle longest: it is counted anew. Others have plans that no listing tells."""
        if len(self._agents) > _MOST_AGENTS:
            idle = next((name for name, agent in list(self._agents.items()) if agent.is_idle), _NOBODY)
            if idle is not _NOBODY:
                del self._agents[cast("str | None", idle)]

    def _prepare(self, agent: _Agent, operation: Operation) -> None:
        agent.withdraw(operation.id)  # of an edit that is tried again
        if agent.counted is None or time.monotonic() - agent.counted > RECOUNT_SECONDS:
            self._count(agent, operation.agent)

    def _require(self, agent: _Agent, operation: Operation, planned: Sequence[Planned]) -> None:
        excess = self._excess(agent, planned)
        if excess and time.monotonic() - (agent.counted or 0.0) > LEAST_SECONDS:
            self._count(agent, operation.agent)
            excess = self._excess(agent, planned)
        if excess:
            raise OperationDenied(f"{operation.path!r}: {excess}")

    def _excess(self, agent: _Agent, planned: Sequence[Planned]) -> str | None:
        """Which limit would be exceeded; a change that makes nothing larger is always permitted."""
        files, size = agent.usage(planned)
        if self._max_files is not None and files > self._max_files and agent.grows(planned, by_files=True):
            return f"{files:,} files; an agent may have {self._max_files:,}"
        if self._max_bytes is not None and size > self._max_bytes and agent.grows(planned, by_files=False):
            return f"{size:,} bytes in all; an agent may have {self._max_bytes:,}"
        return None

    def _count(self, agent: _Agent, name: str | None) -> None:
        store = cast(Backend, self._backend)
        began = time.monotonic()
        top = Key.tree() if name is None else Key.agent(name)
        listing = run_sync(self._backend, lambda run: tree_flows.list_all(store, run, top))
        agent.count({entry.key.path: entry.size for entry in listing.entries}, began)
