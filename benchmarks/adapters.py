"""Measure each adapter beside the framework's own local store, in one run, as one table of Markdown.

    python benchmarks/adapters.py [PACKAGE ...]

Frameworks that are not installed are left out; with names of packages, so are all others. Times are milliseconds per
call: medians of rounds of 20 calls, or of 100 calls that take less than a millisecond. The stores have their rounds in
turn, in reverse order in every other round, and a ratio is the median of the rounds' ratios. Ours is durable when a
write returns, which is the default; "process" is `durability="process"`, without `fsync`. Texts have 1 KB. The files
that are read are older than two seconds.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from inspect import isawaitable
from pathlib import Path
from typing import Any

from _adapter_subjects import SUBJECTS, Call, Subject
from _lost_update_stores import finished

from agent_memory import AgentMemoryService

ROUNDS, CALLS, SHORT_CALLS = 9, 20, 100
SETTLED_SECONDS = 2.5
OURS, PROCESS, OWN = "ours", "process", "own"


class Contender:
    """A store and its calls; each call gets another number."""

    def __init__(self, prepared: Any, call: Call) -> None:
        self._prepared, self._call, self._numbers = prepared, call, itertools.count()
        result = call(prepared, next(self._numbers))
        self._is_async = isawaitable(result)
        finished(result)  # warm-up

    def milliseconds(self, calls: int) -> float:
        """The time per call of one round."""
        gc.collect()  # so that no store pays for the garbage of another
        began = time.perf_counter()
        finished(self._awaited(calls)) if self._is_async else self._called(calls)
        return (time.perf_counter() - began) / calls * 1e3

    def _called(self, calls: int) -> None:
        for number in itertools.islice(self._numbers, calls):
            self._call(self._prepared, number)

    async def _awaited(self, calls: int) -> None:
        for number in itertools.islice(self._numbers, calls):
            await self._call(self._prepared, number)


def opened(subject: Subject, directory: str, stack: contextlib.ExitStack) -> dict[str, Any]:
    """The three prepared stores of a subject."""
    stores = {}
    for name in (OURS, PROCESS, OWN):
        place = Path(directory, name)
        place.mkdir()
        if name == OWN:
            store = subject.open_own(str(place))
            store = stack.enter_context(store) if hasattr(store, "__enter__") else store
        else:
            options = {"durability": "process"} if name == PROCESS else {}
            service = stack.enter_context(AgentMemoryService(place, storage_options=options))
            store = subject.open_ours(service.agent("bench").subtree("files"))
        stores[name] = finished(subject.prepare(store))
    return stores


def measured(stores: dict[str, Any], call: Call, names: tuple[str, ...]) -> dict[str, list[float]]:
    contenders = {name: Contender(stores[name], call) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    calls = {name: SHORT_CALLS if each.milliseconds(CALLS) < 1 else CALLS for name, each in contenders.items()}
    for number in range(ROUNDS):
        for name in names if number % 2 else reversed(names):
            times[name].append(contenders[name].milliseconds(calls[name]))
    return times


def row(subject: Subject, what: str, times: dict[str, list[float]]) -> str:
    def ratio(name: str) -> str:
        return f"{statistics.median(a / b for a, b in zip(times[name], times[OWN], strict=True)):.2f}"

    shown = {name: f"{statistics.median(each):.2f}" for name, each in times.items()}
    process = (shown[PROCESS], ratio(PROCESS)) if PROCESS in times else ("", "")
    cells = f"`{subject.ours}`: {what}", shown[OURS], f"`{subject.own}`", shown[OWN], ratio(OURS), *process
    return f"| {' | '.join(cells)} |"


def rows(subject: Subject) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        stores = opened(subject, directory, stack)
        time.sleep(SETTLED_SECONDS)
        for what, call in subject.reads.items():
            yield row(subject, what, measured(stores, call, (OURS, OWN)))
        for what, call in subject.writes.items():
            yield row(subject, what, measured(stores, call, (OURS, PROCESS, OWN)))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of the packages; empty if one is missing."""
    try:
        return {package: metadata.version(package) for package in packages}
    except metadata.PackageNotFoundError:
        return {}


def main(wanted: list[str]) -> None:
    print("| what | ours, ms | own store | its, ms | ratio | process, ms | ratio |\n|---|--:|---|--:|--:|--:|--:|")
    found: dict[str, str] = {}
    for subject in SUBJECTS:
        installed = versions(subject.packages)
        if installed and (not wanted or set(wanted) & installed.keys()):
            found |= installed
            for line in rows(subject):
                print(line, flush=True)
    print(f"\n{', '.join(f'{name} {version}' for name, version in found.items())}.")


if __name__ == "__main__":
    main(sys.argv[1:])
