"""Measure the cost of hooks, logging and the audit log in one run, as ratios.

    python benchmarks/hooks.py [DIRECTORY]

Every row is the median of interleaved rounds, on local disk.

- read 1 KB: without any plugin, and with the default: logging with its level off.
- write, durable: without the audit log, with a required one, and also with the intent. "one fsync more" is the plain
  write plus an append to another open file with `os.fdatasync`: the least cost of a record that survives a crash.
- append: the same for an append, which itself has one fsync.
- a record: a record of an audit log that is not required, compared with a bare ``open(path, "a").write`` of the same
  line. The operation is a read from memory, whose own cost is subtracted.
- hooks without plugins: the check whether any plugin needs a call.
- a context: a read from memory without plugins, compared with one whose plugin has a context manager that does nothing.
- a count: what `AgentMemoryService.statistics` costs each operation.
- verify: records per second, and the length of the records.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from _comparing import ROUNDS, Call, compare, microseconds

from agent_memory import AgentMemory, AgentMemoryService, hookimpl
from agent_memory.audit.record import START, encode
from agent_memory.audit.verifier import Verifier
from agent_memory.core.hooks import Hooks
from agent_memory.core.statistics import MOST_PENDING, Tally
from agent_memory.core.tree import Tree
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory_local import LocalBackend
from agent_memory_memory import MemoryBackend

TEXT = "x" * 1023 + "\n"
RECORDS = 1_000_000
PART = 10_000


def reads(directory: Path) -> None:
    bare = AgentMemory(Tree(LocalBackend(directory / "bare"), Hooks(), Key.tree()))
    with AgentMemory.open(directory / "logged") as logged:
        for memory in (bare, logged):
            memory.write("notes/a.md", TEXT)
        compare("read 1 KB, plain without plugins", lambda: bare.read("notes/a.md"), lambda: logged.read("notes/a.md"))


@contextmanager
def audited(directory: Path, **options: bool) -> Iterator[AgentMemory]:
    name = "-".join(["audited", *options])
    with (
        AuditPlugin(directory / f"{name}.jsonl", **options) as audit,  # type: ignore[arg-type]  # the options are flags
        AgentMemoryService(directory / name, plugins=[audit]) as service,
    ):
        yield service.agent("bench")


def changes(directory: Path, row: str, change: Callable[[AgentMemory], object]) -> None:
    with ExitStack() as stack:
        plain = stack.enter_context(AgentMemoryService(directory / "plain")).agent("bench")
        required = stack.enter_context(audited(directory, required=True))
        intent = stack.enter_context(audited(directory, required=True, intent=True))
        log = os.open(directory / "bare.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        line = b"x" * 500 + b"\n"

        def with_one_sync_more() -> None:
            change(plain)
            os.write(log, line)
            os.fdatasync(log)

        others: dict[str, Call] = {"with intent": lambda: change(intent), "one fsync more": with_one_sync_more}
        compare(row, lambda: change(plain), lambda: change(required), others, calls=50)
        os.close(log)


def records(directory: Path) -> None:
    path = directory / "plain.log"

    def append_plainly() -> None:
        with path.open("a") as file:
            file.write(line)

    with AuditPlugin(directory / "audit.jsonl") as audit:
        memory = AgentMemory(Tree(MemoryBackend(), Hooks([audit]), Key.tree()))
        silent = AgentMemory(Tree(MemoryBackend(), Hooks(), Key.tree()))
        for each in (memory, silent):
            each.write("notes/a.md", TEXT)
        memory.read("notes/a.md")
        audit.flush()
        line = (directory / "audit.jsonl").read_text().splitlines(keepends=True)[-1]
        ratios = []
        for _ in range(ROUNDS):
            plain = microseconds(append_plainly, 300)
            cost = microseconds(lambda: memory.read("notes/a.md"), 300)
            cost -= microseconds(lambda: silent.read("notes/a.md"), 300)
            ratios.append((cost / plain, cost, plain))
    ratio, cost, plain = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(
        f"{'a record, not required':<34}   plain {plain:9.1f} µs   a record {cost:9.1f} µs = {ratio:5.2f}x", flush=True
    )


def empty_hooks() -> None:
    hooks = Hooks()

    def ask() -> None:
        if hooks.guards or hooks.see_content or hooks.wants_successes():
            raise AssertionError

    print(
        f"{'hooks without plugins':<34}   {statistics.median(microseconds(ask, 10_000) for _ in range(ROUNDS)):9.3f} µs"
    )


class Surrounding:
    """A plugin whose context does nothing."""

    @hookimpl
    def agent_memory_operation_context(self) -> AbstractContextManager[None]:
        return nullcontext()


def contexts() -> None:
    bare, surrounded = (AgentMemory.open(MemoryBackend(), plugins=plugins) for plugins in ([], [Surrounding()]))
    for memory in (bare, surrounded):
        memory.write("notes/a.md", TEXT)
    compare("a context, a read from memory", lambda: bare.read("notes/a.md"), lambda: surrounded.read("notes/a.md"))


def counted() -> None:
    tally = Tally()

    def count() -> None:
        tally.pending.append(("read", "ok", 0, 0, 0.001, 0.001))
        if len(tally.pending) >= MOST_PENDING:
            tally.fold()

    print(f"{'a count':<34}   {statistics.median(microseconds(count, 10_000) for _ in range(ROUNDS)):9.3f} µs")


def verified() -> None:
    facts = {"id": "0123456789ab-1", "actor": "model", "agent": "bob", "operation": "append", "path": "notes/log.md",
             "given": 20, "outcome": "ok", "size": 12345, "sha256": "a" * 64, "duration": 0.00123}  # fmt: skip
    verifier, seq, prev, spent, size = Verifier(), 0, START, 0.0, 0
    for first in range(0, RECORDS, PART):
        lines = []
        for number in range(first, first + PART):
            seq += 1
            line, prev = encode("0" * 16, seq, prev, "operation", 1.7e9 + number, facts)
            lines.append(line)
        data = b"".join(lines)
        size += len(data)
        started = time.perf_counter()
        verifier.feed("log", data, first + 1)
        spent += time.perf_counter() - started
    verdict = verifier.verdict
    assert verdict.is_intact
    assert verdict.records == RECORDS
    print(f"{'verify':<34}   {RECORDS:,} records of {size // RECORDS} bytes: {RECORDS / spent:,.0f} a second")


def main(directory: Path) -> None:
    empty_hooks()
    counted()
    contexts()
    reads(directory)
    changes(directory, "write 1 KB, durable, plain unaudited", lambda memory: memory.write("notes/a.md", TEXT))
    changes(directory, "append, durable, plain unaudited", lambda memory: memory.append("notes/log.md", "a line\n"))
    records(directory)
    verified()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        main(Path(name))
