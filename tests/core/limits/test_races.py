"""Many processes that share an agent never exceed its limits, also if some are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from agent_memory import AgentMemoryError, AgentMemoryService, Limits, OperationDenied, VersionLimits
from agent_memory.core.limits.ledger import END_SECONDS
from tests.support import sizes
from tests.support.processes import in_processes, started
from tests.support.servers import Root

_LIMITS = Limits(file_bytes=400, agent_bytes=4_000, agent_files=20)
_NAMES = [f"{number}.md" for number in range(30)]
ON_DISK_AND_S3 = pytest.mark.parametrize("root", ["local", "ministack"], indirect=True)


def change(memory: Any, rng: random.Random) -> None:
    """One change; a refusal, a missing file and a lost race are ordinary."""
    name, other = rng.sample(_NAMES, 2)
    text = "x" * rng.choice((1, 30, 300))
    kind = rng.choice(("create", "write", "append", "append", "rename", "copy", "restore", "delete", "edit"))
    with suppress(AgentMemoryError):
        if kind in ("create", "write", "append"):
            getattr(memory, kind)(name, text)
        elif kind in ("rename", "copy"):
            getattr(memory, kind)(name, other)
        elif kind == "edit":
            memory.edit(name, lambda old: old + text, missing="")
        elif kind == "delete":
            memory.delete(name)
        elif found := memory.versions.list(name)[1:]:
            memory.versions.restore(name, found[-1])


def changing(number: int, barrier: Any, root: Root, changes: int, close: bool) -> None:
    service = AgentMemoryService(root.url, storage_options=root.options)
    memory, rng = service.agent("ann"), random.Random(number)
    barrier.wait()
    for _ in range(changes):
        change(memory, rng)
    if close:
        service.close()


def within(memory: Any) -> tuple[int, int]:
    entries = memory.list()
    assert all(entry.size <= 400 for entry in entries)
    found = sum(entry.size for entry in entries), len(entries)
    assert found[0] <= 4_000, found
    assert found[1] <= 20, found
    return found


@ON_DISK_AND_S3
def test_processes_that_share_an_agent_never_exceed_its_limits(root: Root) -> None:
    count, changes = (16, 200) if sizes.is_long else (4, 30)
    with AgentMemoryService(
        root.url, storage_options=root.options, limits=_LIMITS, versions=VersionLimits()
    ) as service:
        service.agent("ann").write("0.md", "x")
        in_processes(count, changing, root, changes, True)
        memory = service.agent("ann")
        size, files = within(memory)
        for number in range(20 - files):  # the closed services reserve nothing, so one service can use the rest
            memory.create(f"rest{number}", "")
        for entry in memory.list():
            with suppress(OperationDenied):
                memory.append(entry.path, "y" * min(400 - entry.size, 4_000 - size))
                size += min(400 - entry.size, 4_000 - size)
        assert within(memory) == (size, 20)
        with pytest.raises(OperationDenied):
            memory.create("one more", "")


@ON_DISK_AND_S3
def test_killed_processes_leave_no_way_over_the_limits(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, count = (10, 6) if sizes.is_long else (2, 3)
    options = {"storage_options": root.options}
    with AgentMemoryService(root.url, limits=_LIMITS, versions=VersionLimits(), **options) as service:  # type: ignore[arg-type]
        memory = service.agent("ann")
        memory.write("0.md", "x")
        rng = random.Random(7)
        for _ in range(rounds):
            with started(count, changing, root, 10_000, False) as pids:
                for pid in pids:
                    time.sleep(rng.uniform(0.2, 0.8))
                    within(memory)
                    os.kill(pid, signal.SIGKILL)
            within(memory)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + END_SECONDS + 1)
    with AgentMemoryService(root.url, **options) as service:  # type: ignore[arg-type]
        memory = service.agent("ann")
        size, files = within(memory)
        if files < 20:
            memory.create("last", "x" * min(400, 4_000 - size))
        within(memory)
