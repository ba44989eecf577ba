"""Signal handlers, forks and threads that cannot start leave no lock, exceed no limit and lose no change."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    FileOperationError,
    Limits,
    Operation,
    OperationDenied,
    Outcome,
    hookimpl,
)
from agent_memory_memory import MemoryBackend
from tests.core.test_hooks import AsyncTwin
from tests.faults.interrupts import count_places, handled_at, interrupted_at
from tests.support.sizes import also

SECONDS = 20
MOST_FILES, MOST_BYTES = 3, 400


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def limited(backend: MemoryBackend) -> AgentMemory:
    return AgentMemory.open(backend, limits=Limits(agent_files=MOST_FILES, agent_bytes=MOST_BYTES))


def in_another_thread(call: Any) -> None:
    """Call in another thread; fail if a lock that the main thread did not release blocks it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


def fill(memory: AgentMemory) -> None:
    """Write until the limits refuse it."""
    for number in range(MOST_FILES + 3):
        with suppress(OperationDenied):
            memory.append(f"{number}.md", "x" * 90)


@pytest.mark.parametrize("kind", ["create", "rename", *also(["append", "delete"])])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupted_call_releases_the_limits_locks_and_does_not_exceed_the_limit(kind: str) -> None:
    calls: dict[str, Any] = {
        "create": lambda memory: memory.create("b.md", "x" * 90),
        "append": lambda memory: memory.append("a.md", "x" * 90),
        "rename": lambda memory: memory.rename("a.md", "b.md"),
        "delete": lambda memory: memory.delete("a.md"),
    }

    def fresh() -> tuple[MemoryBackend, AgentMemory]:
        backend = MemoryBackend()
        memory = limited(backend)
        memory.write("a.md", "x" * 90)
        return backend, memory

    _, first = fresh()
    for place in range(1, count_places(lambda: calls[kind](first)) + 1, 3):
        backend, memory = fresh()
        interrupted_at(place, lambda memory=memory: calls[kind](memory))  # type: ignore[misc]
        in_another_thread(lambda memory=memory: fill(memory))
        entries = AgentMemory.open(backend).list()
        assert len(entries) <= MOST_FILES, place
        assert sum(entry.size for entry in entries) <= MOST_BYTES, place


@pytest.mark.long
def test_a_signal_handler_may_change_files_during_a_limit_check() -> None:
    backend = MemoryBackend()
    memory = limited(backend)
    places = count_places(lambda: memory.write("a.md", "x"))
    for place in range(1, places + 1):
        memory = limited(backend)  # counts from the beginning

        def handler(memory: AgentMemory = memory) -> None:
            try:
                memory.write("b.md", "y")
            except FileOperationError:
                return  # the signal interrupted a change of the store itself

        handled_at(place, lambda memory=memory: memory.write("a.md", "x"), handler)  # type: ignore[misc]
        in_another_thread(lambda memory=memory: memory.write("a.md", "z"))


@pytest.mark.parametrize("kind", ["append", "edit", "write"])
def test_no_acknowledged_change_of_a_signal_handler_is_lost_in_memory(kind: str) -> None:
    calls: dict[str, Any] = {
        "append": lambda memory: memory.append("a.md", "main;"),
        "edit": lambda memory: memory.edit("a.md", lambda text: text + "main;"),
        "write": lambda memory: memory.write("new.md", "main;"),
    }
    counted = AgentMemory.open(MemoryBackend())
    counted.write("a.md", "old;")
    refused = 0
    for place in range(1, count_places(lambda: calls[kind](counted)) + 1):
        memory = AgentMemory.open(MemoryBackend())
        memory.write("a.md", "old;")
        acknowledged: list[str] = []

        def handler(memory: AgentMemory = memory, acknowledged: list[str] = acknowledged) -> None:
            try:
                memory.append("a.md", "handler;")
                acknowledged.append("handler;")
            except FileOperationError:
                return

        handled_at(place, lambda memory=memory: calls[kind](memory), handler)  # type: ignore[misc]
        wanted = sorted(["old;", *acknowledged, *(["main;"] if kind != "write" else [])])
        assert sorted(part + ";" for part in memory.read("a.md").split(";")[:-1]) == wanted, place
        refused += not acknowledged
    assert refused  # a change of the store was interrupted at some places


def test_a_child_forked_during_a_change_in_memory_can_write() -> None:
    backend = MemoryBackend()
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with backend._changes.lock:
            held.set()
            go_on.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(SECONDS)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            AgentMemory.open(backend).append("a.md", "x")
        finally:
            os._exit(0 if AgentMemory.open(backend).read("a.md") == "x" else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


class Ordered:
    """A slow content check and an observer, which record their order."""

    def __init__(self) -> None:
        self.began, self.go_on, self.told = threading.Event(), threading.Event(), threading.Event()
        self.seen: list[str] = []

    @hookimpl
    def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:  # noqa: ARG002 - the hook's
        self.began.set()
        self.go_on.wait(SECONDS)
        self.seen.append("checked")

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        self.seen.append("told")
        self.told.set()


@pytest.mark.parametrize("again", [0, 3])
def test_a_cancelled_call_is_reported_after_the_running_hook_has_ended(again: int) -> None:
    async def main() -> None:
        hooks = Ordered()
        memory = AsyncAgentMemory.open(AsyncTwin(MemoryBackend()), plugins=[hooks])
        call = asyncio.create_task(memory.write("a.md", "x"))
        await asyncio.to_thread(hooks.began.wait, SECONDS)
        call.cancel()
        for _ in range(again):
            await asyncio.sleep(0)
            call.cancel()
        await asyncio.sleep(0)
        assert hooks.seen == []
        hooks.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(hooks.told.wait, SECONDS)
        assert hooks.seen == ["checked", "told"]

    asyncio.run(main())


def test_a_call_that_can_start_no_thread_fails_and_does_not_run_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_memory.runtime import threads

    async def main() -> None:
        monkeypatch.setattr(threads, "_executors", {})
        async with AsyncAgentMemoryService(tmp_path) as service:
            with monkeypatch.context() as patched:

                def refused(_: object) -> None:
                    raise RuntimeError("can't start new thread")  # Python's message when the system has no more threads

                patched.setattr(threading.Thread, "start", refused)
                with pytest.raises(FileOperationError, match="no thread can be started"):
                    await service.write_memory_file("a", "late.md", "x")
            await service.write_memory_file("a", "other.md", "x")
            await service.write_memory_file("a", "other.md", "x")
            assert await service.agent("a").exists("late.md") is False

    asyncio.run(main())


CHILD = """
import multiprocessing, os, sys

def work(folder):
    from agent_memory import AgentMemory
    from agent_memory.plugins.audit import AuditPlugin
    AgentMemory.open(folder + "/root", plugins=[AuditPlugin(folder + "/audit.jsonl")]).append("a.md", "x")

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(sys.argv[1],))
    child.start()
    child.join()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_process_that_imports_the_audit_log_writes_its_pending_records(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    subprocess.run([sys.executable, program, tmp_path, method], check=True, timeout=SECONDS)
    assert '"append"' in (tmp_path / "audit.jsonl").read_text()
