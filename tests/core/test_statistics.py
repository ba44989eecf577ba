"""Every operation of a service is counted exactly once, whoever listens, and in any thread."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemoryError,
    AgentMemoryService,
    AsyncAgentMemoryService,
    ConflictError,
    InvalidAgentIdError,
    OperationDenied,
    OperationStatistics,
    PathTraversalError,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import ANY, ETag, WriteWhen
from agent_memory.core import statistics
from agent_memory.key import Key
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.core.test_hooks import AsyncGate, AsyncTwin, cancelled
from tests.faults.interrupts import count_places, handled_at, interrupted_at
from tests.support.every_kind import Guard, every_kind, value
from tests.support.servers import Root

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),  # interrupted before it started
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # interrupted in a finalizer
]


def rows(service: AgentMemoryService | AsyncAgentMemoryService) -> dict[tuple[str, str], OperationStatistics]:
    return {(each.kind, each.status): each for each in service.statistics().operations}


def counts(service: AgentMemoryService | AsyncAgentMemoryService) -> dict[tuple[str, str], int]:
    return {key: row.count for key, row in rows(service).items()}


@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
@pytest.mark.parametrize("cls", [AgentMemoryService, AsyncAgentMemoryService])
def test_the_numbers_are_those_that_observers_get(root: Root, cls: type[Any]) -> None:
    recorder = RecordingPlugin()

    async def play() -> Any:
        options: dict[str, Any] = {"storage_options": root.options, "versions": VersionLimits()}
        service = cls(root.url, plugins=[recorder, Guard()], **options)
        await every_kind(service)
        await value(service.aclose() if cls is AsyncAgentMemoryService else service.close())
        return service

    service = asyncio.run(play())
    told: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for operation, outcome in recorder.after:
        told[operation.kind, outcome.status].append(outcome)
    found = rows(service)
    assert counts(service) == {key: len(outcomes) for key, outcomes in told.items()}
    for key, outcomes in told.items():
        assert found[key].seconds == pytest.approx(sum(outcome.duration for outcome in outcomes))
        assert found[key].storage_seconds == pytest.approx(sum(outcome.storage_duration for outcome in outcomes))
    assert service.statistics().refused_names == len(recorder.rejected) == 1
    assert list(found) == sorted(found)


def test_operations_are_counted_although_no_observer_listens() -> None:
    with AgentMemoryService(MemoryBackend()) as service:
        assert service.statistics().operations == ()
        memory = service.agent("bob")
        memory.write("a.md", "12345")
        for _ in range(3):
            memory.read("a.md")
        assert counts(service) == {("write", "ok"): 1, ("read", "ok"): 3}
    assert counts(service)["read", "ok"] == 3, "also of a closed service"


def test_each_service_has_its_own_numbers_with_those_of_all_its_views() -> None:
    with AgentMemoryService("memory://") as one, AgentMemoryService("memory://") as other:
        one.agent("bob").write("dir/a.md", "x")
        one.agent("eve").subtree("dir").acting_as("me").write("b.md", "x")
        one.agent_ids()
        assert counts(one) == {("agent_ids", "ok"): 1, ("write", "ok"): 2}
        assert counts(other) == {}


class Contended(MemoryBackend):
    """A store in which another writer is faster in the first two edits."""

    races = 2

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: Any = None) -> ETag:
        if isinstance(when, ETag) and self.races:
            self.races -= 1
            raise ConflictError("another writer was faster")
        return super().write(key, data, when, origin)


class Doubling:
    @hookimpl
    def agent_memory_filter_content(self, content: bytes) -> bytes:
        return content * 2


def test_bytes_are_counted_after_the_filters_and_only_if_they_were_written() -> None:
    with AgentMemoryService(MemoryBackend(), plugins=[Doubling()]) as service:
        memory = service.agent("bob")
        memory.write("a.md", "123")
        memory.append("a.md", "45")
        memory.append("b.md", "67", separator="\n")
        memory.write_blocks("c.md", [b"1", b"2"], 2)
        memory.edit("a.md", lambda text: text)
        memory.edit("c.md", lambda _: None)
        memory.copy("a.md", "d.md")
        memory.once("key").write("e.md", "1")
        memory.once("key").write("e.md", "1")
        with pytest.raises(AgentMemoryError):
            memory.create("a.md", "12345")
        memory.read("a.md")
        written = {key: row.bytes_written for key, row in rows(service).items() if row.bytes_written}
    assert written == {("write", "ok"): 6 + 4 + 2, ("append", "ok"): 4 + 4}


def test_conflicts_are_counted_also_if_a_later_attempt_succeeded() -> None:
    with AgentMemoryService(Contended()) as service:
        memory = service.agent("bob")
        memory.write("a.md", "x")
        memory.edit("a.md", str.upper)
        with pytest.raises(ConflictError):
            memory.write("a.md", "x", when=SHA256("0" * 64))
        found = rows(service)
    assert found["edit", "ok"].conflicts == 2
    assert (found["write", "error"].conflicts, found["write", "ok"].conflicts) == (1, 0)


def test_refused_operations_and_refused_names_are_counted_apart() -> None:
    with AgentMemoryService(MemoryBackend()) as service:
        memory = service.agent("bob")
        with pytest.raises(OperationDenied):
            memory.read_only().write("a.md", "x")
        for call in (lambda: memory.read("../a"), lambda: memory.subtree("..")):
            with pytest.raises(PathTraversalError):
                call()
        with pytest.raises(InvalidAgentIdError):
            service.agent("..")
        assert counts(service) == {("write", "denied"): 1}
        assert service.statistics().refused_names == 3


def test_a_cancelled_operation_is_counted_as_unknown() -> None:
    gate = AsyncGate()
    service = AsyncAgentMemoryService(gate)
    asyncio.run(cancelled(service.agent("bob").read("a.md"), gate.reached))
    assert counts(service) == {("read", "unknown"): 1}


def test_operations_of_many_threads_and_tasks_are_counted_exactly() -> None:
    service, start = AgentMemoryService(MemoryBackend()), threading.Barrier(9)
    most: list[int] = []

    def work(number: int) -> None:
        memory = service.agent(f"agent-{number}")
        start.wait(60)
        for _ in range(700):
            memory.exists("a.md")

    def look() -> None:
        start.wait(60)
        most.extend(sum(row.count for row in service.statistics().operations) for _ in range(300))

    with ThreadPoolExecutor(9) as pool:
        for each in [*(pool.submit(work, number) for number in range(8)), pool.submit(look)]:
            each.result()
    assert counts(service) == {("exists", "ok"): 8 * 700}
    assert most == sorted(most)

    async def tasks() -> AsyncAgentMemoryService:
        async with AsyncAgentMemoryService(AsyncTwin(MemoryBackend())) as twin:
            await asyncio.gather(*(twin.agent("bob").exists("a.md") for _ in range(600)))
            return twin

    assert counts(asyncio.run(tasks())) == {("exists", "ok"): 600}


@pytest.fixture
def folds_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.core.operation.MOST_PENDING", 2)


@pytest.mark.usefixtures("folds_often")
def test_a_signal_handler_may_call_the_service_at_any_place() -> None:
    places = count_places(work_of(AgentMemoryService(MemoryBackend())))
    for place in range(1, places + 1):
        service = AgentMemoryService(MemoryBackend())
        memory = service.agent("bob")
        handled_at(place, work_of(service), lambda: (memory.exists("b.md"), service.statistics()))  # noqa: B023
        assert counts(service) == {("exists", "ok"): 6}, place


@pytest.mark.usefixtures("folds_often")
def test_an_interrupt_at_any_place_counts_no_operation_twice_and_loses_none_that_ended() -> None:
    recorder = RecordingPlugin()
    service = AgentMemoryService(MemoryBackend(), plugins=[recorder])
    places = count_places(work_of(service))
    assert places > 100
    for place in range(1, places + 1):
        service = AgentMemoryService(MemoryBackend(), plugins=[recorder])
        recorder.after.clear()
        interrupted_at(place, work_of(service))
        told = Counter[str](outcome.status for _, outcome in recorder.after)
        found = Counter[str]({status: number for (_, status), number in counts(service).items()})
        assert (told - found).total() == 0, place
        assert (found - told).total() <= 1, f"place {place}: an interrupt may skip the observers of one operation"
        service.agent("bob").exists("a.md")
        assert sum(counts(service).values()) == found.total() + 1


def work_of(service: AgentMemoryService) -> Callable[[], object]:
    memory = service.agent("bob")

    def work() -> None:
        for _ in range(5):
            memory.exists("a.md")
        service.statistics()

    return work


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # threads of other tests
def test_the_child_of_a_fork_begins_at_zero() -> None:
    service = AgentMemoryService(MemoryBackend())
    service.agent("bob").exists("a.md")
    child = os.fork()
    if not child:
        os._exit(len(service.statistics().operations))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counts(service) == {("exists", "ok"): 1}


def test_the_numbers_keep_no_service_alive() -> None:
    service = AgentMemoryService(MemoryBackend())
    service.agent("bob").exists("a.md")
    tally = weakref.ref(service._hooks.tally)
    del service
    gc.collect()
    assert tally() is None


def test_the_memory_for_operations_that_nobody_asks_for_is_bounded() -> None:
    service = AgentMemoryService(MemoryBackend())
    memory = service.agent("bob")
    for _ in range(3 * statistics.MOST_PENDING):
        memory.exists("a.md")
    assert len(service._hooks.tally.pending) < statistics.MOST_PENDING
