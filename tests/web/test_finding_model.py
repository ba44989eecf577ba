"""The search in versions names only who changed the text; each operation of a history has an actor of its own."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemoryService, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from agent_memory.web._finding import TextChange, TextSearch
from tests.support import sizes

NAMES = ("a.md", "b.md")


@dataclass
class History:
    """Operations on the files of an agent, and what each did to the text "x" in which file."""

    memory: AgentMemory
    directory: Path
    chance: random.Random
    others: bool
    truth: list[tuple[str, str, bool]] = field(default_factory=list)

    def step(self, number: int) -> None:
        """Do one operation."""
        actor, name = f"actor{number}", self.chance.choice(NAMES)
        before, exists = {each: self._count(each) for each in NAMES}, self.memory.exists(name)
        memory = self.memory.acting_as(actor)
        kinds = ["write", "edit", "edit", "append", "delete", "restore"]
        kind = self.chance.choice([*kinds, "rename", "rewritten", "removed"] if self.others else kinds)
        if exists:
            self._change(kind, memory, name)
        else:
            self._create(kind, memory, name)
        maker = "" if exists and kind in ("rename", "rewritten", "removed") else actor
        for each in NAMES:
            if (after := self._count(each)) != before[each]:
                self.truth.append((each, maker, after > before[each]))

    def _text(self) -> str:
        return "".join(self.chance.choice(["x\n", "y\n"]) for _ in range(self.chance.randrange(4)))

    def _create(self, kind: str, memory: AgentMemory, name: str) -> None:
        deleted = memory.versions.list(name) if kind == "restore" else []
        if deleted:
            memory.versions.restore(name, self.chance.choice(deleted))
        else:
            memory.write(name, self._text())

    def _change(self, kind: str, memory: AgentMemory, name: str) -> None:
        text, other = self._text(), NAMES[1 - NAMES.index(name)]
        if kind == "write":
            memory.write(name, text)
        elif kind == "edit":
            memory.edit(name, lambda old: text + old[2:])
        elif kind == "append":
            memory.append(name, text or "y\n")
        elif kind == "delete":
            memory.delete(name)
        elif kind == "restore" and len(versions := memory.versions.list(name)) > 1:
            memory.versions.restore(name, self.chance.choice(versions[1:]))
        elif kind == "rename" and not memory.exists(other):
            memory.rename(name, other)
        elif kind == "rewritten":
            (self.directory / name).write_text(text)
        elif kind == "removed":
            (self.directory / name).unlink()

    def _count(self, name: str) -> int:
        file = self.directory / name
        return file.read_text().count("x") if file.exists() else 0


def found(root: Path, path: str, log: LogLocation) -> list[TextChange]:
    async def search() -> list[TextChange]:
        async with AsyncAgentMemoryService(str(root)) as service:
            search = TextSearch(service.agent("ann"), "ann", path, "X", log)
            await search.run("")
            assert (search.is_whole, search.failed) == (True, 0)
            return search.changes

    return asyncio.run(search())


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("seed", range(200 if sizes.is_long else 10))
def test_nobody_is_named_who_did_not_change_the_text(tmp_path: Path, seed: int, *, others: bool) -> None:
    log = LogLocation.below(open_backend(str(tmp_path), {}))
    with AgentMemoryService(str(tmp_path), plugins=[AuditPlugin(log)], versions=VersionLimits()) as service:
        history = History(service.agent("ann"), tmp_path / "agent_memory/ann", random.Random(seed), others)
        for number in range(12):
            history.step(number)
        replaced = {each.path for each in history.memory.versions.list("")}
    for path in (*NAMES, ""):
        told = [(each.path, each.by.actor, each.came) for each in found(tmp_path, path, log) if each.by]
        if others:  # a renamed file brings its history along
            assert {each[1:] for each in told} <= {each[1:] for each in history.truth}
        else:
            wanted = [each for each in history.truth if (each[0] == path if path else each[0] in replaced)]
            assert (told if path else sorted(told)) == (wanted[::-1] if path else sorted(wanted))
    log.store.close()
