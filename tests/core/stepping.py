"""A run with a clock of its own, and a backend on which other writers are faster."""

from __future__ import annotations

from agent_memory import ConflictError
from agent_memory.backend import ANY, ETag, NewOrigin, WriteWhen
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory.runtime.run import BlockingRun
from agent_memory_memory import MemoryBackend

KEY = Key.tree().join("d/a.md")


class SteppedRun(BlockingRun):
    """Time passes by sleeping alone; jitter is at its most."""

    def __init__(self) -> None:
        self.time = 0.0
        self.delays: list[float] = []

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 1.0

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.time += seconds


class Contended(MemoryBackend):
    """Another writer changes the file before each of the first conditional writes; it has no append of its own."""

    append = None  # type: ignore[assignment]

    def __init__(self, races: float) -> None:
        super().__init__()
        self.races = races
        self.writes = 0

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        self.writes += 1
        if when is not ANY and self.races > 0:
            self.races -= 1
            super().write(key, b"theirs %d\n" % self.writes)
            raise ConflictError("another writer was faster", path=key.path)
        return super().write(key, data, when, origin)


class SteppedStore(BlockingStore):
    """A backend whose flows run by a `SteppedRun`."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(backend)
        self.clock = SteppedRun()
        self._run = self.clock
