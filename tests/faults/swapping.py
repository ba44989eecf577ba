"""The race of the symlink swaps: its directories, and the process that swaps.

Inside is an agent's tree; outside is a tree with the same names, other content and some further names. A place is a
name of the inside tree that another process exchanges with a link to the same name outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agent_memory import AgentMemory, AgentMemoryError, AgentMemoryService, PathTraversalError
from tests.faults.swapped_operations import AGENT, FILE, INSIDE, ONLY_OUTSIDE, PLAIN, Operation, Turn, betrays
from tests.support.outside import SECRET, changes, state

PLACES = {"file": FILE, "directory": "m/d", "middle": "m", "agent": ""}


@dataclass
class Figures:
    """The figures of a race. It is valid only if some tries are ``done``, and some ``refused`` because of a link.

    The other tries failed or found nothing because of an earlier try.
    """

    tries: int = 0
    done: int = 0
    refused: int = 0
    escapes: list[str] = field(default_factory=list)
    swaps: int = 0
    seconds: float = 0.0

    def __iadd__(self, other: Figures) -> Self:
        self.tries += other.tries
        self.done += other.done
        self.refused += other.refused
        self.escapes += other.escapes
        self.swaps += other.swaps
        self.seconds += other.seconds
        return self

    def __str__(self) -> str:
        return (
            f"{self.tries:>9,} tries: {self.done:>9,} done, {self.refused:>9,} refused, {len(self.escapes)} escapes; "
            f"{self.swaps / max(self.seconds, 1e-9):>9,.0f} swaps a second"
        )


class Field:
    """A root with one agent, and the outside tree; created in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self.outside = directory / "outside"
        self.base = directory / "root" / "agent_memory" / AGENT
        # This race does not test durability, and without fsync there are many more tries.
        self.service = AgentMemoryService(f"{(directory / 'root').as_uri()}?durability=process")
        for name in (FILE, PLAIN):
            self.memory.write(name, INSIDE)
        for name in (FILE, PLAIN, ONLY_OUTSIDE):
            path = self.outside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SECRET)
        self._before = state(self.outside)

    @property
    def memory(self) -> AgentMemory:
        return self.service.agent(AGENT)

    def escapes(self) -> list[str]:
        """Changes outside, and outside content that is now inside; must not be called during the swaps."""
        touched = [f"outside, {name}: changed" for name in changes(self._before, state(self.outside))]
        return touched + [f"inside, {name}: holds the secret" for name in _holding_the_secret(self.base.parent)]

    @contextmanager
    def swapping(self, flipper: Path, place: str, figures: Figures, decoy: str = "symlink") -> Iterator[None]:
        """Swap a place with a link to its outside name during the block; a file also with another ``decoy``."""
        name = self.base / PLACES[place] if PLACES[place] else self.base
        target = self.outside / PLACES[place]
        # No key can have a colon, so the spare name is a foreign file to the backend.
        command = [str(flipper), str(name), f"{name}:spare", decoy, str(target)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                swaps, seconds = process.stdout.read().split()
        figures.swaps += int(swaps)
        figures.seconds += float(seconds)


def race(directory: Path, flipper: Path, place: str, operation: Operation, seconds: float) -> Figures:
    """Repeat an operation for some seconds while a place is swapped."""
    figures, ground = Figures(), Field(directory)
    with ground.service, ground.swapping(flipper, place, figures):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _attempt(Turn(ground.service, ground.memory, figures.tries), operation, figures)
    figures.escapes += ground.escapes()
    return figures


def _attempt(turn: Turn, operation: Operation, figures: Figures) -> None:
    """Make one try; an exception that is no `AgentMemoryError` is raised."""
    operation.prepare(turn)
    figures.tries += 1
    try:
        result = operation.act(turn)
    except PathTraversalError:
        figures.refused += 1
    except AgentMemoryError as error:
        turn.results.append(str(error))
    else:
        figures.done += result not in ((), False)
        turn.results.append(result)
    operation.finish(turn)
    figures.escapes += [f"{operation.name}: {sight!r:.200}" for sight in turn.results if betrays(sight)]


def _holding_the_secret(directory: Path) -> list[str]:
    paths = [Path(above, name) for above, _, files in os.walk(directory) for name in files]
    # The link itself belongs to the flipper.
    return [str(path) for path in paths if not path.is_symlink() and SECRET[:7] in path.read_text()]
