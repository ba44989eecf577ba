"""Every operation of an agent's memory, in a form that can be repeated 100,000 times while its tree is swapped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from agent_memory import ANY, SHA256, AgentMemory, AgentMemoryError, AgentMemoryService
from agent_memory.backend import Entry
from agent_memory.reading.reader import Reader
from tests.support.outside import SECRET

AGENT = "swapped"
FILE, PLAIN, ONLY_OUTSIDE = "m/d/notes.md", "plain.md", "m/d/only-outside.md"
INSIDE = "inside"
_DIGEST = hashlib.sha256(INSIDE.encode()).hexdigest()


@dataclass
class Turn:
    """One try, and every result that it received."""

    service: AgentMemoryService
    memory: AgentMemory
    number: int
    results: list[object] = field(default_factory=list)

    @property
    def file(self) -> str:
        """The file that is inside and outside; in every fourth turn a file that is only outside."""
        return ONLY_OUTSIDE if self.number % 4 == 3 else FILE

    @property
    def directory(self) -> str:
        return ("m/d", "m", "")[self.number % 3]

    @property
    def new(self) -> str:
        """An unused name at the top of the tree."""
        return f"new-{self.number}"

    def keep(self, *names: str) -> None:
        """Create missing files of the inside tree, if the swaps allow it."""
        for name in names:
            with suppress(AgentMemoryError):
                self.memory.create(name, INSIDE)

    def take_back(self, *names: str) -> None:
        """Read the files that a try created, and delete them, if the swaps allow it."""
        for name in names:
            with suppress(AgentMemoryError):
                self.results.append(self.memory.read(name))
            with suppress(AgentMemoryError):
                self.memory.delete(name)


Step = Callable[[Turn], object]


def _nothing(_: Turn) -> None:
    """Do nothing: most operations need no preparation and leave no file."""


@dataclass(frozen=True)
class Operation:
    """The tested operation, with steps before and after it that are watched but not counted."""

    name: str
    act: Step
    prepare: Step = _nothing
    finish: Step = _nothing


def betrays(result: object) -> bool:
    """Whether the result of an operation comes from the outside."""
    if isinstance(result, Entry):
        return result.size == len(SECRET) or ONLY_OUTSIDE.endswith(result.key.name)
    if isinstance(result, tuple):
        return any(map(betrays, result))
    return isinstance(result, str) and SECRET[:7] in result


def _exists(t: Turn) -> object:
    found = t.memory.exists(t.file)
    return SECRET if found and t.file == ONLY_OUTSIDE else found


def _scan(t: Turn) -> str:
    async def work(reader: Reader) -> bytes:
        return await reader.read_tail(4) + await reader.read(0, 100)

    return t.memory.scan(t.file, work).decode()


def _list(t: Turn) -> object:
    found = t.memory.list(t.directory)
    t.results.append(found)
    return tuple(entry for entry in found if entry.path != PLAIN)


def _agents(t: Turn) -> object:
    return t.service.agent_ids() if t.number % 2 else t.service.list_memory_files(AGENT)


def _edit(t: Turn) -> object:
    def change(text: str) -> str:
        t.results.append(text)
        return text.swapcase()

    return t.memory.edit(FILE, change)


def _write(t: Turn) -> object:
    return t.memory.write(FILE, INSIDE, when=SHA256(_DIGEST) if t.number % 2 else ANY)


def _delete(t: Turn) -> None:
    t.memory.delete(t.file, when=SHA256(_DIGEST) if t.number % 2 else ANY)


def _shorten(t: Turn) -> None:
    if t.number % 1000 == 999:
        with suppress(AgentMemoryError):
            t.memory.write(FILE, INSIDE)


def _moved(name: str) -> str:
    return f"{name}/notes.md"


OPERATIONS = [
    Operation("read", lambda t: t.memory.read(t.file)),
    Operation("scan", _scan),
    Operation("read_many", lambda t: tuple(t.memory.read_many([t.file, PLAIN], missing_ok=True).values())),
    Operation("tail", lambda t: t.memory.tail(t.file, 3)),
    Operation("stat", lambda t: t.memory.stat(t.file)),
    Operation("exists", _exists),
    Operation("list", _list),
    Operation("list one level", lambda t: t.memory.list("m/d", recursive=False)),
    Operation("list the agents", _agents),
    Operation("write", _write),
    Operation(
        "write below a new directory",
        lambda t: t.memory.write(f"m/d/{t.new}/deep/x.md", INSIDE),
        finish=lambda t: t.take_back(f"m/d/{t.new}/deep/x.md"),
    ),
    Operation(
        "create",
        lambda t: t.memory.create(f"m/d/{t.new}.md", INSIDE),
        finish=lambda t: t.take_back(f"m/d/{t.new}.md"),
    ),
    Operation("append", lambda t: t.memory.append(FILE, "+", separator="\n"), prepare=_shorten),
    Operation(
        "append to a new file",
        lambda t: t.memory.append(f"m/d/{t.new}.md", INSIDE),
        finish=lambda t: t.take_back(f"m/d/{t.new}.md"),
    ),
    Operation("edit", _edit),
    Operation(
        "edit a new file",
        lambda t: t.memory.edit(f"m/d/{t.new}.md", lambda _: INSIDE, missing=""),
        finish=lambda t: t.take_back(f"m/d/{t.new}.md"),
    ),
    Operation("edit that deletes", lambda t: t.memory.edit(t.file, lambda _: None), prepare=lambda t: t.keep(FILE)),
    Operation("delete", _delete, prepare=lambda t: t.keep(FILE)),
    Operation("delete_tree", lambda t: t.memory.delete_tree(t.directory), prepare=lambda t: t.keep(FILE)),
    Operation(
        "rename a file out",
        lambda t: t.memory.rename(t.file, t.new),
        prepare=lambda t: t.keep(FILE),
        finish=lambda t: t.take_back(t.new),
    ),
    Operation(
        "rename a file in",
        lambda t: t.memory.rename(PLAIN, f"m/d/{t.new}.md"),
        prepare=lambda t: t.keep(PLAIN),
        finish=lambda t: t.take_back(f"m/d/{t.new}.md"),
    ),
    Operation(
        "rename a directory out",
        lambda t: t.memory.rename("m/d", t.new),
        prepare=lambda t: t.keep(FILE),
        finish=lambda t: t.take_back(_moved(t.new), f"{t.new}/only-outside.md"),
    ),
    Operation(
        "rename a directory in",
        lambda t: t.memory.rename("whole", f"m/d/{t.new}"),
        prepare=lambda t: t.keep("whole/notes.md"),
        finish=lambda t: t.take_back(f"m/d/{_moved(t.new)}"),
    ),
    Operation("copy a file out", lambda t: t.memory.copy(t.file, t.new), finish=lambda t: t.take_back(t.new)),
    Operation(
        "copy a file in",
        lambda t: t.memory.copy(PLAIN, f"m/d/{t.new}.md"),
        finish=lambda t: t.take_back(f"m/d/{t.new}.md"),
    ),
    Operation(
        "copy a directory out",
        lambda t: t.memory.copy("m/d", t.new),
        finish=lambda t: t.take_back(_moved(t.new), f"{t.new}/only-outside.md"),
    ),
    Operation(
        "copy a directory in",
        lambda t: t.memory.copy("whole", f"m/d/{t.new}"),
        prepare=lambda t: t.keep("whole/notes.md"),
        finish=lambda t: t.take_back(f"m/d/{_moved(t.new)}"),
    ),
]
