"""One schedule of processes that change the files of one agent with limits: at no moment is there more than allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from agent_memory.backend import ABSENT, ANY, PRESENT, Backend
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import flows, tree_flows
from agent_memory.core.editing import edit
from agent_memory.core.limits import quota
from agent_memory.core.limits.ledger import END_SECONDS
from agent_memory.core.limits.quota import Quota
from agent_memory.core.limits.settings import Limits, LimitSetting
from agent_memory.core.limits.store import LimitedStore
from agent_memory.errors import AgentMemoryError, OperationDenied
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.object_store.engine import Listed, Listing
from agent_memory.object_store.write_log import WRITERS
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import EPOCH, ComposingClient, Faults, SimulatedStore
from tests.simulation.schedule import HOOKS, SECONDS, Failure, Schedule, SimulatedRun

_AGENT: Final = "ann"
_TREE: Final = Key.agent(_AGENT)
_NAMES: Final = tuple(_TREE.join(name) for name in ("a.md", "b.md", "c.md", "d/e.md", "d/f.md"))
_FOREIGN: Final = b"F"
"""The content of another program's files; what it writes does not count as ours."""
_PAGE: Final = 2
_KINDS: Final = (
    "write", "write", "append", "append", "append", "create", "edit", "present", "rename", "copy", "delete", "wait",
)  # fmt: skip


class _PagingClient(ComposingClient):
    """Its listings have short pages, so that files change while they are listed."""

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        whole = await super().list(prefix, delimited=delimited, limit=limit)
        rest = [each for each in whole.objects if after is None or each.name > after]
        page: list[Listed] = rest[:_PAGE]
        return Listing(page, whole.prefixes, page[-1].name if len(rest) > _PAGE else None)


@dataclass
class _WatchedStore(SimulatedStore):
    """A store that looks at the limits after each change.

    Attributes:
        limits: the limits.
        over: what was over a limit.
        adopted: the files that may be over a limit: they took the place of another program's file, or a request that
            arrived late brought them back after their deletion.
        is_shared: whether another program writes there, too: its files are not known before the next count.
    """

    limits: Limits = field(default_factory=Limits)
    over: list[str] = field(default_factory=list)
    adopted: set[str] = field(default_factory=set)
    is_shared: bool = False

    def put(self, name: str, data: bytes, metadata: Mapping[str, str], *args: Any, **options: Any) -> str:
        before = self.objects.get(name)
        write = (name, _record(metadata))
        came_back = write[1] and any(write == (old, _record(new.metadata)) for old, new in self.states if new)
        etag = super().put(name, data, metadata, *args, **options)
        if came_back or (before and not before.data.strip(_FOREIGN)):
            self.adopted.add(name)
        self._look(name)
        return etag

    def delete(self, name: str, if_match: str | None) -> None:
        super().delete(name, if_match)
        self.adopted.discard(name)

    def ours(self) -> dict[str, int]:
        """The bytes of each file that were not written by another program, without files that replaced one of it."""
        return {
            name: len(there.data) - there.data.count(_FOREIGN)
            for name, there in self.objects.items()
            if _is_ours(name) and there.data.strip(_FOREIGN) and name not in self.adopted
        }

    def _look(self, name: str) -> None:
        found, limits = self.ours(), self.limits
        counts = (
            ("bytes of the file", found.get(name, 0), limits.file_bytes),
            ("bytes", sum(found.values()), limits.agent_bytes),
            ("files", len(found), limits.agent_files),
        )
        at = asyncio.get_running_loop().time()
        self.over += [
            f"{count} {what}, {most} are allowed, at {at:.3f}" for what, count, most in counts if most and count > most
        ]


def limited_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_limited_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_limited_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    Up to four processes, some with several tasks, change five files of one agent; some die amid an operation, and in
    some schedules another program writes there too. At no moment our calls have stored more than the limits allow. When
    all have ended, and after the time for which a dead process reserves, a file that fits is written.
    """
    random = Random(seed)
    limits = Limits(
        file_bytes=random.choice((None, 60)),
        agent_bytes=random.choice((None, 100, 400, 5_000)),
        agent_files=random.choice((None, 2, 4)),
    )
    schedule, store = Schedule(seed), _WatchedStore(limits=limits)
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    clock = SimpleNamespace(time=lambda: EPOCH + loop.time(), monotonic=loop.time)
    with mock.patch.object(quota, "time", clock):
        loop.run(_play(random, schedule, store))
    schedule.requests = store.requests
    schedule.faults += store.over[:1]
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: _WatchedStore) -> None:
    much = random.choice((0.0, 0.0, 1.0))
    faults = Faults(0.05 * much, 0.08 * much, 0.0, 0.03 * much, 0.03 * much, 0.03 * much, 0.03 * much)
    processes = [_Process(random, store, faults) for _ in range(random.randint(1, 4))]
    tasks = [
        asyncio.create_task(process.run(random.randint(3, 12)))
        for process in processes
        for _ in range(random.choice((1, 1, 3)))
    ]
    if random.random() < 0.3:
        store.is_shared = True
        tasks.append(asyncio.create_task(_other_program(random, store)))
    for task in tasks:
        if random.random() < 0.15:
            asyncio.get_running_loop().call_later(random.expovariate(0.5), task.cancel)
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            schedule.faults.append(f"an error that is no AgentMemoryError: {ended!r}")
    await asyncio.sleep(END_SECONDS + 60)  # also all requests in the network arrive
    await _fill(schedule, store)


async def _fill(schedule: Schedule, store: _WatchedStore) -> None:
    """A new process can use all that is left, and no more."""
    limits = store.limits
    process = _Process(Random(0), store, Faults(0, 0, 0, 0, 0, 0, 0))
    free = min(most for most in (limits.file_bytes, 1_000_000) if most)
    if limits.agent_bytes is not None:
        free = min(free, limits.agent_bytes - sum(len(o.data) for name, o in store.objects.items() if _is_ours(name)))
    files = sum(map(_is_ours, store.objects))
    may_create = limits.agent_files is None or files < limits.agent_files
    if free < 1:
        return
    try:
        await process.operate(lambda s, r: flows.write(s, r, _TREE.join("last.md"), b"x" * free, ABSENT))
        if not may_create and not store.is_shared:
            schedule.faults.append("a file too many was created")
    except OperationDenied as error:
        if may_create:
            schedule.faults.append(f"{free} bytes would fit, and were refused: {error}")


def _record(metadata: Mapping[str, str]) -> str:
    """The record of the write that made a state: requests of one write have the same one."""
    return metadata.get(WRITERS, "").rpartition(" ")[2]


def _is_ours(name: str) -> bool:
    return name.startswith(f"{_TREE.storage}/")


async def _other_program(random: Random, store: _WatchedStore) -> None:
    for _ in range(random.randint(1, 6)):
        await asyncio.sleep(random.expovariate(1))
        name = random.choice(_NAMES).storage
        if random.random() < 0.4:
            store.delete(name, None)
        else:
            store.put(name, _FOREIGN * random.randint(1, 200), {}, None, False)


class _Process:
    """One process with its own memory of the ledger."""

    def __init__(self, random: Random, store: _WatchedStore, faults: Faults) -> None:
        self._random = random
        self._limits = store.limits
        self._backend = ObjectStoreBackend(_PagingClient(store, random, faults), writer=Writer(), jitter=random.random)
        self._quota = Quota(_AGENT)
        self._run = SimulatedRun(random)

    async def run(self, operations: int) -> None:
        for _ in range(operations):
            await asyncio.sleep(self._random.expovariate(3))
            kind = self._random.choice(_KINDS)
            if kind == "wait":
                await asyncio.sleep(self._random.choice((1.0, 70.0, 200.0)))
                continue
            try:
                await self.operate(self._operation(kind))
            except AgentMemoryError:
                continue  # refused, another writer, or an unknown outcome

    async def operate(self, operation: Callable[[Backend, Any], Awaitable[object]]) -> None:
        setting = LimitSetting(self._limits, "0" * 16, 0.0)
        limited = LimitedStore(self._backend, self._run, _AGENT, setting, self._quota)
        now = self._run.now()
        with deadline_scope(Deadline(SECONDS, now + SECONDS)):
            await operation(limited, limited.run)

    def _operation(self, kind: str) -> Callable[[Backend, Any], Awaitable[object]]:
        random = self._random
        key, target = random.sample(_NAMES, 2)
        data = bytes(random.choices(b"xyz", k=random.choice((1, 10, 30, 90))))

        operations: dict[str, Callable[[Backend, Any], Awaitable[object]]] = {
            "write": lambda s, r: flows.write(s, r, key, data, ANY),
            "present": lambda s, r: flows.write(s, r, key, data, PRESENT),
            "create": lambda s, r: flows.write(s, r, key, data, ABSENT),
            "append": lambda s, r: flows.append(s, r, key, data, separator=b"\n"),
            "edit": lambda s, r: edit(s, r, key, lambda old: (old + data)[len(old) // 2 :], HOOKS, ANY),
            "rename": lambda s, r: tree_flows.rename(s, r, key, target),
            "copy": lambda s, r: tree_flows.copy(s, r, key, target),
            "delete": lambda s, r: flows.delete(s, r, key),
        }
        return operations[kind]
