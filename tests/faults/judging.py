"""Checks after an operation was stopped, failed or finished; each function returns the faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    FileOperationError,
    OutcomeUnknownError,
    PartialOperationError,
    VersionLimits,
)
from agent_memory.audit import log_at, verify
from agent_memory.audit.record import facts_of, head
from agent_memory.key import RESERVED
from agent_memory.plugins.audit import AuditPlugin
from tests.faults.operations import Operation, Tree
from tests.faults.plans import Report

_SECRET = b"not the memory's\n" * 100


@dataclass(frozen=True)
class Place:
    """A root, and beside it a directory that the memory must not touch."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    def prepare(self, operation: Operation) -> None:
        """Create the initial files of the operation: without the memory, or with one that keeps versions."""
        self.outside.mkdir(parents=True)
        (self.outside / "secret.md").write_bytes(_SECRET)
        if operation.prepare:
            with self.memory(VersionLimits()) as memory:
                operation.prepare(memory)
            return
        if operation.before is not None:
            self.root.mkdir()
        for name, text in operation.start.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def memory(self, versions: VersionLimits | None = None) -> AgentMemory:
        """The memory as a later process opens it, with durability "process"."""
        return AgentMemory.open(f"{self.root.as_uri()}?durability=process", versions=versions)

    def remove(self) -> None:
        shutil.rmtree(self.base)


def tree(memory: AgentMemory) -> Tree:
    """All files that a memory shows."""
    return {entry.path: memory.read_bytes(entry.path).decode(errors="replace") for entry in memory.list()}


def after_a_kill(place: Place, operation: Operation, report: Report, *, torn: bool = False) -> list[str]:
    """The faults after the process died; ``torn``: the process or the machine may have died during a write."""
    with place.memory() as memory:  # closed before its filesystem is unmounted
        return _after_a_kill(memory, place, operation, report, torn)


def _after_a_kill(memory: AgentMemory, place: Place, operation: Operation, report: Report, torn: bool) -> list[str]:
    faults = list(_outside(place))
    try:
        found = tree(memory)
        if isinstance(report.error, BaseException):
            faults.append(f"raised {report.error!r}")
        if report.acknowledged and found != operation.after:
            faults.append(f"acknowledged, but there is {_shown(found)}")
        elif found not in operation.allowed:
            if torn and _is_torn(operation, found):
                return faults + list(_closes_the_torn_line(memory, operation, found))
            return [*faults, f"neither old nor new: {_shown(found)}"]
        return [*faults, *_works_again(memory, operation, found), *_outside(place), *_unswept(place)]
    except AgentMemoryError as error:
        return [*faults, f"does not work afterwards: {error!r}"]


def in_memory_after_a_kill(memory: AgentMemory, operation: Operation) -> list[str]:
    """The faults of a memory without a disk after an operation was stopped."""
    found = tree(memory)
    if found not in operation.allowed:
        return [f"neither old nor new: {_shown(found)}"]
    return list(_works_again(memory, operation, found))


def audit(base: Path) -> AuditPlugin:
    """An audit plugin whose log is beside a root."""
    return AuditPlugin(base / "log" / "audit.jsonl", required=True, intent=True)


def after_an_audited_kill(place: Place, operation: Operation, report: Report, *, torn: bool = False) -> list[str]:
    """The same after an audited operation, including faults of the log."""
    location = log_at(place.base / "log" / "audit.jsonl")
    lines = b"".join(block for part in location.parts() for block in location.blocks(part)).splitlines()
    told = [facts_of(line)["event"] for line in lines if (found := head(line)) and found.whole]
    with place.memory() as memory:
        changed = tree(memory) != operation.start
    faults = after_a_kill(place, operation, report, torn=torn)
    if report.acknowledged and "operation" not in told:
        faults.append(f"acknowledged, and the log has {told}")
    if changed and "intent" not in told:
        faults.append(f"changed something, and the log has {told}")
    with audit(place.base) as later, AgentMemory.open("memory://", plugins=[later]) as memory:
        memory.write("a.md", "x")
    verdict = verify(location)
    faults += [] if verdict.is_intact and verdict.records == len(told) + 3 else [f"the log: {verdict}"]
    return faults


def after_an_error(
    place: Place,
    operation: Operation,
    report: Report,
    *,
    may_leave: bool = False,
    relieve: Callable[[], object] = lambda: None,
) -> list[str]:
    """The faults after a failed call; ``relieve`` removes the cause before the memory is used again.

    ``may_leave``: the failed call was a removal, so its file may still be there.
    """
    with place.memory() as memory:
        faults, found = _of_an_error(memory, place, operation, report)
        faults += [] if may_leave else _left_behind(place, found)
        relieve()
        return faults + (list(_works_again(memory, operation, found)) if found in operation.allowed else [])


def _of_an_error(memory: AgentMemory, place: Place, operation: Operation, report: Report) -> tuple[list[str], Tree]:
    faults = list(_outside(place))
    found = tree(memory)
    if report.error is None:
        faults += [] if found == operation.after else [f"returned, but there is {_shown(found)}"]
    elif not isinstance(report.error, FileOperationError):
        faults.append(f"raised {report.error!r}")
    elif str(place.base) in str(report.error):
        faults.append(f"names a host path: {report.error}")
    elif operation.in_steps or isinstance(report.error, OutcomeUnknownError | PartialOperationError):
        faults += [] if found in operation.allowed else [f"neither old nor new: {_shown(found)}"]
    elif found != operation.start:
        faults.append(f"raised {report.error!r}, but there is {_shown(found)}")
    return faults, found


def neither_old_nor_new(place: Place, operation: Operation, _: Report) -> list[str]:
    """The faults of a tree that is neither old nor new, for any report; for operations known to be unsafe."""
    with place.memory() as memory:
        found = tree(memory)
    return [] if found in operation.allowed else [f"neither old nor new: {_shown(found)}"]


def _works_again(memory: AgentMemory, operation: Operation, found: Tree) -> Iterator[str]:
    """Run the same operation again, then another; leftovers of the first one must not disturb them."""
    try:
        operation.run(memory)
        raised = "nothing"
    except AgentMemoryError as error:
        raised = repr(error)  # not the exception: its frames keep directories open and the filesystem busy
    now = tree(memory)
    unknown = operation.once and "OutcomeUnknownError" in raised
    if found == operation.start and now != operation.after and not (unknown and now == found):
        yield f"another run from the old state ended with {raised} and {_shown(now)}"
    elif found == operation.after and now not in (operation.after, operation.again):
        yield f"another run from the new state ended with {raised} and {_shown(now)}"
    elif found not in (operation.start, operation.after) and now not in operation.allowed:
        yield f"another run from half-way ended with {raised} and {_shown(now)}"
    memory.write("next.md", "next")
    for name in now:
        memory.append(name, "")
    if tree(memory) != {**now, "next.md": "next"}:
        yield f"a later write ended with {_shown(tree(memory))}"


def _is_torn(operation: Operation, found: Tree) -> bool:
    """Whether only the appended record is torn: cut, or replaced by zeros after a power loss on ext4."""
    name = operation.appends
    if name is None or {**found, name: ""} != {**operation.after, name: ""}:
        return False
    old, new = operation.start[name], operation.after[name]
    zeros = old + "\0" * (len(found[name]) - len(old))
    return len(old) < len(found[name]) <= len(new) and (new.startswith(found[name]) or found[name] == zeros)


def _closes_the_torn_line(memory: AgentMemory, operation: Operation, found: Tree) -> Iterator[str]:
    name = operation.appends or ""
    record = "the next record"
    memory.append(name, record, separator="\n")
    text = found[name]
    if memory.read(name) != text + ("" if text.endswith("\n") else "\n") + record:
        yield "the next record is not on a line of its own"


def _outside(place: Place) -> Iterator[str]:
    names = [path.name for path in place.outside.rglob("*")]
    if names != ["secret.md"] or (place.outside / "secret.md").read_bytes() != _SECRET:
        yield "something outside was touched"
    if {path.name for path in place.base.iterdir()} - {"root", "outside", "log"}:
        yield "something was made beside the root"


def _left_behind(place: Place, found: Tree) -> list[str]:
    """Unexpected leftovers; empty directories are allowed: see `tests.backends.local.test_empty_directories`."""
    expected = {place.root / name for name in found}
    ours = place.root / RESERVED
    paths = [p for p in place.root.rglob("*") if p not in expected and not p.is_dir() and ours not in p.parents]
    return [f"left behind: {path.name}" for path in (*paths, *ours.rglob("*.agent-memory-tmp"))]


def _unswept(place: Place) -> list[str]:
    return [f"not swept: {path.name}" for path in place.root.rglob("*.agent-memory-tmp")]


def _shown(found: Tree) -> str:
    return ", ".join(f"{name} ({len(text)})" for name, text in found.items()) or "nothing"
