"""`close` and `aclose` wait for what is in progress, so a required audit log has a record of each change."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AsyncAgentMemory,
    FileOperationError,
    Operation,
    Outcome,
    hookimpl,
)
from agent_memory.audit import records
from agent_memory.core import in_progress
from agent_memory.hookspecs import Plugin
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import CheckpointFile, checkpoints_in
from tests.support import sizes
from tests.support.servers import ATOMIC, Root

on_every_backend = pytest.mark.parametrize("root", ATOMIC, indirect=True)
WRITERS = 20


def changed(root: Root) -> set[str]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        return {entry.path for entry in memory.list()}


def recorded(log: Path) -> set[str]:
    """The paths of the changes that a log has: each may have been made."""
    found = records(log) if log.exists() else ()
    return {str(each["path"]) for each in found if each.get("outcome") in ("ok", "unknown")}


def opened(root: Root, log: Path) -> AsyncAgentMemory:
    return AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=[AuditPlugin(log, required=True)])


async def cancelled_then_closed(memory: AsyncAgentMemory, delay: float) -> None:
    tasks = [asyncio.create_task(memory.write(f"{number}.md", "text")) for number in range(WRITERS)]
    await asyncio.sleep(delay)
    for task in tasks:
        task.cancel()
    await memory.aclose()
    await asyncio.gather(*tasks, return_exceptions=True)


@on_every_backend
def test_a_change_that_was_cancelled_before_the_close_is_in_the_log(root: Root, tmp_path: Path) -> None:
    for turn in range(100 if sizes.is_long else 10):
        log = tmp_path / f"{turn}.jsonl"
        mine = root._replace(url=f"{root.url}-{turn}")
        asyncio.run(cancelled_then_closed(opened(mine, log), 0.001 * (turn % 10)))
        assert changed(mine) <= recorded(log)


@on_every_backend
def test_a_change_of_another_thread_that_the_close_meets_is_in_the_log(root: Root, tmp_path: Path) -> None:
    for turn in range(50 if sizes.is_long else 5):
        log = tmp_path / f"{turn}.jsonl"
        mine = root._replace(url=f"{root.url}-{turn}")
        memory = AgentMemory.open(mine.url, storage_options=mine.options, plugins=[AuditPlugin(log, required=True)])
        writers = [threading.Thread(target=written_until_it_fails, args=(memory, number)) for number in range(4)]
        for writer in writers:
            writer.start()
        while not memory.list():
            pass
        memory.close()
        for writer in writers:
            writer.join()
        assert changed(mine) <= recorded(log)


def written_until_it_fails(memory: AgentMemory, writer: int) -> None:
    for number in range(10_000):
        try:
            memory.write(f"{writer}-{number}.md", "text")
        except AgentMemoryError:
            return


class Held:
    """An observer whose call lasts until it is released."""

    def __init__(self) -> None:
        self.entered, self.released, self.is_closed = threading.Event(), threading.Event(), False
        self.reported: list[str] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        self.entered.set()
        self.released.wait()
        assert not self.is_closed
        self.reported.append(operation.path)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("root", ["memory", "ministack"], indirect=True)
def test_a_report_that_its_caller_left_ends_before_the_plugins_are_closed(root: Root) -> None:
    plugin = Held()

    async def left() -> None:
        memory = AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=[plugin])
        task = asyncio.create_task(memory.write("a.md", "text"))
        await asyncio.to_thread(plugin.entered.wait)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        closing = asyncio.create_task(memory.aclose())
        await asyncio.wait([closing], timeout=0.1)
        assert not plugin.is_closed
        plugin.released.set()
        await closing

    asyncio.run(left())
    assert (plugin.reported, plugin.is_closed) == (["a.md"], True)


def test_a_hook_that_closes_its_own_memory_does_not_wait_for_itself() -> None:
    class Closing:
        @hookimpl
        def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002
            memory.close()

    memory = AgentMemory.open("memory://", plugins=[Closing()])
    memory.write("a.md", "text")


def test_a_close_ends_although_an_operation_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(in_progress, "CLOSE_SECONDS", 0.05)
    plugin = Held()
    memory = AgentMemory.open("memory://", plugins=[plugin])
    thread = threading.Thread(target=memory.read_many, args=(["a.md"],), kwargs={"missing_ok": True})
    thread.start()
    plugin.entered.wait()
    with caplog.at_level(logging.WARNING, "agent_memory"):
        memory.close()
    assert "closed after a wait of 0.05 s while operations were in progress (1)" in caplog.text
    plugin.is_closed = False
    plugin.released.set()
    thread.join()


def test_an_operation_on_a_closed_memory_is_refused_and_changes_nothing() -> None:
    memory = AgentMemory.open("memory://closed")
    view = memory.subtree("d")
    memory.close()
    for change in (memory.append, view.append):
        with pytest.raises(FileOperationError, match="this memory is closed, and nothing was done; open it again"):
            change("a.md", "text")
    with AgentMemory.open("memory://closed") as again:
        assert again.list() == ()


def test_a_plugin_may_use_its_memory_while_it_is_closed() -> None:
    class Last:
        @hookimpl
        def agent_memory_after_operation(self) -> None:
            pass

        def close(self) -> None:
            memory.append("last.md", "text")

    memory = AgentMemory.open("memory://last", plugins=[Last()])
    memory.close()
    with AgentMemory.open("memory://last") as again:
        assert again.read("last.md") == "text"


def test_a_close_that_is_interrupted_leaves_the_plugins_to_the_calls_in_progress() -> None:
    plugin = Held()

    async def closed_twice() -> None:
        memory = AsyncAgentMemory.open("memory://interrupted", plugins=[plugin])
        task = asyncio.create_task(memory.write("a.md", "text"))
        await asyncio.to_thread(plugin.entered.wait)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(memory.aclose(), 0.05)
        assert not plugin.is_closed
        plugin.released.set()
        await memory.aclose()
        await task

    asyncio.run(closed_twice())
    assert (plugin.reported, plugin.is_closed) == (["a.md"], True)


class LastWords(Plugin):
    """Writes a file while it is closed."""

    def __init__(self) -> None:
        self.memory: AgentMemory | None = None
        self.error: BaseException | None = None

    @hookimpl
    def agent_memory_before_operation(self) -> None: ...

    def close(self) -> None:
        assert self.memory
        try:
            self.memory.write("last.md", "x")
        except FileOperationError as error:
            self.error = error


class ObservingLastWords(LastWords):
    """Observes operations, too, so that its place among the observers decides."""

    @hookimpl
    def agent_memory_after_operation(self) -> None: ...


@pytest.mark.parametrize("kind", [LastWords, ObservingLastWords])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_plugin_does_while_it_is_closed_is_recorded_or_refused(
    tmp_path: Path, kind: type[LastWords], is_first: bool
) -> None:
    checkpoints = CheckpointFile(tmp_path / "checkpoints.jsonl")
    plugin, log = kind(), AuditPlugin(tmp_path / "audit.jsonl", checkpoints=checkpoints)
    plugin.memory = AgentMemory.open(tmp_path / "store", plugins=[plugin, log] if is_first else [log, plugin])
    plugin.memory.write("a.md", "x")
    plugin.memory.close()
    recorded = [record["path"] for record in records(tmp_path / "audit.jsonl") if record["event"] == "operation"]
    was_written = (tmp_path / "store/last.md").exists()
    assert was_written == ("last.md" in recorded)
    assert was_written == (plugin.error is None)
    if kind is LastWords:
        assert was_written  # a plugin that observes nothing is closed before the log
    if plugin.error:
        assert "this memory is closed, and nothing was done" in str(plugin.error)
    last = list(checkpoints_in((tmp_path / "checkpoints.jsonl").read_bytes()))[-1]
    assert last.seq == len(list(records(tmp_path / "audit.jsonl")))
