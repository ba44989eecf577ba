"""One schedule of a conversation that several processes append to and compact; some die amid a call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast
from unittest.mock import patch

from agent_memory.backend import ANY
from agent_memory.conversation import AsyncConversationMemory, Message
from agent_memory.conversation.memory import HISTORY
from agent_memory.conversation.messages import parse
from agent_memory.core import operation
from agent_memory.core.hooks import Hooks
from agent_memory.core.precondition import WriteCondition
from agent_memory.core.results import WriteResult
from agent_memory.core.tree import Tree
from agent_memory.errors import AgentMemoryError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.memory import AsyncAgentMemory
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.reading.reader import Reader
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import EPOCH, ComposingClient, Faults, SimulatedStore
from tests.simulation.schedule import SECONDS, Failure, Schedule, SimulatedRun, mixture

T = TypeVar("T")
_ARCHIVE: Final = "old.jsonl"
_AFTERWARDS: Final = 300.0
_TIME: Final = datetime(2026, 3, 1, tzinfo=UTC)
_CALM: Final = Faults(0, 0, 0, 0, 0, 0, 0)


class _Memory:
    """The operations of `AsyncAgentMemory` that a conversation awaits, in simulated time."""

    def __init__(self, tree: Tree, run: SimulatedRun) -> None:
        self._tree, self._run = tree, run

    def _of_conversation(self, _: tuple[str, ...]) -> _Memory:
        return self

    async def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        return await self._tree.scan(self._run, path, work)

    async def append(self, path: str, content: str, *, separator: str) -> WriteResult:
        return await self._tree.append(self._run, path, content.encode, separator.encode)

    async def write(self, path: str, content: bytes, *, when: WriteCondition = ANY) -> WriteResult:
        return await self._tree.write(self._run, path, lambda: content, when)

    async def edit_bytes(self, path: str, change: Callable[[bytes], bytes | None]) -> WriteResult:
        return await self._tree.edit(self._run, path, lambda _, data: change(data))


def compacting_failures(seeds: Iterable[int]) -> Iterator[Failure]:
    """Run the schedules of many seeds, and yield those that fail."""
    for seed in seeds:
        schedule = run_compacting_schedule(seed)
        if schedule.faults:
            yield Failure(seed, tuple(schedule.faults), str(schedule))


def run_compacting_schedule(seed: int) -> Schedule:
    """Run and check the schedule of one seed.

    At the end a process without faults compacts the history: each appended message is once in the archive or the
    history, in the order of its writer, and no note is left.
    """
    random = Random(seed)
    schedule, store = Schedule(seed), SimulatedStore()
    loop = VirtualLoop()  # type: ignore[abstract]  # the missing methods are never called
    with patch.object(operation, "time", SimpleNamespace(time=lambda: EPOCH + loop.time())):
        loop.run(_play(random, schedule, store))
    schedule.requests = store.requests
    schedule.faults += [f"an error that no task retrieved: {error!r}" for error in loop.errors]
    return schedule


async def _play(random: Random, schedule: Schedule, store: SimulatedStore) -> None:
    faults = mixture(random)
    acknowledged: list[str] = []
    unknown: set[str] = set()
    tasks = []
    for number in range(random.randint(2, 5)):
        conversation = _conversation(random, store, faults)
        is_writer = number % 2 == 0 and random.random() < 0.7
        tasks.append(
            asyncio.create_task(
                _appending(random, conversation, number, acknowledged, unknown)
                if is_writer
                else _compacting(random, conversation)
            )
        )
        if random.random() < 0.4:
            asyncio.get_running_loop().call_later(random.uniform(0, 6), tasks[-1].cancel)
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            schedule.faults.append(f"an error that is no AgentMemoryError: {ended!r}")
    await asyncio.sleep(_AFTERWARDS)  # all requests in the network arrive
    store.dark = (0.0, 0.0)
    await _conversation(random, store, _CALM).compact(keep_last=2, archive_to=_ARCHIVE)
    schedule.faults += _judged(store, acknowledged, unknown)


def _conversation(random: Random, store: SimulatedStore, faults: Faults) -> AsyncConversationMemory:
    client = ComposingClient(store, random, faults, resends=faults.resent > 0)
    backend = ObjectStoreBackend(client, writer=Writer(), jitter=random.random)
    tree = Tree(backend, Hooks([]), Key.tree(), timeout=SECONDS)
    return AsyncConversationMemory(cast(AsyncAgentMemory, _Memory(tree, SimulatedRun(random))))


async def _appending(
    random: Random, conversation: AsyncConversationMemory, number: int, acknowledged: list[str], unknown: set[str]
) -> None:
    for place in range(random.randint(1, 6)):
        await asyncio.sleep(random.expovariate(2))
        name = f"{number}:{place}"
        unknown.add(name)
        try:
            await conversation.append_message(Message("user", name, _TIME))
        except OutcomeUnknownError:
            continue
        except AgentMemoryError:
            unknown.discard(name)
        else:
            unknown.discard(name)
            acknowledged.append(name)


async def _compacting(random: Random, conversation: AsyncConversationMemory) -> None:
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(random.expovariate(1))
        try:
            await conversation.compact(keep_last=random.randint(1, 3), archive_to=_ARCHIVE)
        except AgentMemoryError:
            continue  # another writer, or an unknown outcome


def _judged(store: SimulatedStore, acknowledged: list[str], unknown: set[str]) -> Iterator[str]:
    files: list[Any] = [store.objects.get(Key.tree().join(name).storage) for name in (_ARCHIVE, HISTORY)]
    lines = b"".join(file.data for file in files if file).splitlines()
    messages = [message for line in lines if (message := parse(line))]
    if len(messages) < len(lines):
        yield f"a line without a message: {lines}"
    found = [message.content for message in messages]
    yield from (f"{name} was acknowledged, and is missing" for name in acknowledged if name not in found)
    yield from (f"{name} is there {times} times" for name, times in Counter(found).items() if times > 1)
    yield from (f"{name} was refused, and is there" for name in found if name not in unknown.union(acknowledged))
    for number in {name.partition(":")[0] for name in found}:
        own = [name for name in found if name.startswith(f"{number}:")]
        if own != sorted(own):
            yield f"the messages of a writer are in another order: {own}"
