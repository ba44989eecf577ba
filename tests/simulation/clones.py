"""One schedule of clones: several processes are restored from one image of a process, and write one file."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Final

from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.object_store.states import RecentWrites
from agent_memory.runtime.queues import KeyedLocks
from tests.simulation.history import Kind
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import ComposingClient, Faults, SimulatedClient, SimulatedStore
from tests.simulation.schedule import (
    FILLING,
    KINDS,
    Failure,
    Schedule,
    SimulatedRun,
    SimulatedWriter,
    ended,
    judge,
    mixture,
)

_MOST_CLONES: Final = 5
_SLEPT: Final = (0.0, 0.0, 60.0, 86_400.0)


def cloned_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_cloned_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_cloned_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    The image of an odd seed is **warm**: its process has written the file. That of an even seed has written nothing.
    The image may be a day old, and the clock of the host may be as old until the first answer.
    """
    random = Random(seed)
    schedule, store = Schedule(seed), SimulatedStore()
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    faults = mixture(random)
    loop.run(_play(random, schedule, store, faults, is_warm=bool(seed % 2)))
    schedule.requests = store.requests
    judge(schedule, store, faults.resent > 0)
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: SimulatedStore, faults: Faults, *, is_warm: bool) -> None:
    engine = partial(ComposingClient, store, random, faults, resends=faults.resent > 0)
    lines = (f"{number}{FILLING}\n" for number in range(1, 1000))
    image = ObjectStoreBackend(engine(), writer=Writer(), jitter=random.random)
    if is_warm:
        before = SimulatedWriter("image", image, SimulatedRun(random), schedule.history)
        for _ in range(random.randint(1, 3)):
            await before.do("append", next(lines), None)
    slept, is_noticed = random.choice(_SLEPT), random.random() < 0.5
    tasks = []
    for number in range(random.randint(2, _MOST_CLONES)):
        client = engine()
        client.wake(slept, is_noticed=is_noticed)
        clone = restored(image, client)
        writer = SimulatedWriter(f"clone{number}", clone, SimulatedRun(random), schedule.history)
        plan: list[tuple[Kind, str]] = [(random.choice(KINDS), next(lines)) for _ in range(random.randint(1, 4))]
        tasks.append(asyncio.create_task(writer.run(plan, random.expovariate(2))))
    await ended(tasks, schedule)


def restored(image: ObjectStoreBackend, client: SimulatedClient) -> ObjectStoreBackend:
    """A backend of a process that was restored from an image of its memory, with a connection of its own.

    In the image no operation is under way, so no lock is held.
    """
    writer, known = copy.copy(image._writer), RecentWrites()
    for name, value in vars(writer).items():
        setattr(writer, name, KeyedLocks() if isinstance(value, KeyedLocks) else copy.copy(value))
    clone = ObjectStoreBackend(client, writer=writer, jitter=image._bucket.jitter)
    of_image = image._recent_writes
    known._states, known._shared, known._bytes = of_image._states.copy(), of_image._shared.copy(), of_image._bytes
    clone._recent_writes = known
    return clone
