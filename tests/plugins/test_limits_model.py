"""The limits plugin never underestimates sizes: random interleaved operations, compared with a model.

Each operation is a series of steps: the guard, the effect, the report. The model runs steps of several operations in
random order, reports some as cancelled before or after their effect, and delays an effect by up to a minute.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from agent_memory import Operation, OperationDenied, Outcome
from agent_memory.backend import Entry, Page
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key
from agent_memory.plugins import _agent_usage, _sizes, _usage
from agent_memory.plugins.limits import LimitsPlugin
from agent_memory_memory import MemoryBackend
from tests.support import sizes
from tests.support.loops import looped

LIMIT, ALL, MOST = 20, 50, 4
PATHS = ["a", "b", "d/x", "d/y", "e/x", "e/y"]
KINDS: list[OperationKind] = [
    "write", "append", "append", "append", "read", "delete", "rename", "copy", "delete_tree", "edit",
]  # fmt: skip
SEEDS = [*range(2000 if sizes.is_long else 60), 10282, 10435, 11473]


class World(MemoryBackend):
    """The files' sizes, and a listing during which other operations continue."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, int] = {}
        self.meanwhile: Callable[[], object] = lambda: None

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        del recursive, after, limit
        first = {path: size for path, size in self.files.items() if path < "c"}
        self.meanwhile()
        later = {path: size for path, size in self.files.items() if path >= "c"}
        return Page(tuple(Entry(prefix.join(path), size, 0.0) for path, size in sorted({**first, **later}.items())))


@dataclass
class Clock:
    now: float = 1000.0

    def time(self) -> float:
        self.now += 0.001
        return self.now

    monotonic = time


class Model:
    """A service with one plugin, and the operations in progress."""

    def __init__(self, seed: int, plugin: LimitsPlugin, world: World, clock: Clock) -> None:
        self.random = random.Random(seed)
        self.plugin, self.world, self.clock = plugin, world, clock
        self.under_way: list[Iterator[None]] = []
        self.effects: list[Callable[[], object]] = []
        self.number = 0

    def step(self) -> None:
        self.clock.now += self.random.choice([0.0, 0.01, 1.0, 100.0 if not self.effects else 0.0])
        if len(self.under_way) < 4 and self.random.random() < 0.5:
            self.under_way.append(self.operation())
        if self.under_way:
            self.advance(self.random.choice(self.under_way))

    def advance(self, operation: Iterator[None]) -> None:
        if next(operation, self) is self:
            self.under_way.remove(operation)

    def some_effects(self) -> None:
        """Run effects during a listing; no hooks, because hooks wait for the end of the listing."""
        self.random.shuffle(self.effects)
        while self.effects and self.random.random() < 0.5:
            self.effects.pop()()

    def asked(self) -> Operation:
        kind = self.random.choice(KINDS)
        path, target = self.random.sample(PATHS, 2)
        if kind in ("rename", "copy", "delete_tree") and self.random.random() < 0.5:
            path, target = self.random.sample(["d", "e"], 2)
        size = self.random.randrange(1, LIMIT + 1)
        self.number += 1
        new = target if kind in ("rename", "copy") else None
        return Operation(f"{self.number}", self.clock.time(), kind, "bob", path, new, size)

    def operation(self) -> Iterator[None]:
        facts = self.asked()
        size = facts.size or 0
        began = self.clock.time()
        yield
        try:
            self.plugin.agent_memory_before_operation(facts)
            if facts.kind in ("write", "append"):
                self.plugin.agent_memory_check_content(facts, b"x" * size)
            if facts.kind == "edit":  # one that lost a race with content, and then deletes the file
                if self.random.random() < 0.5:
                    self.plugin.agent_memory_check_content(facts, b"x" * size)
                self.plugin.agent_memory_before_operation(replace(facts, kind="delete"))
        except OperationDenied:
            self.report(facts, began, Outcome("denied", 0.0))
            return
        yield
        done: list[Outcome] = []

        read: list[dict[str, int]] = []

        def effect() -> None:
            done.append(self.effect(facts, size, [*read, self.world.files][0]))

        self.effects.append(effect)
        yield
        late = self.random.random()
        if late > 0.3:
            self.make(effect)
            yield
        if late > 0.2 and done and self.random.random() < 0.7:
            self.report(facts, began, done[0])
            return
        read.append(dict(self.world.files))  # a request that is sent later holds content that was read before
        self.report(facts, began, Outcome("unknown", 0.0, error="interrupted"))
        while effect in self.effects:  # the request continues after the cancellation
            yield
            if self.random.random() < 0.3:
                self.make(effect)

    def make(self, effect: Callable[[], object]) -> None:
        if effect in self.effects:
            self.effects.remove(effect)
            effect()

    def report(self, facts: Operation, began: float, outcome: Outcome) -> None:
        took = Outcome(outcome.status, self.clock.time() - began, outcome.size, error=outcome.error)
        self.plugin.agent_memory_after_operation(facts, took)

    def effect(self, facts: Operation, size: int, read: dict[str, int]) -> Outcome:
        files, path, target = self.world.files, facts.path, facts.target or ""
        below = [name for name in files if name == path or name.startswith(path + "/")]
        if facts.kind in ("write", "append"):
            files[path] = size + (files.get(path, 0) if facts.kind == "append" else 0)
            return Outcome("ok", 0.0, files[path])
        if not below:
            return Outcome("error", 0.0, error="file_not_found")
        if facts.kind == "read":
            return Outcome("ok", 0.0, files[path])
        if facts.kind in ("delete", "delete_tree", "edit"):
            for name in below:
                del files[name]
            return Outcome("ok", 0.0)
        if any(name == target or name.startswith(target + "/") for name in files):
            return Outcome("error", 0.0, error="file_exists")
        for name in below:
            if name in read:
                files[target + name[len(path) :]] = read[name]
                if facts.kind == "rename":
                    del files[name]
        return Outcome("ok", 0.0, files.get(target) if below == [path] else None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (_sizes, _usage, _agent_usage):
        monkeypatch.setattr(module, "time", clock)
    return clock


@looped("seed", SEEDS)
def test_the_estimated_size_of_a_file_is_never_too_small(seed: int, clock: Clock) -> None:
    plugin = LimitsPlugin(LIMIT)
    assert plugin._sizes
    model = Model(seed, plugin, World(), clock)
    for _ in range(150):
        model.step()
        for path, size in model.world.files.items():
            assert plugin._sizes._largest(("bob", path)) >= size, path


@looped("seed", SEEDS)
def test_an_agent_never_exceeds_its_limits(seed: int, clock: Clock) -> None:
    world = World()
    plugin = LimitsPlugin(root=world, max_files=MOST, max_bytes=ALL)
    model = Model(seed, plugin, world, clock)
    model.world.meanwhile = model.some_effects
    for _ in range(150):
        model.step()
        assert len(model.world.files) <= MOST
        assert sum(model.world.files.values()) <= ALL
