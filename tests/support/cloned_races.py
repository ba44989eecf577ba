"""Races of clones of one image: what each clone does, and what the store must contain afterwards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    ConflictError,
    FileAlreadyExistsError,
    VersionLimits,
)
from agent_memory.audit import LogLocation, log_at
from agent_memory.plugins.audit import AuditPlugin
from tests.support.servers import Root

CLONES = 4
LINES = 25
FILES = 10
AGENT = "team"


@dataclass(frozen=True)
class Race:
    """One kind of change that clones make at once.

    Attributes:
        name: of the change.
        change: what each clone does, with its number; returns what it was told.
        kept: what the store kept of what all clones were told, as a text; ``expected`` if nothing is wrong.
    """

    name: str
    change: Callable[[AgentMemory, int], object]
    kept: Callable[[AgentMemory, Sequence[Any]], str]
    expected: str


def _lines(number: int) -> list[str]:
    return [f"{number}:{line}" for line in range(LINES)]


def _append(memory: AgentMemory, number: int) -> object:
    for line in _lines(number):
        memory.append("log.md", f"{line}\n")
    return None


def _edit(memory: AgentMemory, number: int) -> object:
    for line in _lines(number):
        memory.edit("log.md", lambda text, line=line: f"{text}{line}\n")  # type: ignore[misc]
    return None


def _all_lines(memory: AgentMemory, _: Sequence[Any]) -> str:
    found = Counter(memory.read("log.md").split())
    expected = Counter(line for number in range(CLONES) for line in _lines(number))
    missing, more = (expected - found).total(), (found - expected).total()
    return f"{expected.total() - missing} of {expected.total()}" + (f", {more} too many" if more else "")


def _swap(memory: AgentMemory, number: int) -> object:
    """Replace the file by a longer one, on the condition of the state that this call read."""
    done = []
    for line in _lines(number):
        while True:
            old = memory.read("log.md")
            sha256 = hashlib.sha256(old.encode()).hexdigest()
            with suppress(ConflictError):
                memory.write("log.md", f"{old}{line}\n", when=SHA256(sha256))
                done.append(line)
                break
    return done


def _create(memory: AgentMemory, number: int) -> object:
    won = []
    for file in range(FILES):
        with suppress(FileAlreadyExistsError):
            memory.create(f"created/{file}.md", f"{number}")
            won.append(file)
    return won


def _created(memory: AgentMemory, results: Sequence[Any]) -> str:
    winners = Counter(file for won in results for file in won)
    right = [
        file for file in range(FILES) if winners[file] == 1 and file in results[int(memory.read(f"created/{file}.md"))]
    ]
    return f"{len(right)} of {FILES} with one winner"


def _once(memory: AgentMemory, number: int) -> object:
    for call in range(FILES):
        memory.once(f"call {call}").append("log.md", f"{call}\n")
    return number


def _once_each(memory: AgentMemory, _: Sequence[Any]) -> str:
    counts = Counter(memory.read("log.md").split())
    return f"{sum(counts[str(call)] == 1 for call in range(FILES))} of {FILES} once"


def _delete(memory: AgentMemory, _: int) -> object:
    won = []
    for file in range(FILES):
        with suppress(AgentMemoryFileNotFoundError):
            memory.delete(f"old/{file}.md")
            won.append(file)
    return won


def _deleted(memory: AgentMemory, results: Sequence[Any]) -> str:
    left = sum(memory.exists(f"old/{file}.md") for file in range(FILES))
    deleted = {file for won in results for file in won}
    return f"{len(deleted)} of {FILES} deleted, {left} left"


def _rename(memory: AgentMemory, number: int) -> object:
    won = []
    for file in range(FILES):
        with suppress(AgentMemoryFileNotFoundError, FileAlreadyExistsError, ConflictError):
            memory.rename(f"old/{file}.md", f"new/{number}-{file}.md")
            won.append(file)
    return won


def _renamed(memory: AgentMemory, _: Sequence[Any]) -> str:
    found = Counter(memory.read(entry.path) for entry in [*memory.list("new"), *memory.list("old")])
    return f"{sum(found[f'{file}'] >= 1 for file in range(FILES))} of {FILES} kept"


def _edit_versions(memory: AgentMemory, number: int) -> object:
    for file in range(FILES):
        memory.edit("log.md", lambda text, file=file: f"{text}{number}:{file}\n")  # type: ignore[misc]
    return None


def _versions(memory: AgentMemory, _: Sequence[Any]) -> str:
    contents = {memory.versions.read("log.md", each.id) for each in memory.versions.list("log.md")}
    lines = {content.count("\n") for content in contents}
    return f"{len(lines & set(range(CLONES * FILES + 1)))} of {CLONES * FILES + 1} states"


RACES = (
    Race("append", _append, _all_lines, "100 of 100"),
    Race("edit", _edit, _all_lines, "100 of 100"),
    Race("write, SHA256", _swap, _all_lines, "100 of 100"),
    Race("create", _create, _created, f"{FILES} of {FILES} with one winner"),
    Race("append, idempotency key", _once, _once_each, f"{FILES} of {FILES} once"),
    Race("delete", _delete, _deleted, f"{FILES} of {FILES} deleted, 0 left"),
    Race("edit, versions", _edit_versions, _versions, f"{CLONES * FILES + 1} of {CLONES * FILES + 1} states"),
    Race("rename", _rename, _renamed, f"{FILES} of {FILES} kept"),
)
BY_NAME = {race.name: race for race in RACES}


@dataclass(frozen=True)
class Held:
    """What the image holds: the race, and an open service with a memory."""

    race: Race
    service: AgentMemoryService
    memory: AgentMemory


def prepared(root: Root, name: str, warm: bool, audited: bool) -> Held:
    """Open a service; if the image is ``warm``, it also has connections and the states of files."""
    plugins = [AuditPlugin(audit_of(root), required=True)] if audited else []
    versions = VersionLimits() if "versions" in name else None
    service = AgentMemoryService(root.url, storage_options=root.options, plugins=plugins, versions=versions)
    memory = service.agent(AGENT)
    if warm:
        fill(memory)
        memory.append("log.md", "")
        memory.edit("log.md", lambda text: text)
        memory.once(f"warm {name}").append("warm.md", "x")
        memory.read("log.md")
    return Held(BY_NAME[name], service, memory)


def fill(memory: AgentMemory) -> None:
    """The files that the races begin with."""
    memory.write("log.md", "")
    for file in range(FILES):
        memory.write(f"old/{file}.md", f"{file}")


def audit_of(root: Root) -> LogLocation:
    """The log in the store."""
    return log_at(root.url if "://" in root.url else f"file://{root.url}", root.options)


def changed(number: int, held: Held) -> object:
    """What a clone does."""
    return held.race.change(held.memory, number)


def told(root: Root, race: Race, results: Sequence[Any]) -> str:
    """What the store kept, read by another process."""
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        return race.kept(service.agent(AGENT), results)
