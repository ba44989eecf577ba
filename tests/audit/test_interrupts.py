"""Interrupts of audited calls: the chain stays complete, and every change has its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryService
from agent_memory.audit import log_at, verify
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import AuditCheckpoint
from tests.faults.interrupts import count_places, interrupted_at

pytestmark = pytest.mark.filterwarnings(  # Python prints and ignores an interrupt in `__del__`
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
CHANGES: dict[str, Callable[[AgentMemory, str], object]] = {
    "write": lambda memory, name: memory.write(name, "x"),
    "append": lambda memory, name: memory.append(name, "x"),
    "rename": lambda memory, name: memory.rename("source.md", name),
}


class Heads:
    """A receiver that collects checkpoints."""

    def __init__(self) -> None:
        self.anchors: dict[tuple[str, int], str] = {}

    def __call__(self, checkpoint: AuditCheckpoint) -> None:
        self.anchors[checkpoint.writer, checkpoint.seq] = checkpoint.hash


every_place = pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])


@contextmanager
def audited(directory: Path, heads: Heads, *, required: bool = False, intent: bool = False) -> Iterator[AgentMemory]:
    """One agent's memory whose operations are recorded, with a checkpoint after each."""
    with (
        AuditPlugin(
            directory / "audit.jsonl", checkpoints=heads, checkpoint_every=1, required=required, intent=intent
        ) as audit,
        AgentMemoryService(directory / "root", plugins=[audit]) as service,
    ):
        yield service.agent("bob")


def writing(memory: AgentMemory, name: str) -> Callable[[], object]:
    return lambda: memory.write(name, "x")


def records(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "audit.jsonl").read_bytes().splitlines()]


def changed(directory: Path) -> Counter[object]:
    """The number of records of each file that report a change or an unknown outcome."""
    return Counter(
        record["target"] if "target" in record else record["path"]
        for record in records(directory)
        if record["event"] == "operation" and record["outcome"] not in ("error", "denied")
    )


def files(directory: Path) -> set[str]:
    root = directory / "root" / "agent_memory" / "bob"
    return {path.name for path in root.iterdir()} - {"source.md"}


@every_place
@pytest.mark.parametrize("intent", [False, True], ids=["required", "intent"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_call_interrupted_anywhere_leaves_a_complete_chain_and_a_record_of_its_change(
    tmp_path: Path, change: Callable[[AgentMemory, str], object], intent: bool, step: int
) -> None:
    with audited(tmp_path, heads := Heads(), required=True, intent=intent) as memory:

        def once(name: str) -> Callable[[], object]:
            if not memory.exists("source.md"):
                memory.create("source.md", "x")
            return lambda: change(memory, name)

        places = max(count_places(once(f"count-{n}.md")) for n in range(3))
        interrupted = [interrupted_at(place, once(f"{place}.md")) for place in range(1, places + 1, step)]
        assert sum(interrupted) > 0.9 * len(interrupted)
        once("last.md")()
    assert verify(log_at(tmp_path / "audit.jsonl"), heads.anchors).findings == ()
    told = changed(tmp_path)
    assert files(tmp_path) - set(told) == set()
    assert {name: times for name, times in told.items() if times > 1 and name != "source.md"} == {}


@every_place
def test_a_first_call_interrupted_anywhere_begins_no_second_chain(tmp_path: Path, step: int) -> None:
    with audited(tmp_path / "count", Heads(), required=True) as memory:
        places = count_places(writing(memory, "a.md"))
    for place in range(1, places + 1, step):
        directory = tmp_path / str(place)
        with audited(directory, heads := Heads(), required=True) as memory:
            interrupted_at(place, writing(memory, "a.md"))
            memory.write("b.md", "x")
        verdict = verify(log_at(directory / "audit.jsonl"), heads.anchors)
        assert (verdict.findings, verdict.writers) == ((), 1)
        assert files(directory) == set(changed(directory)) & files(directory), place


@every_place
def test_an_optional_audit_keeps_a_complete_chain_too(tmp_path: Path, step: int) -> None:
    with audited(tmp_path, heads := Heads()) as memory:
        places = count_places(writing(memory, "count.md"))
        for place in range(1, places + 1, step):
            interrupted_at(place, writing(memory, f"{place}.md"))
        memory.write("last.md", "x")
    assert verify(log_at(tmp_path / "audit.jsonl"), heads.anchors).findings == ()
    assert "last.md" in changed(tmp_path)


_WORKER = """
import itertools, os, signal, sys, time
from agent_memory import AgentMemoryService
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import AuditCheckpoint

log, root, seconds, does = sys.argv[1:]
audit = AuditPlugin(log, required=True)
service = AgentMemoryService(root, plugins=[audit])
names, written = itertools.count(), itertools.count()
interrupts = done = 0

class Interrupt(KeyboardInterrupt):
    pass

def handler(number, frame):
    global at_work, interrupts
    signal.setitimer(signal.ITIMER_REAL, 0)
    if not at_work:  # nothing would catch the exception
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        return
    interrupts += 1
    if does == "write":
        service.write_memory_file("bob", f"handler-{next(written)}.md", "x")
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + (time.monotonic_ns() % 997) / 700_000)
    else:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + 3 * usual * (time.monotonic_ns() % 997) / 997)
        at_work = False
        raise Interrupt

def fewest():
    return interrupts if does == "write" else min(interrupts, done)

at_work = False
service.write_memory_file("bob", "first.md", "x")  # it opens the store and the log
begun = time.monotonic()
service.write_memory_file("bob", "second.md", "x")
usual = min(time.monotonic() - begun, 0.01)  # a busy machine takes longer for a write
end = time.monotonic() + float(seconds)
latest = end + 100  # a busy machine takes longer until there are enough of both
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
while (now := time.monotonic()) < end or (fewest() <= 60 and now < latest):
    try:
        at_work = True
        service.write_memory_file("bob", f"{next(names)}.md", "x")
        at_work = False
        done += 1
    except Interrupt:
        if interrupts > 2 * done:
            usual *= 1.1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
service.close()
audit.close()
print(interrupts, next(names), next(written))
"""


def signalled(directory: Path, seconds: float, does: str) -> list[int]:
    """Run a process that writes while it receives signals; the signal handler raises or writes, too."""
    paths = (str(directory / "audit.jsonl"), str(directory / "root"))
    process = subprocess.run(
        [sys.executable, "-c", _WORKER, *paths, str(seconds), does], capture_output=True, text=True, check=True,
        timeout=120 + seconds, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return [int(number) for number in process.stdout.split()]


_FAST_WORKER = """
import itertools, logging, random, signal, sys, time
from agent_memory import AgentMemory, hookimpl

logging.disable(logging.CRITICAL)
reported, names, interrupts, at_work = set(), itertools.count(), 0, False

class Observer:
    required = True

    @hookimpl
    def agent_memory_after_operation(self, operation, outcome):
        reported.add(operation.path)

class Interrupt(KeyboardInterrupt):
    pass

def handler(number, frame):
    global at_work
    if at_work:
        at_work = False
        raise Interrupt

memory = AgentMemory.open("memory://signals", plugins=[Observer()])
signal.signal(signal.SIGALRM, handler)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        at_work = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0006))
        memory.write(f"{next(names) % 500}-{interrupts}.md", "x")
        at_work = False
    except Interrupt:
        interrupts += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(interrupts, len({entry.path for entry in memory.list()} - reported))
"""


for_seconds = pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.long)])


@for_seconds
def test_real_signals_neither_break_a_chain_nor_lose_a_record(tmp_path: Path, seconds: float) -> None:
    interrupts, _, _ = signalled(tmp_path, seconds, "raise")
    assert len(files(tmp_path)) > 50
    verdict = verify(log_at(tmp_path / "audit.jsonl"))
    assert (verdict.is_intact, verdict.writers) == (True, 1), verdict
    assert files(tmp_path) - set(changed(tmp_path)) == set()
    assert interrupts > 50


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.long)])
def test_a_signal_between_the_work_and_its_report_loses_no_report(seconds: float) -> None:
    """A profile function does not see the call of a class, such as `range`; a signal can arrive after it."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FAST_WORKER, str(seconds)], capture_output=True, text=True, check=True,
        timeout=120 + seconds, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    interrupts, unreported = map(int, process.stdout.split())
    assert unreported == 0
    assert interrupts > 100


@for_seconds
def test_a_signal_handler_may_make_audited_calls(tmp_path: Path, seconds: float) -> None:
    interrupts, writes, written = signalled(tmp_path, seconds, "write")
    assert verify(log_at(tmp_path / "audit.jsonl")).is_intact
    told = changed(tmp_path)
    assert {told[f"{number}.md"] for number in range(writes)} == {1}
    assert {told[f"handler-{number}.md"] for number in range(written)} == {1}
    assert interrupts == written > 50
