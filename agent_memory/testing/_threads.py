"""Threads that start at the same moment: `race` for writers, `watch` for readers beside a writer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from agent_memory.errors import AgentMemoryError, UnsupportedOperationError

_BARRIER_SECONDS = 60.0
_TURN_SECONDS = 1e-5  # with Python's default of 5 ms, most threads would end before a switch


def race(actions: Iterable[Callable[[], object]]) -> list[object]:
    """Start all actions at the same moment, each in a thread; returns their results or errors, in order.

    Raises:
        UnsupportedOperationError: the backend refused an action, so there was no race.
        Exception: an action raised an error that is not an `AgentMemoryError`.
    """
    actions = list(actions)
    barrier = threading.Barrier(len(actions), timeout=_BARRIER_SECONDS)

    def start(action: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return action()
        except AgentMemoryError as error:
            return error

    with _quick_turns(), ThreadPoolExecutor(len(actions)) as threads:
        outcomes = list(threads.map(start, actions))
    for outcome in outcomes:
        if isinstance(outcome, UnsupportedOperationError):
            raise outcome
    return outcomes


def winners(outcomes: Sequence[object], *losing: type[AgentMemoryError]) -> list[int]:
    """The indexes of the actions that returned; every other action must have one of the ``losing`` errors."""
    for outcome in outcomes:
        if isinstance(outcome, AgentMemoryError) and not isinstance(outcome, losing):
            raise outcome
    return [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, AgentMemoryError)]


def the_winner(outcomes: Sequence[object], *losing: type[AgentMemoryError]) -> int:
    """The index of the only action that returned; the others as for `winners`."""
    found = winners(outcomes, *losing)
    assert len(found) == 1, f"{len(found)} of {len(outcomes)} racers succeeded; exactly one may"
    return found[0]


def watch(change: Callable[[], None], observe: Callable[[], object], watchers: int) -> None:
    """Call ``observe`` repeatedly in threads, from before ``change`` begins until after it has ended.

    Raises:
        Exception: an error of either function.
    """
    barrier = threading.Barrier(watchers + 1, timeout=_BARRIER_SECONDS)
    done = threading.Event()

    def work() -> None:
        barrier.wait()
        try:
            change()
        finally:
            done.set()

    def look() -> None:
        barrier.wait()
        while not done.is_set():
            observe()
        observe()

    with _quick_turns(), ThreadPoolExecutor(watchers + 1) as threads:
        under_way = [threads.submit(work), *(threads.submit(look) for _ in range(watchers))]
    for future in under_way:
        future.result()


@contextmanager
def _quick_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
