"""The operations that the tests kill and fail, each with the files before, during and after it.

They rely only on the promises of `AgentMemory`, not on how a backend works.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from agent_memory import ABSENT, ANY, SHA256, AgentMemory
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.conversation.compacting import _Removal
from agent_memory.core.expiring import Expiry, expire
from agent_memory.runtime.runners import run_sync

Tree = Mapping[str, str]

OLD = "an old line\n" * 600
NEW = "a newer line\n" * 700
RECORD = "a record " * 400
OTHER = "another file, never touched\n"
LARGEST_FILE = len(OLD) + 1000
"""A limit in bytes that `NEW` exceeds, and `OLD` followed by `RECORD`."""


@dataclass(frozen=True, repr=False)
class Operation:
    """One operation of a memory.

    Attributes:
        before: the files at the start; None if the root itself does not exist.
        run: the operation; raises `AssertionError` if it returns a wrong result.
        after: the required files after it returned.
        between: further allowed states if it is stopped before its end.
        again: the files after another run that starts from ``after``.
        appends: the file whose end may be torn by a kill during a write; the next append ends that line.
        once: whether another run, also after a kill, changes nothing more: it may raise `OutcomeUnknownError`.
        in_steps: whether an error may leave a state of ``between``.
        prepare: creates the files at the start, in a store that keeps versions.
        kept: the allowed contents of the versions of each file, oldest first; those of a finished operation are last.
    """

    name: str
    before: Tree | None
    run: Callable[[AgentMemory], object]
    after: Tree
    between: tuple[Tree, ...] = ()
    again: Tree | None = None
    appends: str | None = None
    once: bool = False
    in_steps: bool = False
    prepare: Callable[[AgentMemory], object] | None = None
    kept: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def start(self) -> Tree:
        return self.before or {}

    @property
    def allowed(self) -> tuple[Tree, ...]:
        return (self.start, self.after, *self.between)

    @property
    def changes(self) -> bool:
        return self.start != self.after


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError("returned what is not true")


def _names(memory: AgentMemory) -> list[str]:
    return [entry.path for entry in memory.list()]


def _products(states: Iterable[Iterable[Tree]], beside: Tree) -> tuple[Tree, ...]:
    """Every combination of one state per file, because a directory moved file by file may stop anywhere."""
    return tuple(
        {**beside, **{k: v for part in parts for k, v in part.items()}} for parts in itertools.product(*states)
    )


def _in_parts(path: str, *, create: bool) -> Callable[[AgentMemory], object]:
    def run(memory: AgentMemory) -> None:
        memory._tree.backend.part_bytes = len(NEW) // 2
        memory.write_blocks(path, [NEW.encode()], len(NEW), when=ABSENT if create else ANY)

    return run


def _brief(memory: AgentMemory) -> AgentMemory:
    """A view that waits for a killed call no longer than 0.1 seconds."""
    return memory.with_timeout(0.1)


def _expiry() -> Expiry:
    return Expiry.of("**", timedelta(microseconds=1), ["other.md"], 100)


_TIME = datetime(2026, 3, 1, tzinfo=UTC)
_BESIDE = {"other.md": OTHER}
_TREE = {"d/a.md": OLD, "d/e/b.md": NEW}
_MOVED = {name.replace("d/", "n/", 1): text for name, text in _TREE.items()}
_PAIRS = tuple(zip(_TREE, _MOVED, _TREE.values(), strict=True))
_REMOVED = f"{Message('user', OLD, _TIME).to_line()}\n" * 2
_KEPT = f"{Message('user', NEW, _TIME).to_line()}\n"
_NOTE = _Removal(len(_REMOVED), len(_REMOVED + _KEPT), sha256((_REMOVED + _KEPT).encode()).hexdigest()).note.decode()

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("create", _BESIDE, lambda m: m.create("a.md", NEW), {**_BESIDE, "a.md": NEW}),
        Operation(
            "write, a new file in new directories", None, lambda m: m.write("new/dir/a.md", NEW), {"new/dir/a.md": NEW}
        ),
        Operation(
            "write, replacing", {**_BESIDE, "a.md": OLD}, lambda m: m.write("a.md", NEW), {**_BESIDE, "a.md": NEW}
        ),
        Operation(
            "write on a SHA256",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: m.write("d/a.md", NEW, when=SHA256(sha256(OLD.encode()).hexdigest())),
            {**_BESIDE, "d/a.md": NEW},
        ),
        Operation("create, in parts", _BESIDE, _in_parts("n/a.md", create=True), {**_BESIDE, "n/a.md": NEW}),
        Operation(
            "write, in parts", {**_BESIDE, "d/a.md": OLD}, _in_parts("d/a.md", create=False), {**_BESIDE, "d/a.md": NEW}
        ),
        Operation(
            "append, a new file",
            _BESIDE,
            lambda m: m.append("log.md", NEW, separator="\n"),
            {**_BESIDE, "log.md": NEW},
            again={**_BESIDE, "log.md": NEW + NEW},
        ),
        Operation(
            "append",
            {**_BESIDE, "log.md": OLD},
            lambda m: m.append("log.md", RECORD, separator="\n"),
            {**_BESIDE, "log.md": OLD + RECORD},
            again={**_BESIDE, "log.md": f"{OLD}{RECORD}\n{RECORD}"},
            appends="log.md",
        ),
        Operation(
            "append after a torn line",
            {"d/log.md": f"{OLD}a torn li"},
            lambda m: m.append("d/log.md", RECORD, separator="\n"),
            {"d/log.md": f"{OLD}a torn li\n{RECORD}"},
            again={"d/log.md": f"{OLD}a torn li\n{RECORD}\n{RECORD}"},
            appends="d/log.md",
        ),
        Operation(
            "edit",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.edit("a.md", lambda text: text.replace("old", "edited")),
            {**_BESIDE, "a.md": OLD.replace("old", "edited")},
        ),
        Operation(
            "edit, a new file",
            _BESIDE,
            lambda m: m.edit("n/a.md", lambda text: text + NEW, missing=""),
            {**_BESIDE, "n/a.md": NEW},
            again={**_BESIDE, "n/a.md": NEW + NEW},
        ),
        Operation(
            "delete by edit",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: m.edit("d/a.md", lambda _: None, missing=""),
            _BESIDE,
        ),
        Operation(
            "write, idempotency key",
            {**_BESIDE, "a.md": OLD},
            lambda m: _brief(m).once("k").write("a.md", NEW),
            {**_BESIDE, "a.md": NEW},
            once=True,
        ),
        Operation(
            "create, idempotency key",
            _BESIDE,
            lambda m: _brief(m).once("k").create("a.md", NEW),
            {**_BESIDE, "a.md": NEW},
            once=True,
        ),
        Operation(
            "append, idempotency key",
            {**_BESIDE, "log.md": OLD},
            lambda m: _brief(m).once("k").append("log.md", RECORD, separator="\n"),
            {**_BESIDE, "log.md": OLD + RECORD},
            appends="log.md",
            once=True,
        ),
        Operation(
            "edit, idempotency key",
            {**_BESIDE, "a.md": OLD},
            lambda m: _brief(m).once("k").edit("a.md", lambda text: text + "+"),
            {**_BESIDE, "a.md": OLD + "+"},
            once=True,
        ),
        Operation(
            "delete, idempotency key",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: _brief(m).once("k").delete("d/a.md"),
            _BESIDE,
            once=True,
        ),
        Operation(
            "compact a history",
            {"history.jsonl": f"{_REMOVED}{_KEPT}"},
            lambda m: ConversationMemory(m).compact(keep_last=1, archive_to="n/old.jsonl"),
            {"history.jsonl": _KEPT, "n/old.jsonl": _REMOVED},
            between=tuple(
                {"history.jsonl": history, "n/old.jsonl": f"{_REMOVED}{_NOTE}"}
                for history in (f"{_REMOVED}{_KEPT}", _KEPT)
            ),
            in_steps=True,
        ),
        Operation("delete", {**_BESIDE, "a.md": OLD}, lambda m: m.delete("a.md"), _BESIDE),
        Operation(
            "delete, the last file of directories",
            {**_BESIDE, "d/e/a.md": OLD},
            lambda m: m.delete("d/e/a.md"),
            _BESIDE,
        ),
        Operation(
            "rename, a file",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: m.rename("d/a.md", "n/b.md"),
            {**_BESIDE, "n/b.md": OLD},
        ),
        Operation(
            "rename, a directory",
            {**_BESIDE, **_TREE},
            lambda m: m.rename("d", "n"),
            {**_BESIDE, **_MOVED},
        ),
        Operation(
            "copy, a file",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: m.copy("d/a.md", "n/b.md"),
            {**_BESIDE, "d/a.md": OLD, "n/b.md": OLD},
        ),
        Operation(
            "copy, a directory",
            {**_BESIDE, **_TREE},
            lambda m: m.copy("d", "n"),
            {**_BESIDE, **_TREE, **_MOVED},
            between=_products((({o: t}, {o: t, n: t}) for o, n, t in _PAIRS), _BESIDE),
        ),
        Operation(
            "delete_tree",
            {**_BESIDE, **_TREE},
            lambda m: m.delete_tree("d"),
            _BESIDE,
            between=_products((({o: t}, {}) for o, _, t in _PAIRS), _BESIDE),
        ),
        Operation(
            "delete by expire",
            {**_BESIDE, **_TREE},
            lambda m: run_sync(m._tree.backend, partial(expire, tree=m._tree, expiry=_expiry(), dry_run=False)),
            _BESIDE,
            between=_products((({o: t}, {}) for o, _, t in _PAIRS), _BESIDE),
            in_steps=True,
        ),
        Operation("list", _TREE, lambda m: _expect(_names(m), sorted(_TREE)), _TREE),
        Operation("read", {"d/a.md": OLD}, lambda m: _expect(m.read("d/a.md"), OLD), {"d/a.md": OLD}),
    )
}
SHORT = ("write, replacing", "append", "delete, the last file of directories", "rename, a directory")
"""The operations that run without ``--long``: one for each way through the backend."""
CHANGES = {name: operation for name, operation in OPERATIONS.items() if operation.changes}
WRITES = {name: operation for name, operation in CHANGES.items() if not name.startswith(("delete", "rename"))}
"""The operations that need space on the disk."""


def _naively(change: Callable[[Path], object]) -> Callable[[AgentMemory], object]:
    """A change of a path without the memory; the worker's current directory is beside the root."""

    def run(_: AgentMemory) -> None:
        change(Path("root", "a.md"))

    return run


def _temporary_and_rename(path: Path) -> None:
    temporary = path.with_suffix(".agent-memory-tmp")
    temporary.write_text(NEW)
    os.rename(temporary, path)  # noqa: PTH104 - the usual code, without fsync


CONTROLS = {
    operation.name: operation
    for operation in (
        Operation("open and write", {"a.md": OLD}, _naively(lambda path: path.write_text(NEW)), {"a.md": NEW}),
        Operation("rename without fsync", {"a.md": OLD}, _naively(_temporary_and_rename), {"a.md": NEW}),
        Operation("unlink without fsync", {"a.md": OLD}, _naively(lambda path: path.unlink()), {}),
    )
}
"""Operations that break the promises; the tests must detect them, or the method would prove nothing."""
