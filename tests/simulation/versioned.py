"""One schedule of a store that keeps versions: every state that a change ends is found afterwards, and no other."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from agent_memory.backend import ABSENT
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import flows
from agent_memory.core.editing import edit
from agent_memory.core.flows import Effect
from agent_memory.core.precondition import SHA256
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.keep import VersionedStore
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.states import StoredRecord
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.object_store.engine import Object
from agent_memory.object_store.write_log import WriteLog
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import EPOCH, ComposingClient, Faults, SimulatedStore
from tests.simulation.schedule import HOOKS, SECONDS, Failure, Schedule, SimulatedRun, mixture

_KEY: Final = Key.tree().join("log.md")
_HOUR: Final = 3600.0
_AFTERWARDS: Final = 300.0
_CALM: Final = Faults(0, 0, 0, 0, 0, 0, 0, 0)
_KINDS: Final = ("append", "append", "edit", "edit", "write", "swap", "create", "delete")
Content: TypeAlias = bytes


@dataclass
class _State:
    """One state as the server had it: its origin, its content at each of its ends, and what came after it.

    ``ended_by`` has the operation of each state that names this one as its predecessor, and None for any other end.
    """

    origin: Origin
    contents: list[Content] = field(default_factory=list)
    ended_by: list[MadeBy | None] = field(default_factory=list)


def versioned_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_versioned_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_versioned_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    The server's own record of all states of the file is compared with the versions: each state that was replaced or
    deleted is one, with its content, its maker and the operation that ended it, in the order of the states. There are
    two exceptions, of a file that is created again with the same bytes after a deletion:

    - A store compares contents (docs/s3.md), so a late change of the first file replaces the second one. Two states
      then have one predecessor: either may have ended it, and a version only has to come before its own predecessor.
    - If the network itself repeated the request that created the file, its versions only have to have been states: no
      writer can tell whether its own change was made before the deletion. What the first file had more is a version.
    """
    random = Random(seed)
    schedule, store = Schedule(seed), SimulatedStore()
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    loop.run(_play(random, schedule, store))
    schedule.requests = store.requests
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: SimulatedStore) -> None:
    faults = mixture(random)
    lines = (f"line-{number}\n".encode() for number in range(1000))
    tasks = []
    for number in range(random.randint(2, 5)):
        client = ComposingClient(store, random, faults, resends=faults.resent > 0)
        backend = ObjectStoreBackend(client, writer=Writer(), jitter=random.random)
        writer = _VersionedWriter(f"w{number}", backend, SimulatedRun(random), random.uniform(-_HOUR, _HOUR))
        plan = [(random.choice(_KINDS), next(lines)) for _ in range(random.randint(1, 5))]
        tasks.append(asyncio.create_task(writer.run(plan, random)))
        if random.random() < 0.2:
            asyncio.get_running_loop().call_later(random.uniform(0, 3), tasks[-1].cancel)
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            schedule.faults.append(f"an error that is no AgentMemoryError: {ended!r}")
    await asyncio.sleep(_AFTERWARDS)  # all requests in the network arrive
    calm = ObjectStoreBackend(ComposingClient(store, random, _CALM), writer=Writer(), jitter=random.random)
    histories = Histories(calm, SimulatedRun(random), None)
    states = await histories.states(_KEY)
    found: dict[str, list[tuple[StoredRecord, Content]]] = defaultdict(list)
    for each in sorted(states.records, key=lambda stored: stored.is_second):
        found[each.record.id].append((each, await histories.content_of(each)))
    schedule.faults += _judged(found, store, states.current.origin.id if states.current else None)


@dataclass
class _VersionedWriter:
    """One process, with a clock of its own."""

    name: str
    backend: ObjectStoreBackend
    run_: SimulatedRun
    ahead: float

    async def run(self, plan: list[tuple[str, bytes]], random: Random) -> None:
        for kind, line in plan:
            await asyncio.sleep(random.expovariate(2))
            now = asyncio.get_running_loop().time()
            by = MadeBy(kind, self.name, line.decode().strip(), EPOCH + now + self.ahead)
            store = VersionedStore(self.backend, self.run_, None, by)
            try:
                with deadline_scope(Deadline(SECONDS, now + SECONDS)):
                    await self._operation(store, kind, line)
            except AgentMemoryError:
                continue

    def _operation(self, store: VersionedStore, kind: str, line: bytes) -> Awaitable[Effect]:
        operations: dict[str, Callable[[], Awaitable[Effect]]] = {
            "append": lambda: flows.append(store, store.run, _KEY, line),
            "edit": lambda: edit(store, store.run, _KEY, lambda old: line + old, HOOKS, missing=b""),
            "write": lambda: flows.write(store, store.run, _KEY, line),
            "swap": lambda: self._swap(store, line),
            "create": lambda: flows.write(store, store.run, _KEY, line, ABSENT),
            "delete": lambda: flows.delete(store, store.run, _KEY),
        }
        return operations[kind]()

    async def _swap(self, store: VersionedStore, line: bytes) -> Effect:
        old = (await flows.read(store, store.run, _KEY)).data
        return await flows.write(store, store.run, _KEY, line, SHA256(hashlib.sha256(old).hexdigest()))


def _judged(
    found: Mapping[str, list[tuple[StoredRecord, Content]]], store: SimulatedStore, current: str | None
) -> Iterator[str]:
    objects = [state for name, state in store.states if name == _KEY.storage]
    states = _states(objects)
    present = objects[-1].data if objects and objects[-1] else b""
    everything = [present, *(content for those in found.values() for _, content in those)]
    repeated = {state.origin.history for state in states.values() if len(state.contents) > 1}
    for id_, state in states.items():
        if id_ != current and state.origin.history not in repeated:
            yield from _lost(id_, state, found.get(id_, []), everything)
        if id_ in found and not {content for _, content in found[id_]} <= set(state.contents):
            yield f"the version {id_} never had the content {[content for _, content in found[id_]]}"
    for id_ in found.keys() - states.keys():
        yield f"the version {id_} never was a state"
    if any(present.startswith(content) for _, content in found.get(current or "", [])):
        yield f"the current state {current} is an earlier version too"
    for history in {state.origin.history for state in states.values()} - repeated:
        those = {id_: states[id_] for id_ in found if id_ in states and states[id_].origin.history == history}
        in_order = [*those] == sorted(those, key=[*states].index, reverse=True)
        if not in_order and not _forked(those):
            yield f"the versions of {history} are in the order {[*those]}"


def _forked(those: Mapping[str, _State]) -> bool:
    """Whether two states have one predecessor, and each version comes before its own predecessor."""
    order = [*those]
    before = [state.origin.previous for state in those.values()]
    return any(len(state.ended_by) > 1 for state in those.values()) and all(
        previous not in order[:place] for place, previous in enumerate(before)
    )


def _lost(
    id_: str, state: _State, those: list[tuple[StoredRecord, Content]], everything: list[Content]
) -> Iterator[str]:
    """What is missing or wrong in the version of a state, or in the versions of its contents if it is no version.

    A store compares contents: a change of one state also replaces another one with the same bytes (docs/s3.md), and its
    version has them.
    """
    contents = [content for _, content in those] or everything
    if any(not any(each.startswith(content) for each in contents) for content in state.contents):
        yield f"the versions of the state {id_} by {state.origin.by} contain {contents} instead of {state.contents}"
    for stored, _ in those[:1]:
        if _who(stored.record.made_by) != _who(state.origin.by):
            yield f"the version {id_} was made by {state.origin.by}, not by {stored.record.made_by}"
        if None not in state.ended_by and _who(stored.record.ended_by) not in map(_who, state.ended_by):
            yield f"the version {id_} was ended by {state.ended_by}, not by {stored.record.ended_by}"


def _who(by: MadeBy | None) -> tuple[object, ...]:
    """An operation without its time: a record tells when it was written, which is before the change."""
    return by.facts[:3] if by else ()


def _states(objects: list[Object | None]) -> dict[str, _State]:
    """The states of a file by id; None in ``objects`` is a deletion."""
    states: dict[str, _State] = {}
    before: Origin | None = None
    content = b""
    for each in [*objects, None]:
        origin = None if each is None else Origin.parse(WriteLog.of(each.metadata, each.etag).origin)
        if before and (origin is None or origin.id != before.id):
            states[before.id].contents.append(content)
            if origin is None or origin.previous != before.id:
                states[before.id].ended_by.append(None)
        if origin and origin.id not in states:
            states[origin.id] = _State(origin)
            if origin.previous in states:
                states[origin.previous].ended_by.append(origin.by)
        before, content = origin, each.data if each else b""
    return states
