"""An error about a file of the package's own is one about the caller's file: no internal name reaches the caller."""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    ReadError,
    VersionLimits,
    WriteError,
)
from agent_memory.backend import Key
from agent_memory.tools import MemoryTool
from agent_memory_memory import MemoryBackend

VERBS = [
    "read",
    "stat",
    "write",
    "delete",
    "list",
    "append",
    "erase",
    "erase_earlier",
    "delete_tree",
    "write_in_parts",
    "move_file",
    "move_tree",
]
ERRORS: tuple[Callable[[str], AgentMemoryError], ...] = (
    lambda path: ReadError("the storage failed", path=path),
    lambda path: WriteError("the storage failed", path=path),
    lambda path: FileTooLargeError("too large", path=path),
    lambda path: FileAlreadyExistsError("taken", "directory", path=path),
    lambda path: AgentMemoryFileNotFoundError("no such file", path=path),
    lambda path: ConflictError("changed", path=path),
)


class Faulty(MemoryBackend):
    """Fails at one internal access after the other; ``names`` are the internal names that it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.left = -1
        self.error = ERRORS[0]

    def called(self, key: Key) -> None:
        self.names |= {key.path, key.name, key.storage}
        self.left -= 1
        if self.left == 0:
            raise self.error(key.path)


def _failing(verb: str) -> Callable[..., Any]:
    def call(self: Faulty, *args: Any, **options: Any) -> Any:
        for each in args:
            if isinstance(each, Key) and each.is_internal:
                self.called(each)
        return getattr(super(Faulty, self), verb)(*args, **options)

    return call


for _verb in VERBS:
    setattr(Faulty, _verb, _failing(_verb))


def marked(memory: AgentMemory) -> object:
    tool = MemoryTool(memory, conversation=False)
    return tool.call({"command": "create", "path": "/memories/b.md", "file_text": "x"})


CALLS: dict[str, Callable[[AgentMemory, str], object]] = {
    "write": lambda m, _: m.write("d/a.md", "new"),
    "delete": lambda m, _: m.delete("d/a.md"),
    "rename": lambda m, _: m.rename("d/a.md", "d/b.md"),
    "keyed": lambda m, _: m.once("new key").append("d/a.md", "x"),
    "keyed again": lambda m, _: m.once("old key").append("d/a.md", "x"),
    "result": lambda m, _: m.once("edit key").result(),
    "versions": lambda m, _: m.versions.list("d/a.md"),
    "read_version": lambda m, id_: m.versions.read("d/a.md", id_),
    "restore": lambda m, id_: m.versions.restore("d/a.md", id_),
    "redact": lambda m, id_: m.versions.redact("d/a.md", id_, reason="a password"),
    "forget": lambda m, _: m.forget("d/a.md"),
    "prune": lambda m, _: m.versions.prune(),
    "mark": lambda m, _: MemoryTool(m.subtree("d"), conversation=False).call({"command": "view", "path": "/memories"}),
}


def seeded() -> tuple[Faulty, AgentMemory, str]:
    backend = Faulty()
    memory = AgentMemory.open(backend, versions=VersionLimits())
    memory.write("d/z.md", "0")
    memory.rename("d/z.md", "d/a.md")
    for text in "123":
        memory.write("d/a.md", text)
    memory.once("old key").append("d/a.md", "x")
    memory.once("edit key").edit("d/a.md", lambda text: text + "y")
    return backend, memory, memory.versions.list("d/a.md")[1].id


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", ERRORS)
def test_no_internal_name_reaches_the_caller(
    call: str, error: Callable[[str], AgentMemoryError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number in range(1, 60):
        backend, memory, version = seeded()
        backend.error, backend.left = error, number
        backend.names.clear()
        try:
            CALLS[call](memory, version)
        except AgentMemoryError as raised:
            _check(raised, backend.names)
        names = {name for name in backend.names if len(name) > 3}
        assert not [
            record for record in caplog.messages if "left out" not in record and any(n in record for n in names)
        ]
        if backend.left > 0:
            return  # the call makes fewer internal accesses
    pytest.fail("the call makes more internal accesses than this test tries")


def _check(raised: AgentMemoryError, names: set[str]) -> None:
    told = [str(raised), str(raised.path), *getattr(raised, "done", ()), *getattr(raised, "left", ())]
    assert not [name for name in names if len(name) > 3 and any(name in each for each in told)], told
    assert raised.path in ("d/a.md", ""), told
    assert not isinstance(raised, ConflictError | FileAlreadyExistsError), "the caller would read its own file again"
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)


def test_a_record_of_a_rename_that_cannot_be_written_is_a_write_error_about_the_source() -> None:
    backend, memory, _ = seeded()
    backend.error, told = ERRORS[3], ""
    for backend.left in itertools.count(1):
        with pytest.raises(WriteError) as raised:
            memory.rename("d/a.md", "d/b.md")
        told = str(raised.value)
        if "the rename" in told:
            break
    assert told == "'d/a.md': the rename cannot be recorded: taken"
    assert memory.read("d/a.md") == "3xy"
