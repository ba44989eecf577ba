"""The duration of an outcome is what the caller waited, and the storage's part stands beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, Operation, OperationDenied, hookimpl
from agent_memory.runtime.threads import THREADS
from agent_memory.testing.recording import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.support.servers import Root


class Gate:
    """A guard that waits until the test opens it."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.waiting = 0

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:  # noqa: ARG002
        self.waiting += 1
        self.opened.wait(60)


def test_a_wait_for_a_thread_is_in_the_duration() -> None:
    """More calls than threads: the last ones wait for a thread while a guard holds the others."""
    gate, recording = Gate(), RecordingPlugin()
    count = THREADS + 10

    async def play() -> None:
        async with AsyncAgentMemory.open("memory://", plugins=[recording, gate]) as memory:
            writes = [asyncio.ensure_future(memory.write(f"{number}", "x")) for number in range(count)]
            while gate.waiting < THREADS:  # noqa: ASYNC110 - threads of the executor count
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            gate.opened.set()
            await asyncio.gather(*writes)

    asyncio.run(play())
    durations = [outcome.duration for _, outcome in recording.after]
    assert len(durations) == count
    assert min(durations) >= 0.3, "also those that had no thread yet"


class SlowBackend(MemoryBackend):
    def write(self, *args: Any, **options: Any) -> Any:
        time.sleep(0.1)
        return super().write(*args, **options)


def test_the_storages_part_leaves_out_the_hooks() -> None:
    class Slow:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:  # noqa: ARG002
            time.sleep(0.2)

    recording = RecordingPlugin()
    with AgentMemory.open(SlowBackend(), plugins=[recording, Slow()]) as memory:
        memory.write("a.md", "x")
    ((_, outcome),) = recording.after
    assert outcome.duration >= outcome.storage_duration + 0.2
    assert outcome.storage_duration >= 0.1


def test_an_operation_that_is_refused_has_no_part_of_the_storage() -> None:
    recording = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recording]) as memory, pytest.raises(OperationDenied):
        memory.read_only().write("a.md", "x")
    ((_, outcome),) = recording.after
    assert (outcome.status, outcome.storage_duration) == ("denied", 0.0)


@pytest.mark.parametrize("root", ["local", "ministack"], indirect=True)
def test_each_operation_of_one_call_has_its_own_duration(root: Root) -> None:
    recording = RecordingPlugin()

    async def play() -> float:
        memory = AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=[recording])
        async with memory:
            for number in range(3):
                await memory.write(f"{number}", "x")
            began = time.monotonic()
            await memory.read_many(["0", "1", "2"])
            return time.monotonic() - began

    whole = asyncio.run(play())
    reads = [outcome for operation, outcome in recording.after if operation.kind == "read"]
    assert len(reads) == 3
    assert all(0 < each.storage_duration <= each.duration <= whole for each in reads)
