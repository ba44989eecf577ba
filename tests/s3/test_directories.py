"""What a process knows of directories, as several event loops, each in a thread of its own, learn it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread
from typing import Any

import pytest

from agent_memory.object_store._directories import KnownDirectories, Place

THREADS, ROUNDS = 8, 50


@pytest.fixture(autouse=True)
def _hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_thread_forgets_what_another_has_learned() -> None:
    for round_ in range(ROUNDS):
        known, start = KnownDirectories(), Barrier(THREADS)
        top = ("base", f"{round_}")
        for number in range(100):  # takes a while to look through
            known.add(("other", f"{number}"))

        def learn(number: int, top: Place = top, known: KnownDirectories = known, start: Barrier = start) -> None:
            own = (top[0], f"{top[1]}/{number}")
            start.wait(60)
            known.add(own)
            if known.children(top) is None:
                known.add_children(top, {"found"})
            known.add_children(own, set())
            known.add_to_parents([top, own])

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(learn, range(THREADS)))
        assert known.children(top) == {"found", *map(str, range(THREADS))}


def test_threads_that_forget_stand_in_nobodys_way() -> None:
    known, start = KnownDirectories(), Barrier(THREADS)

    def change(number: int) -> None:
        start.wait(60)
        for round_ in range(ROUNDS):
            places = [("base", ""), ("base", f"{number}"), ("base", f"{number}/{round_}")]
            for place in places:
                known.add_children(place, set())
            known.add_to_parents(places)
            known.forget(places[1])
            assert places[1] not in known
            assert places[2] not in known

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(change, range(THREADS)))
    assert known.children(("base", "")) == set()


def test_a_coroutine_cleared_away_while_something_is_learned_may_ask() -> None:
    known = KnownDirectories()

    class Careless(set[str]):
        """Where it is looked at, the garbage collector comes and clears a coroutine away, say."""

        def __or__(self, other: AbstractSet[Any]) -> set[Any]:
            known.add(("base", "asked"))
            return set(self) | set(other)

    learning = Thread(target=known.add_children, args=(("base", ""), Careless({"found"})), daemon=True)
    learning.start()
    learning.join(60)
    assert not learning.is_alive()
    assert known.children(("base", "")) == {"found"}
    assert ("base", "asked") in known


def test_a_directory_emptied_is_forgotten_with_all_that_was_below() -> None:
    known = KnownDirectories()
    for place in (("one", ""), ("one", "a"), ("one", "a/b"), ("one", "ab"), ("other", "a")):
        known.add_children(place, set())
    known.add_to_parents([("one", ""), ("one", "a"), ("one", "a/b")])
    assert known.children(("one", "")) == {"a"}
    assert known.children(("one", "a")) == {"b"}
    known.forget(("one", "a"))
    assert known.children(("one", "")) == set()
    assert ("one", "a/b") not in known
    assert known.children(("one", "ab")) == set()
    assert known.children(("other", "a")) == set()


def test_only_the_last_used_are_remembered() -> None:
    known = KnownDirectories()
    known.add_children(("base", "used"), set())
    for number in range(2_000):
        known.add(("base", f"{number}"))
        known.children(("base", "used"))
    assert known.children(("base", "used")) == set()
    assert ("base", "0") not in known
    assert ("base", "1999") in known
