"""One schedule: make writers from a random seed, run them to the end, and check their history."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from agent_memory.backend import ABSENT, Backend
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import flows
from agent_memory.core.editing import EditHooks, edit
from agent_memory.core.precondition import SHA256
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    OutcomeUnknownError,
)
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.runtime.queues import KeyedLocks
from tests.simulation.history import File, HistoryStep, Kind, explained
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import ComposingClient, Faults, SimulatedClient, SimulatedStore

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
SECONDS: Final = 30.0
"""The deadline of every operation."""

_KEY = Key.tree().join("log.md")
_MOST_WRITERS = 6
FILLING = "." * 35
"""Makes lines so long that a few lines are a large object."""
KINDS: list[Kind] = ["append", "append", "append", "prepend", "prepend", "swap", "swap", "create", "read"]
_WIPING: list[Kind] = ["append", "prepend", "swap", "swap", "write", "create"]
_LATE = 1.1
_LAST_TRY = 1.0
_AFTERWARDS = 300.0
_PATIENCE = 20 * SECONDS


@dataclass(frozen=True)
class Failure:
    """A schedule with a failed check: its seed, the faults, and the history as text."""

    seed: int
    faults: tuple[str, ...]
    schedule: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {'; '.join(self.faults)}\n{self.schedule}"


@dataclass
class Schedule:
    """The history of one schedule, and the faults that the check found."""

    seed: int
    history: list[HistoryStep] = field(default_factory=list)
    requests: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.requests} requests", *map(str, sorted(self.history, key=lambda s: s.began))]
        return "\n".join([*lines, *(f"WRONG: {fault}" for fault in self.faults)])


def failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed."""
    random = Random(seed)
    schedule = Schedule(seed)
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    store = SimulatedStore()
    faults = mixture(random)
    loop.run(_play(random, schedule, store, faults))
    schedule.requests = store.requests
    judge(schedule, store, faults.resent > 0)
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


def mixture(random: Random) -> Faults:
    """Return random faults: few in some schedules, many in others; in some, the client resends requests by itself."""
    much = random.choice((0.0, 0.5, 1.0, 1.0, 2.0))
    resent = random.choice((0.0, 0.0, 0.1))
    return Faults(
        0.05 * much, 0.08 * much, resent, 0.03 * much, 0.02 * much, 0.04 * much, 0.03 * much, random.choice((0, 0, 0.2))
    )


async def _play(random: Random, schedule: Schedule, store: SimulatedStore, faults: Faults) -> None:
    if random.random() < faults.outage:
        begins = random.uniform(0, 2)
        store.dark = begins, begins + random.uniform(1, 3 * SECONDS)
    lines = (f"{number}{FILLING}\n" for number in range(1, 1000))
    wipes = random.random() < 0.3  # few: a write without a precondition hides faults, and is expensive to check
    kinds = _WIPING if wipes else KINDS
    backends: list[Backend] = []
    tasks = []
    for number in range(random.randint(2, 3 if wipes else _MOST_WRITERS)):
        if not backends or random.random() < 0.7:  # otherwise another task of the previous process
            engine = random.choice((ComposingClient, ComposingClient, SimulatedClient))  # both kinds write one file
            client = engine(store, random, faults, resends=faults.resent > 0)
            backends.append(ObjectStoreBackend(client, writer=Writer(), jitter=random.random))
        writer = SimulatedWriter(f"w{number}", backends[-1], SimulatedRun(random), schedule.history)
        plan: list[tuple[Kind, str]] = [
            (random.choice(kinds), next(lines)) for _ in range(random.randint(1, 3 if wipes else 4))
        ]
        task = asyncio.create_task(writer.run(plan, random.expovariate(2)))
        tasks.append(task)
        if random.random() < 0.1:
            asyncio.get_running_loop().call_later(random.uniform(0, 2), task.cancel)
    await ended(tasks, schedule)


async def ended(tasks: list[asyncio.Task[None]], schedule: Schedule) -> None:
    """Wait until the writers have ended, and until all requests in the network have arrived."""
    done, endless = await asyncio.wait(tasks, timeout=_PATIENCE)
    schedule.faults += [f"{len(endless)} writers had not ended after {_PATIENCE:g} s"] * bool(endless)
    for task in endless:
        task.cancel()
    for task in done:
        if not task.cancelled() and (error := task.exception()):
            schedule.faults.append(f"an error that is no AgentMemoryError: {error!r}")
    await asyncio.sleep(_AFTERWARDS)


@dataclass
class SimulatedWriter:
    """One writer of the file: it makes its operations one after another, and notes their results."""

    name: str
    backend: Backend
    run_: SimulatedRun
    history: list[HistoryStep]

    async def run(self, plan: list[tuple[Kind, str]], wait: float) -> None:
        await asyncio.sleep(wait)
        known: File = None
        for kind, line in plan:
            if kind == "swap":  # a swap replaces the content that was just read
                known = await self.do("read", "", None)
            known = await self.do(kind, line, known)

    async def do(self, kind: Kind, line: str, known: File) -> File:
        """Make one operation, and return the content that the writer knows afterwards."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen: File = ()
        record = partial(HistoryStep, self.name, kind, line.strip(), began)
        if kind == "swap":
            seen = known
        try:
            with deadline_scope(Deadline(SECONDS, began + SECONDS)):
                found = await self._operate(kind, line, known)
        except AgentMemoryFileNotFoundError as error:
            if kind == "read":
                self.history.append(record(loop.time(), "done", None))
                return None
            self.history.append(record(loop.time(), "nothing", seen, repr(error)))
        except OutcomeUnknownError as error:
            self.history.append(record(loop.time(), "unknown", seen, repr(error)))
        except AgentMemoryError as error:
            self.history.append(record(loop.time(), "nothing", seen, repr(error)))
        except asyncio.CancelledError:
            self.history.append(record(float("inf"), "unknown", seen))
            raise
        else:
            seen = found if kind == "read" else seen
            self.history.append(record(loop.time(), "done", seen))
            return found if kind == "read" else known
        return known

    async def _operate(self, kind: Kind, line: str, known: File) -> File:
        store, run, data = self.backend, self.run_, line.encode()
        if kind == "append":
            await flows.append(store, run, _KEY, data)
        elif kind == "prepend":
            await edit(store, run, _KEY, lambda old: data + old, HOOKS)
        elif kind == "swap":
            old = "".join(f"{each}\n" for each in known or ()).encode()
            await flows.write(store, run, _KEY, old + data, SHA256(hashlib.sha256(old).hexdigest()))
        elif kind == "create":
            await flows.write(store, run, _KEY, data, ABSENT)
        elif kind == "write":
            await flows.write(store, run, _KEY, data)
        else:
            return tuple((await flows.read(store, run, _KEY)).data.decode().split())
        return None


async def _unfiltered(data: bytes) -> bytes:
    return data


async def _permitted() -> None:
    return


HOOKS: Final = EditHooks(_unfiltered, _permitted)
"""No filter, and no guard."""


class SimulatedRun:
    """The run of a flow in simulated time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._locks = KeyedLocks()

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await primitive(*args, **kwargs)

    async def offload(self, function: Callable[[], T]) -> T:
        return function()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T], limit: int) -> list[U]:  # noqa: ARG002
        return [await function(item) for item in items]

    def file_lock(self, store: Backend, key: Key) -> AbstractAsyncContextManager[None]:
        return self._locks.lock((id(store), key))

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return self._random.random()


def judge(schedule: Schedule, store: SimulatedStore, resends: bool) -> None:
    """Add the faults of a schedule whose writers have ended."""
    found = store.objects.get(_KEY.storage)
    end: File = tuple(found.data.decode().split()) if found else None
    calm = not (store.lost or store.dark[1] or resends)
    for step in schedule.history:
        if step.result == "nothing" and step.line.encode() in store.ever:
            schedule.faults.append(f"{step.kind} {step.line} was reported without effect, but took effect")
        if step.result == "unknown" and calm and step.why:
            schedule.faults.append(f"{step.kind} {step.line} has an unknown outcome, although no answer was lost")
        if step.ended - step.began > SECONDS * _LATE and step.ended < float("inf"):
            schedule.faults.append(f"{step.kind} {step.line} took {step.ended - step.began:.1f} s of {SECONDS:g}")
        # A network that loses many requests may leave no time for another attempt.
        had_time = calm or step.ended - step.began < SECONDS - _LAST_TRY
        if step.kind in ("append", "prepend") and had_time and "ConflictError" in step.why:
            schedule.faults.append(f"{step.kind} {step.line} was refused because of other writers")
    if not explained(schedule.history, end):
        schedule.faults.append(f"no order of the operations explains the end: {end}")
