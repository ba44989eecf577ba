"""One schedule of calls with idempotency keys: several callers repeat each call, and some die amid it."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from agent_memory.backend import Backend
from agent_memory.core import operation
from agent_memory.core.hooks import Hooks
from agent_memory.core.idempotency import RECEIPT_SECONDS, Once
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.receipts import IdempotencyKey, Receipt, receipt_key
from agent_memory.core.results import WriteResult
from agent_memory.core.tree import Tree
from agent_memory.errors import AgentMemoryError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import EPOCH, ComposingClient, SimulatedClient, SimulatedStore
from tests.simulation.schedule import SECONDS, Failure, Schedule, SimulatedRun, mixture

_AFTERWARDS: Final = 300.0
_SHORT: Final = 0.01
"""Seconds for which a key is kept in some schedules: less than any call takes."""
_AGENTS: Final = ("ann", "bob")
_FILE: Final = "log.md"
_FOREIGN: Final = "belongs to another call"


@dataclass(frozen=True)
class KeyedCall:
    """One call; its line is unique, and its key may also belong to a call of another agent, or to an intruder's."""

    agent: str
    key: str
    kind: str
    line: str
    intrudes: bool = False

    def __str__(self) -> str:
        return f"{self.agent} {self.key} {self.kind} {self.line}{' (intruder)' if self.intrudes else ''}"


@dataclass
class _Told:
    """What the callers of one call were told: the results, and the errors with a certain and an uncertain end.

    ``began`` is when each of them began.
    """

    results: list[tuple[object, ...]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    began: list[float] = field(default_factory=list)

    def most_times(self, expired: Sequence[float]) -> int:
        """The length of the longest row of calls in which each call began after the key of its predecessor expired."""
        count, free = 0, 0.0
        for began in sorted(self.began):
            if began >= free:
                count, free = count + 1, min((time for time in expired if time > began), default=math.inf)
        return count


def keyed_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_keyed_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_keyed_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    No call is made twice, of the calls with one key at most one is made, and a call is made if a caller was told so.
    A call may be refused because its key belongs to a rival, and made later: the rival changed nothing.

    In some schedules a key is kept for a shorter time than a call takes: then a call may be made again after it ended.
    """
    random = Random(seed)
    schedule, store, told = Schedule(seed), SimulatedStore(), dict[KeyedCall, _Told]()
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    with patch.object(operation, "time", SimpleNamespace(time=lambda: EPOCH + loop.time())):
        loop.run(_play(random, schedule, store, told))
    schedule.requests = store.requests
    for call, answers in told.items():
        rivals = [other for other in told if (other.agent, other.key) == (call.agent, call.key) and other != call]
        schedule.faults += [f"{call}: {fault}" for fault in _judged(call, answers, store, rivals)]
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: SimulatedStore, told: dict[KeyedCall, _Told]) -> None:
    faults = mixture(random)
    backends: list[Backend] = []
    seconds, sweeps = random.choice(((RECEIPT_SECONDS, False), (RECEIPT_SECONDS, False), (_SHORT, True)))
    for _ in range(random.randint(1, 4)):
        client = (ComposingClient if sweeps else SimulatedClient)(store, random, faults, resends=faults.resent > 0)
        backends.append(ObjectStoreBackend(client, writer=Writer(), jitter=random.random))
    tasks = []
    for call in _calls(random, intruders=not sweeps):
        told[call] = _Told()
        for _ in range(1 if call.intrudes else random.randint(2, 4)):
            caller = _Caller(call, random.choice(backends), SimulatedRun(random), told[call], seconds)
            tasks.append(asyncio.create_task(caller.run(random)))
            if random.random() < 0.3:
                asyncio.get_running_loop().call_later(random.uniform(0, 3), tasks[-1].cancel)
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            schedule.faults.append(f"an error that is no AgentMemoryError: {ended!r}")
    await asyncio.sleep(_AFTERWARDS)  # all requests in the network arrive


def _calls(random: Random, *, intruders: bool) -> Iterator[KeyedCall]:
    lines = (f"line-{number}" for number in range(1000))
    for number in range(random.randint(1, 3)):
        kind = random.choice(("append", "append", "edit"))
        for agent in _AGENTS[: random.randint(1, 2)]:
            yield KeyedCall(agent, f"k{number}", kind, next(lines))
            if intruders and random.random() < 0.2:
                yield KeyedCall(agent, f"k{number}", kind, next(lines), intrudes=True)


@dataclass
class _Caller:
    """A caller, which repeats its call after an error or for no reason, at most three times."""

    call: KeyedCall
    backend: Backend
    run_: SimulatedRun
    told: _Told
    seconds: float
    sweep: Sweep = field(default_factory=Sweep)

    async def run(self, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            await asyncio.sleep(random.expovariate(10 if self.seconds == _SHORT else 1))
            self.told.began.append(asyncio.get_running_loop().time())
            try:
                result = await self._make()
            except OutcomeUnknownError as error:
                self.told.unknown.append(repr(error))
            except AgentMemoryError as error:
                self.told.refused.append(repr(error))
            except asyncio.CancelledError:
                self.told.unknown.append("cancelled")
                raise
            else:
                self.told.results.append((result.path, result.size, result.sha256))

    async def _make(self) -> WriteResult:
        call, run = self.call, self.run_
        once = Once(IdempotencyKey(call.key, call.line if call.kind == "edit" else ""), self.seconds, self.sweep)
        top = Key.agent(call.agent)
        tree = Tree(self.backend, Hooks([]), top, agent=call.agent, timeout=SECONDS, once=once)
        line = f"{call.line}\n".encode()
        if call.kind == "append":
            return await tree.append(run, _FILE, lambda: line, bytes)

        def change(_: Key, content: bytes) -> bytes:
            return line + content

        return await tree.edit(run, _FILE, change, missing=bytes)


def _judged(call: KeyedCall, told: _Told, store: SimulatedStore, rivals: Sequence[KeyedCall]) -> Iterator[str]:
    times = _times_made(call, store)
    if times > told.most_times(_expiries(call, store)):
        yield f"was made {times} times"
    if times and any(_times_made(rival, store) for rival in rivals):
        yield "was made, and another call with its key, too"
    if told.results and not times:
        yield f"was told as done, {told.results}, and was not made"
    if not told.results and not told.unknown and times:
        yield f"was refused, {told.refused}, and was made"
    if len(set(told.results)) > max(1, times):
        yield f"has different results: {set(told.results)}"
    if not rivals and any(_FOREIGN in why for why in told.refused):
        yield f"was taken for another call: {told.refused}"


def _expiries(call: KeyedCall, store: SimulatedStore) -> list[float]:
    """When the key of each call that was done expired."""
    key = receipt_key(call.agent, IdempotencyKey(call.key))
    stored = [Receipt.parse(key, state.data) for name, state in store.states if name == key.storage and state]
    return [receipt.expires - EPOCH for receipt in stored if receipt.done]


def _times_made(call: KeyedCall, store: SimulatedStore) -> int:
    found: Any = store.objects.get(Key.agent(call.agent).join(_FILE).storage)
    return Counter(found.data.decode().split() if found else [])[call.line]
