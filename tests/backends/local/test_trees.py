"""Directories renamed and deleted during writes: an acknowledged file is at its path or moved with its directory."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_memory import AgentMemory
from agent_memory.key import Key
from agent_memory_local import LocalBackend
from tests.support import sizes
from tests.support.processes import in_processes

_HOPS = 12


class Did(NamedTuple):
    """An acknowledged change with the times before and after it, from the machine's clock, shared by all processes.

    ``target`` is a directory's new name, or "" if it was deleted; None for a file that was written. ``seen`` is
    the directory's content right after the rename: a file missing from it was not renamed with it.
    """

    path: str
    target: str | None
    began: float
    ended: float
    seen: frozenset[str] = frozenset()


def move(memory: AgentMemory, family: str, until: float) -> list[Did]:
    """Rename a directory several times, each time to a new name, then delete it; repeat until the time is over."""
    done: list[Did] = []
    number = 0
    choice = random.Random(family)
    while time.monotonic() < until:
        name = f"{family}-{number}"
        memory.create(f"{name}/sub/seed.md", "")
        for hop in range(_HOPS):
            number += 1
            time.sleep(choice.random() * 0.01)  # time for the writers
            target = f"{family}-{number}" if hop < _HOPS - 1 else ""
            began = time.monotonic()
            if target:
                memory.rename(name, target)
            else:
                memory.delete_tree(name)
            ended = time.monotonic()
            seen = memory.list(target) if target else ()
            done.append(Did(name, target, began, ended, frozenset(entry.key.name for entry in seen)))
            name = target
    return done


def write(memory: AgentMemory, writer: str, until: float) -> list[Did]:
    """Write files with unique names into the existing directories."""
    done: list[Did] = []
    choice = random.Random(writer)
    verbs: list[Callable[[str, str], object]] = [memory.write, memory.create, memory.append]
    while time.monotonic() < until:
        names = [entry.path for entry in memory.list(recursive=False)]
        for name in choice.sample(names[-8:], min(3, len(names))):
            path = f"{name}/sub/{writer}-{len(done)}.md"
            began = time.monotonic()
            choice.choice(verbs)(path, path)
            done.append(Did(path, None, began, time.monotonic()))
    return done


def work(number: int, _: object, url: str, seconds: float, durability: str) -> list[Did]:
    """One process: the first moves and writes in threads, the second moves, the others write."""
    memory = AgentMemory.open(url, storage_options={"durability": durability})
    jobs: list[tuple[Callable[[AgentMemory, str, float], list[Did]], str]] = [(write, f"writer{number}")]
    if number == 0:
        jobs = [(move, "a"), (move, "b"), (write, "thread0"), (write, "thread1")]
    elif number == 1:
        jobs = [(move, "c")]
    results: list[list[Did]] = []
    until = time.monotonic() + seconds  # all processes have started
    threads = [threading.Thread(target=lambda job=job: results.append(job[0](memory, job[1], until))) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(jobs), "a thread failed"
    return [did for result in results for did in result]


def possible_places(written: Did, moves: dict[str, Did]) -> set[str]:
    """The allowed final paths of a file; "" means deleted. A name is moved at most once, and only writers reuse it."""
    directory, _, rest = written.path.partition("/")
    moved = moves.get(directory)
    stays, goes = {written.path}, set()
    if moved is not None:
        name = moved.target
        if name and written.path.rpartition("/")[2] not in moved.seen:
            return stays
        while name and name in moves:
            name = moves[name].target
        goes = {f"{name}/{rest}" if name else ""}
    if moved is None or written.began > moved.ended:
        return stays
    return goes if written.ended < moved.began else stays | goes


def _at_the_same_moment(written: Did, moved: Did | None) -> bool:
    return moved is not None and written.began <= moved.ended and moved.began <= written.ended


@pytest.mark.parametrize(
    ("seconds", "durability"),
    [
        (0.7, "full"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in ((2.0, "process"), (60.0, "process"), (60.0, "full"))
        ),
    ],
)
def test_every_acknowledged_write_is_at_its_path_or_was_moved_or_deleted(
    tmp_path: Path, seconds: float, durability: str
) -> None:
    """Repeat until a write and a move happen at the same time, which depends on chance."""
    rounds = (found_in_place(tmp_path / f"root-{number}", seconds, durability) for number in range(20))
    assert any(rounds), "no write met a move: this would prove nothing"


def found_in_place(root: Path, seconds: float, durability: str) -> int:
    """Run writers and movers on a root, check every file, and return how many writes overlapped a move."""
    results = in_processes(3, work, str(root), seconds, durability)
    done: list[Did] = [did for result in results for did in result]
    moves = {did.path: did for did in done if did.target is not None}
    written = [did for did in done if did.target is None]
    memory = AgentMemory.open(root)
    found: dict[str, set[str]] = {}
    for entry in memory.list():
        found.setdefault(entry.path.rpartition("/")[2], set()).add(entry.path)
    lost = []
    for did in written:
        places = found.pop(did.path.rpartition("/")[2], {""})
        if len(places) > 1 or not places <= possible_places(did, moves):
            lost.append((did, places, possible_places(did, moves)))
    assert lost == []
    assert {name for name in found if name != "seed.md"} == set()
    overlapped = [did for did in written if _at_the_same_moment(did, moves.get(did.path.partition("/")[0]))]
    print(f"{durability}: {len(written)} writes, {len(moves)} moves, {len(overlapped)} at the same moment as a move")  # noqa: T201 - figures
    return len(overlapped)


@pytest.fixture
def switching() -> Iterator[None]:
    """Let the threads of this process take turns as often as possible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("switching")
def test_threads_change_more_trees_at_once_than_are_kept_open(tmp_path: Path) -> None:
    threads, rounds = 8, 50 if sizes.is_long else 15
    logs = [Key.agent(f"agent{number}").join("log.md") for number in range(40)]
    backend = LocalBackend(tmp_path, durability="process")
    together = threading.Barrier(threads)

    def append(thread: int) -> None:
        together.wait()
        for log in logs * rounds:
            backend.append(log, b"%d;" % thread)

    with ThreadPoolExecutor(threads) as pool:
        for ended in [pool.submit(append, thread) for thread in range(threads)]:
            ended.result()
    for log in logs:
        lines = backend.read(log).data.split(b";")
        assert sorted(lines[:-1]) == sorted(b"%d" % thread for thread in range(threads) for _ in range(rounds))
    backend.close()


def test_the_directories_above_a_renamed_one_go_if_they_are_empty(tmp_path: Path) -> None:
    memory = AgentMemory.open(tmp_path / "root")
    memory.write("a/b/c/d.md", "x")
    memory.rename("a/b/c", "e")
    assert sorted(path.name for path in (tmp_path / "root").iterdir() if not path.name.startswith(".")) == ["e"]
