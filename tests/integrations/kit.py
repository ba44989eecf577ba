"""What the tests of all adapters share: hostile ids, and additions by several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.testing import RecordingPlugin
from tests.support.processes import in_processes
from tests.support.servers import Root

HOSTILE: Final = (
    "../x", "..", ".", "/etc/passwd", "a/b", "a//b", "%2e%2e", "%2e%2e%2fx", "", " ", "x" * 500, "é" * 500,
    "👩‍👩‍👧‍👦", "CON", "nul.txt", "a\0b", "a\nb", "a\\b", "C:\\x", "~", "~root", "a:b", "*", "?", ".agent-memory",
    "x.agent-memory-tmp", "=", "==", "a=2Fb", "A", "a", "é", "e\u0301", "ﬁ", "fi", "a.json", "a.jsonl", "meta.json",
    ".texts", "\u202ex", "\u200b",
)  # fmt: skip
"""Ids that a careless encoding would lose, mix up, or let escape."""
IDS: Final = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(HOSTILE)
"""Any ids, for property tests."""
Function = TypeVar("Function", bound=Callable[..., object])
PROCESSES: Final = 4
ADDITIONS: Final = 25


def race(place: Root, add: Callable[[AgentMemory, int, int], object], additions: int = ADDITIONS) -> None:
    """Call ``add(memory, process, number)`` in four processes at once, 25 times in each; raises the first failure.

    Args:
        place: the root.
        add: a function of a module, for the other processes import it.
        additions: the number of calls in each process.
    """
    in_processes(PROCESSES, _additions, place.url, place.options, add, additions)


def _additions(
    process: int, barrier: Any, url: str, options: dict[str, object], add: Callable[..., object], additions: int
) -> None:
    with AgentMemory.open(url, storage_options=options) as memory:
        barrier.wait(120)
        for number in range(additions):
            add(memory, process, number)


def at_once(place: Root, call: Callable[[AgentMemory], object], processes: int = 2) -> list[Any]:
    """The results of one call in several processes at once."""
    return in_processes(processes, _call, place.url, place.options, call)


def _call(_: int, barrier: Any, url: str, options: dict[str, object], call: Callable[..., object]) -> object:
    with AgentMemory.open(url, storage_options=options) as memory:
        barrier.wait(120)
        return call(memory)


def example_output(example: Path, root: str, environment: dict[str, str], *, silent: bool = False) -> str:
    """Return the output of an example, which must end with code 0; if ``silent``, without output on standard error."""
    command = [sys.executable, str(example), root]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert not (silent and done.stderr), done.stderr
    return done.stdout


def seen_by(recorder: RecordingPlugin) -> list[tuple[str, str]]:
    """The kind and the path of each operation that a plugin saw, in order."""
    return [(operation.kind, operation.path) for operation, _ in recorder.after]


def age(directory: Path, pattern: str) -> None:
    """Set the times of files to ten seconds ago, as if they had not changed since."""
    moment = time.time() - 10
    for path in directory.rglob(pattern):
        os.utime(path, (moment, moment))


def rounds(long: int, short: int = 3) -> Callable[[Function], Function]:
    """A decorator that repeats a race: a few times in the short run, and ``long`` times in the long run."""
    numbers = [*range(short), *(pytest.param(number, marks=pytest.mark.long) for number in range(short, long))]

    def repeated(test: Function) -> Function:
        repeat = pytest.mark.parametrize("again", numbers, indirect=True)
        marked: Function = pytest.mark.usefixtures("again")(repeat(test))
        return marked

    return repeated
