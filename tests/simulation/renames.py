"""One schedule of files that get other names and old names again: no content is lost to a late or repeated request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any, Final

from agent_memory.backend import ABSENT, Backend
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import flows, tree_flows
from agent_memory.core.precondition import SHA256
from agent_memory.core.versions.keep import VersionedStore
from agent_memory.core.versions.origin import MadeBy
from agent_memory.errors import AgentMemoryError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import ComposingClient, Faults, SimulatedStore
from tests.simulation.schedule import SECONDS, Failure, Schedule, SimulatedRun

_NAMES: Final = tuple(Key.tree().join(name) for name in ("a.md", "b.md", "c.md"))
_MOVES: Final = ("rename", "rename", "rename", "copy")
"""The first move may also be "again": delete the content, and create it again by the same process."""
_AFTERWARDS: Final = 300.0
_LATER: Final = 1000.0
"""So long that no earlier request may still arrive."""


def rename_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_rename_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_rename_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    Up to three movers each give one content, which only this mover has, other names and earlier names again, by
    processes that take turns. Many of the conditional requests arrive late or twice. At the end each content has the
    name of the last move that succeeded, or any name if it is unknown whether the last move did.
    """
    random = Random(seed)
    schedule, store = Schedule(seed), SimulatedStore()
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    for mover in loop.run(_play(random, schedule, store)):
        schedule.faults += mover.lost(store)
    schedule.requests = store.requests
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: SimulatedStore) -> list[_Mover]:
    much = random.choice((0.0, 1.0))
    faults = Faults(0.05 * much, 0.08 * much, 0.0, repeated=0.25, late=0.15, refused=0.03 * much, racing=0.03 * much)
    backends = [
        ObjectStoreBackend(ComposingClient(store, random, faults), writer=Writer(), jitter=random.random)
        for _ in range(random.randint(1, 3))
    ]
    keeps_versions = random.random() < 0.5
    movers = [
        _Mover(f"m{number}", backends, SimulatedRun(random), keeps_versions) for number in range(random.randint(1, 3))
    ]
    tasks = [asyncio.create_task(mover.run(random, random.randint(2, 6))) for mover in movers]
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            schedule.faults.append(f"an error that is no AgentMemoryError: {ended!r}")
    await asyncio.sleep(_AFTERWARDS)  # all requests in the network arrive
    return movers


@dataclass
class _Mover:
    """Moves one content.

    Attributes:
        at: the name of the content; None if it is not known to exist.
        may_be_gone: whether a deletion by the mover itself has an unknown outcome.
        moves: what was done, as text.
    """

    name: str
    backends: Sequence[Backend]
    run_: SimulatedRun
    keeps_versions: bool
    at: Key | None = None
    may_be_gone: bool = True
    moves: str = ""

    @property
    def _data(self) -> bytes:
        return f"content of {self.name}\n".encode()

    async def run(self, random: Random, moves: int) -> None:
        await asyncio.sleep(random.expovariate(2))
        if not await self._move("create", random.choice(self.backends), random.choice(_NAMES)):
            return
        kinds = [random.choice((*_MOVES, "again")), *random.choices(_MOVES, k=moves)]
        for kind in kinds:
            await asyncio.sleep(_LATER if random.random() < 0.1 else random.expovariate(1))
            target = random.choice([name for name in _NAMES if name != self.at])
            backend = random.choice(self.backends)
            if kind == "again":
                made = await self._move("delete", backend) and await self._move("create", backend, self.at)
            elif kind == "copy":
                made = await self._copy(backend, random.choice(self.backends), target)
            else:
                made = await self._move("rename", backend, target)
            if not made:
                return

    async def _copy(self, backend: Backend, other: Backend, target: Key) -> bool:
        """Copy the content, then delete the first one by another process."""
        source = self.at
        if not await self._move("copy", backend, target) or self.at == source:
            return self.at == source
        self.at, copied = source, self.at
        deleted = await self._move("delete", other)
        self.at, self.may_be_gone = copied, False
        return deleted

    async def _move(self, kind: str, backend: Backend, target: Key | None = None) -> bool:
        """Make a move; return whether its outcome is known."""
        began = asyncio.get_running_loop().time()
        store, run = self._store(kind, backend, began)
        outcome = "done"
        try:
            with deadline_scope(Deadline(SECONDS, began + SECONDS)):
                await self._operation(kind, store, run, target)
        except OutcomeUnknownError as error:
            outcome, self.at = repr(error), None
            self.may_be_gone = kind in ("create", "delete")
        except AgentMemoryError as error:
            outcome = repr(error)
            if kind == "create":
                self.at, self.may_be_gone = None, True
        else:
            self.at, self.may_be_gone = target or self.at, kind == "delete"
        self.moves += f"\n{began:9.3f} {kind} {target and target.path}: {outcome}"
        return self.at is not None

    def _store(self, kind: str, backend: Backend, time: float) -> tuple[Backend, Any]:
        if not self.keeps_versions:
            return backend, self.run_
        store = VersionedStore(backend, self.run_, None, MadeBy(kind, self.name, None, time))
        return store, store.run

    def _operation(self, kind: str, store: Backend, run: Any, target: Key | None) -> Awaitable[object]:
        at, to = self.at or _NAMES[0], target or _NAMES[0]
        operations: dict[str, Callable[[], Awaitable[object]]] = {
            "create": lambda: flows.write(store, run, to, self._data, ABSENT),
            "rename": lambda: tree_flows.rename(store, run, at, to),
            "copy": lambda: tree_flows.copy(store, run, at, to),
            "delete": lambda: flows.delete(store, run, at, SHA256(sha256(self._data).hexdigest())),
        }
        return operations[kind]()

    def lost(self, store: SimulatedStore) -> Iterator[str]:
        """What is wrong at the end."""
        found = [key for key in _NAMES if (there := store.objects.get(key.storage)) and there.data == self._data]
        if not (self.may_be_gone or found):
            yield f"the content of {self.name} is lost{self.moves}"
        elif self.at and not self.may_be_gone and self.at not in found:
            yield f"the content of {self.name} is not at {self.at.path}{self.moves}"
