"""The fault matrix of S3: every fault on every operation, once and permanently, with its result."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from agent_memory import (
    ABSENT,
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    OutcomeUnknownError,
    VersionLimits,
)
from tests.object_store.proxy import Chooser, Fault, Proxy
from tests.support.servers import S3Server

OLD, NEW = "old\n", "new\n"
Files: TypeAlias = dict[str, str]
CANCELLED: Final = "cancelled"
"""A fault of an async caller, not of the network; see `tests.object_store.cancelling`."""
CLOSED: Final = "closed"
"""The same, and the memory is closed at once."""
IN_TWO_STEPS: Final = "in two steps"
"""A fault of the server: it checks a precondition some time before it makes the change."""
CLONES_OF_AN_IMAGE: Final = "clones"
"""Several processes restored from one image of a process; see `tests.support.cloned_races`."""
CLONED_PLACES: Final = (("s3fs", False), ("s3fs", True), ("obstore", False), ("local", False), ("local", True))
"""The places of their races, and whether the image is warm. The threads of obstore are not in a clone."""
NOT_CLONED_BY_OBSTORE: Final = ("edit, versions", "rename")
"""Races of clones that obstore does not support, without conditional deletes."""
WRONG = ("hangs", "lost", "twice", "foreign")


@dataclass(frozen=True)
class Operation:
    """An operation, with the tree's files before it and after it took effect once.

    Given `earlier`, the store keeps versions. It has the contents of the earlier versions of ``d/a.md``, oldest first,
    before the operation and after it. `deadlines` is the number of calls of a memory, each with a deadline of its own.
    """

    name: str
    call: Callable[[AgentMemory], object]
    before: Files
    after: Files
    prepare: Callable[[AgentMemory], object] | None = None
    earlier: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    deadlines: int = 1


@dataclass(frozen=True)
class Cell:
    """The effect of one fault on one operation."""

    result: str
    requests: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.result}, {self.requests}, {self.seconds:.1f} s"


OtherFault: TypeAlias = Literal["cancelled", "closed", "in two steps", "clones"]
"""A fault that is not of the network."""
Cells: TypeAlias = dict[tuple[str, str, Fault | OtherFault, bool], Cell]
"""By engine, operation, fault, and whether the fault is permanent; of clones, whether their image is warm."""
Trial: TypeAlias = Callable[[], Cell]

_HAVE = {"d/a.md": OLD}
LARGE = "." * (5 << 20) + OLD
_SHA = hashlib.sha256(OLD.encode()).hexdigest()


def _restored(memory: Any) -> object:
    """Restore the version before the last; the memory may be an `AsyncAgentMemory`."""
    found = memory.versions.list("d/a.md")
    if isinstance(found, tuple):
        return memory.versions.restore("d/a.md", found[1].id)

    async def restored() -> object:
        return await memory.versions.restore("d/a.md", (await found)[1].id)

    return restored()


OPERATIONS = (
    Operation("read", lambda m: m.read("d/a.md"), _HAVE, _HAVE),
    Operation("stat", lambda m: m.stat("d/a.md"), _HAVE, _HAVE),
    Operation("list", lambda m: m.list("d"), _HAVE, _HAVE),
    Operation("write, a new file", lambda m: m.write("d/b.md", NEW), _HAVE, {**_HAVE, "d/b.md": NEW}),
    Operation("write", lambda m: m.write("d/a.md", NEW), _HAVE, {"d/a.md": NEW}),
    Operation("write, SHA256", lambda m: m.write("d/a.md", NEW, when=SHA256(_SHA)), _HAVE, {"d/a.md": NEW}),
    Operation("create", lambda m: m.create("d/b.md", NEW), _HAVE, {**_HAVE, "d/b.md": NEW}),
    Operation("append, a new file", lambda m: m.append("d/b.md", NEW), _HAVE, {**_HAVE, "d/b.md": NEW}),
    Operation("append", lambda m: m.append("d/a.md", NEW), _HAVE, {"d/a.md": OLD + NEW}),
    Operation(
        "append to one's own",
        lambda m: m.append("d/a.md", NEW),
        {"d/a.md": OLD},
        {"d/a.md": OLD + NEW},
        lambda m: m.write("d/a.md", OLD),
    ),
    Operation(
        "append to a large file",
        lambda m: m.append("d/a.md", NEW),
        {"d/a.md": LARGE},
        {"d/a.md": LARGE + NEW},
        lambda m: (m.write("d/large ready.md", LARGE), m.append("d/large ready.md", NEW)),
    ),
    Operation(
        "create, in parts",
        lambda m: m.write_blocks("d/b.md", [LARGE.encode()], len(LARGE), when=ABSENT),
        _HAVE,
        {**_HAVE, "d/b.md": LARGE},
        lambda m: m.write_blocks("d/large ready.md", [LARGE.encode()], len(LARGE), when=ABSENT),
    ),
    Operation("edit", lambda m: m.edit("d/a.md", lambda text: text + NEW), _HAVE, {"d/a.md": OLD + NEW}),
    Operation(
        "edit, a new file",
        lambda m: m.edit("d/b.md", lambda text: text + NEW, missing=""),
        _HAVE,
        {**_HAVE, "d/b.md": NEW},
    ),
    Operation("delete by edit", lambda m: m.edit("d/a.md", lambda _: None), _HAVE, {}),
    Operation(
        "write, idempotency key",
        lambda m: m.once("k").write("d/a.md", NEW),
        _HAVE,
        {"d/a.md": NEW},
        lambda m: m.once("ready").write("d/ready.md", NEW),
    ),
    Operation(
        "append, idempotency key",
        lambda m: m.once("k").append("d/a.md", NEW),
        _HAVE,
        {"d/a.md": OLD + NEW},
        lambda m: m.once("ready").append("d/ready.md", NEW),
    ),
    Operation("delete", lambda m: m.delete("d/a.md"), _HAVE, {}),
    Operation("rename", lambda m: m.rename("d/a.md", "d/b.md"), _HAVE, {"d/b.md": OLD}),
    Operation("write, versions", lambda m: m.write("d/a.md", NEW), _HAVE, {"d/a.md": NEW}, earlier=((), (OLD,))),
    Operation(
        "edit, versions",
        lambda m: m.edit("d/a.md", lambda text: text + NEW),
        _HAVE,
        {"d/a.md": OLD + NEW},
        earlier=((), (OLD,)),
    ),
    Operation("append, versions", lambda m: m.append("d/a.md", NEW), _HAVE, {"d/a.md": OLD + NEW}, earlier=((), ())),
    Operation("delete, versions", lambda m: m.delete("d/a.md"), _HAVE, {}, earlier=((), (OLD,))),
    Operation(
        "restore, versions",
        _restored,
        {"d/a.md": NEW},
        {"d/a.md": OLD},
        lambda m: (m.write("d/a.md", OLD), m.write("d/a.md", NEW)),
        earlier=((NEW, OLD), (NEW, OLD, NEW)),
        deadlines=2,
    ),
)
_NOT_BY_OBSTORE = {"rename", "create, in parts", "delete by edit"}
ENGINES = {
    "s3fs": OPERATIONS,
    "obstore": [each for each in OPERATIONS if each.name not in _NOT_BY_OBSTORE and not each.earlier],
}
"""The operations that each engine supports; obstore has neither conditional deletes, versions nor multipart uploads."""


@contextmanager
def trial(operation: Operation, fault: Fault, always: bool, server: S3Server, seconds: float) -> Iterator[Trial]:
    """Prepare one operation. Calling the trial runs it and compares its result with the stored files."""
    url = server.new_url()
    versions = VersionLimits() if operation.earlier else None
    with (
        AgentMemory.open(url, storage_options=server.options, versions=versions) as direct,
        Proxy(server.endpoint) as proxy,
    ):
        for path, text in operation.before.items():
            direct.write(path, text)
        options = server.through(proxy, read_timeout=1)
        with AgentMemory.open(url, storage_options=options) as memory:
            memory.write("ready.md", "")  # connects, and tests the server's preconditions
            memory.create("d/ready.md", "")
            if operation.prepare:
                operation.prepare(memory)

            def run() -> Cell:
                proxy.choose = (lambda _: fault) if always else _first_of_each(fault)
                with proxy.counting() as requests:
                    began = time.monotonic()
                    result = _result(partial(operation.call, memory.with_timeout(seconds)))
                    took = time.monotonic() - began
                proxy.choose = lambda _: None
                return Cell(judged(result, operation, direct), sum(requests.values()), took)

            yield run


def on_an_unsafe_server(operation: Operation, server: S3Server, upstream: S3Server) -> str:
    """The result of an operation on a stand-in, compared with the files that its upstream stores."""
    url = upstream.new_url()
    versions = VersionLimits() if operation.earlier else None
    with (
        AgentMemory.open(url, storage_options=upstream.options, versions=versions) as direct,
        AgentMemory.open(url, storage_options=server.options) as memory,
    ):
        for path, text in operation.before.items():
            direct.write(path, text)
        if operation.prepare:
            operation.prepare(direct)
        return judged(_result(partial(operation.call, memory)), operation, direct)


def _first_of_each(fault: Fault) -> Chooser:
    met: set[str] = set()

    def choose(operation: str) -> Fault | None:
        if operation in met:
            return None
        met.add(operation)
        return fault

    return choose


def _result(call: Callable[[], object]) -> str:
    try:
        call()
    except AgentMemoryError as error:
        return type(error).__name__
    except BaseException as error:  # noqa: BLE001 - the matrix reports any exception
        return f"foreign: {type(error).__name__}"
    return "done"


def files_of(memory: AgentMemory) -> Files:
    found = {}
    for entry in memory.list():
        if not entry.path.endswith("ready.md"):
            found[entry.path] = memory.read(entry.path)
    return found


def judged(result: str, operation: Operation, memory: AgentMemory) -> str:
    """The result of an operation, if the files and their versions agree with it; else the fault."""
    found = _judged(result, operation, files_of(memory))
    return _judged_versions(result, operation, memory) if operation.earlier and found == result else found


def _judged(result: str, operation: Operation, files: Files) -> str:
    if result.startswith("foreign"):
        return result
    if any(text.count(NEW) > 1 or text.count(OLD) > 1 for text in files.values()):
        return f"twice: {result}"
    renamed_in_part = operation.name == "rename" and files == {**operation.before, **operation.after}
    if result == "done":
        kept = files == operation.after
    elif result == OutcomeUnknownError.__name__:
        kept = files in (operation.before, operation.after) or renamed_in_part
    else:
        kept = files == operation.before or (renamed_in_part and result != AgentMemoryFileNotFoundError.__name__)
    return result if kept else f"lost: {result}"


def _judged_versions(result: str, operation: Operation, memory: AgentMemory) -> str:
    assert operation.earlier
    versions = memory.versions.list("d/a.md")
    found = tuple(memory.versions.read("d/a.md", each.id) for each in reversed(versions) if each.ended_by)
    is_done = files_of(memory) == operation.after
    return result if found == operation.earlier[is_done] else f"lost: {result} with versions {found}"


_NUMBER = re.compile(r"\d+")


@dataclass
class _Row:
    """The cells of some faults of one kind by some engines, by operation."""

    kind: str
    faults: list[str]
    engines: list[str]
    cells: dict[str, list[Cell]]

    def agrees(self, other: _Row) -> bool:
        """Whether every operation that both have ended in the same way, apart from numbers."""
        both = self.cells.keys() & other.cells.keys()
        return self.kind == other.kind and all(_form(self.cells[one]) == _form(other.cells[one]) for one in both)

    def add(self, other: _Row) -> None:
        self.faults += [each for each in other.faults if each not in self.faults]
        self.engines += [each for each in other.engines if each not in self.engines]
        for operation, cells in other.cells.items():
            self.cells.setdefault(operation, []).extend(cells)

    def __str__(self) -> str:
        fault = ": ".join(filter(None, (self.kind, ", ".join(self.faults))))
        return f"| {fault} | {', '.join(self.engines)} | {_summary(self.cells)} |"


def page(cells: Cells) -> str:
    """The documentation page of one run; faults and engines with the same results share a row."""
    found: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for (engine, operation, fault, is_permanent), cell in cells.items():
        found.setdefault((*_described(fault, is_permanent), engine), {})[operation] = [cell]
    single = (_Row(kind, [fault], [engine], group) for (kind, fault, engine), group in sorted(found.items()))
    by_engine = _merged(single, lambda one, other: one.engines == other.engines)
    rows = _merged(by_engine, lambda one, other: one.faults == other.faults)
    return _PAGE.format(date=date.today(), rows="\n".join(map(str, rows)))  # noqa: DTZ011 - the machine's own date


def _merged(rows: Iterable[_Row], may_merge: Callable[[_Row, _Row], bool]) -> list[_Row]:
    merged: list[_Row] = []
    for row in rows:
        same = next((each for each in merged if may_merge(each, row) and each.agrees(row)), None)
        if same:
            same.add(row)
        else:
            merged.append(row)
    return merged


def _described(fault: Fault | OtherFault, is_permanent: bool) -> tuple[str, str]:
    """The kind of a fault, and the fault; a kind with one fault needs no more words."""
    if fault == CLONES_OF_AN_IMAGE:
        return "four clones of one image race", "warm" if is_permanent else "cold"
    if fault in _DESCRIBED:
        return _DESCRIBED[fault], ""
    return "every request, deadline 3 s" if is_permanent else "the first request of each kind", fault


def _form(cells: list[Cell]) -> str:
    """The common result of some cells, without its numbers."""
    return _NUMBER.sub("{}", cells[0].result)


def _summary(group: dict[str, list[Cell]]) -> str:
    """Each result with its operations, and its numbers added up; the most requests and the longest time."""
    by_result: dict[str, list[str]] = {}
    for name, found in group.items():
        by_result.setdefault(_form(found), []).append(name)
    results = [
        f"{_sum(form, [cell for name in names for cell in group[name]])}: {_listed(names, len(group))}"
        for form, names in by_result.items()
    ]
    every = [cell for found in group.values() for cell in found]
    most, longest = max(cell.requests for cell in every), max(cell.seconds for cell in every)
    return "; ".join([*results, f"at most {most} requests, {longest:.1f} s"] if most else results)


def _sum(form: str, cells: list[Cell]) -> str:
    numbers = ([int(number) for number in _NUMBER.findall(cell.result)] for cell in cells)
    return form.format(*map(sum, zip(*numbers, strict=True)))


def _listed(names: list[str], of: int) -> str:
    if len(names) == of:
        return "every operation"
    return ", ".join(f"{name.replace(', ', ' (')})" if ", " in name else name for name in names)


_DESCRIBED: Final[dict[str, str]] = {
    CANCELLED: "cancelled at every await",
    CLOSED: "cancelled at every await, and closed at once",
    IN_TWO_STEPS: "a server that checks a precondition a tenth of a second before it makes the change",
}
_PAGE = """# Faults on S3

The results of {date}. `.ci/run --long s3-faults` writes this page again.

An operation runs through a proxy that injects the fault. Afterwards the test reads the files without the proxy, and
they agree with the result: an operation that ends with an error other than `OutcomeUnknownError` changed nothing; a
failed rename may leave both names. "reset": the connection is cut before the request is forwarded; "reply lost": after
that; "hangs": no answer, and the client waits one second. After a cancellation the files are in the old or the new
state, no task and no lock is left, and a required audit log has a record of each change. Clones of one image
are restored as [snapshots](../serverless-and-snapshots.md) do; the result counts what the store kept of what they were
told.

Faults and engines share a row if each operation has the same result; numbers are added up, and "at most" is the largest
number of the row. obstore has no part in operations that it does not support: creating a file in parts, deleting by an
edit, renaming, and versions. Restoring a version is two calls, each with its own deadline.

| fault | engine or place | results |
|---|---|---|
{rows}
"""
