"""Racing processes lose no state: what each of them replaced or deleted is found, with the right maker and order."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
)
from agent_memory.core import operation
from agent_memory.core.versions import origin
from agent_memory.core.versions.record import Name
from tests.core.versions.helpers import opened, records, who
from tests.object_store.proxy import Proxy, at_random
from tests.object_store.test_faulty_network import FAULTS, SHARE
from tests.support.processes import in_processes
from tests.support.servers import ATOMIC, Root, S3Server

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the workers are other processes

PATHS = ("a", "b", "d/c")
REPEATED = ": the same"
_HOUR = 3600.0


def _added(new: str, old: str) -> str:
    return old + new


def _set_clock(seconds: float) -> None:
    """Let the clock of this process, as versions see it, be ahead by some seconds."""
    ahead = SimpleNamespace(time=lambda: time.time() + seconds, monotonic=time.monotonic)
    for module in (operation, origin):
        setattr(module, "time", ahead)  # noqa: B010 - the name is of an import


def _change(memory: AgentMemory, which: int, path: str, text: str, new_path: str) -> None:
    match which:
        case 0:
            memory.write(path, text)
        case 1:
            memory.append(path, text)
        case 2:
            memory.edit(path, partial(_added, text), missing="")
        case 3:
            memory.delete(path)
        case _:
            memory.rename(path, new_path)


class Raced(NamedTuple):
    """The texts that a process wrote, and those of calls with an unknown outcome."""

    written: list[str]
    unknown: list[str]


def race(number: int, barrier: Any, root: Root, rounds: int, renames: bool = True) -> Raced:
    """Change shared files at random, with a clock of its own."""
    chosen = random.Random(number)
    if not root.url.startswith("memory:"):  # there the writers are threads, which share the clock
        _set_clock(chosen.uniform(-_HOUR / 2, _HOUR / 2))
    raced = Raced([], [])
    with AgentMemory.open(root.url, storage_options=root.options, actor=f"p{number}") as memory:
        barrier.wait(120)
        for turn in range(rounds):
            path = chosen.choice(PATHS)
            text = f"{number}:{turn}\n" if chosen.random() < 0.9 else f"{number}{REPEATED}\n"
            which = chosen.randrange(5 if renames else 4)
            with suppress(AgentMemoryFileNotFoundError, FileAlreadyExistsError, ConflictError):
                try:
                    _change(memory, which, path, text, chosen.choice(PATHS))
                except OutcomeUnknownError:
                    raced.unknown.append(text)
                else:
                    raced.written.extend([text] if which < 3 else [])
    return raced


def check_chains(root: Root, memory: AgentMemory, results: list[Raced]) -> None:
    """Check that all texts are in some version, that every state but the first has a predecessor, and the makers.

    On S3 a rename copies the file. If another writer changes the file during the copy, or the client sends the copy
    again, two names have one state, and a later rename may bring it back to the first name: only such a state ends
    twice.

    Storages compare contents: a change that is based on a state also replaces a later state with the same content, so
    the first one ends twice. Only states that begin with a repeated text are allowed that.
    """
    of_paths = {path: {each.id: each for each in memory.versions.list(path)} for path in PATHS}
    texts = {  # a rename on S3 may leave one state under two names, and each goes on for itself
        (path, each.id): memory.read(path) if each.ended_by is None else memory.versions.read(path, each.id)
        for path, versions in of_paths.items()
        for each in versions.values()
    }
    ids = {id_ for _, id_ in texts}
    renamed = {name.id for name in map(Name.parse, records(root)) if name and name.is_mark}
    kept = {line for text in texts.values() for line in text.splitlines(keepends=True)}
    written = {text for each in results for text in each.written}
    assert written <= kept <= written | {text for each in results for text in each.unknown}
    for path, versions in of_paths.items():
        for state in versions.values():
            assert state.previous is None or state.previous in ids
            if before := versions.get(state.previous or ""):
                assert before.number == state.number - 1
                may_end_twice = before.id in renamed or texts[path, before.id].partition("\n")[0].endswith(REPEATED)
                assert who(before.ended_by) == who(state.made_by) or may_end_twice
            assert state.made_by
            if state.made_by.operation in ("write", "edit"):
                assert any(
                    f"p{line}".startswith(f"{state.made_by.actor}:") for line in texts[path, state.id].splitlines()
                )


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_a_state_with_the_same_content_as_an_earlier_one_is_replaced_in_its_place(root: Root) -> None:
    memory = opened(root)
    other = AgentMemory.open(root.url, storage_options=root.options)  # does not wait for the edit
    memory.acting_as("first").write("a", "x")

    def meanwhile(_: str) -> str:
        if len(other.versions.list("a")) == 1:
            other.acting_as("other").write("a", "y")
            other.acting_as("again").write("a", "x")
        return "z"

    memory.acting_as("editor").edit("a", meanwhile)
    live, *kept = memory.versions.list("a")
    first, second = sorted(kept, key=lambda each: each.number)
    assert [memory.versions.read("a", each.id) for each in (first, second)] == ["x", "y"]
    assert live.previous == second.previous == first.id
    assert live.made_by
    assert live.made_by.actor == "editor"
    assert who(first.ended_by) in (who(live.made_by), who(second.made_by))


def in_threads(count: int, root: Root, rounds: int) -> list[Raced]:
    barrier = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: race(number, barrier, root, rounds), range(count)))


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_racing_writers_lose_no_state(root: Root, request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    writers, rounds = (16, 100) if pytestconfig.getoption("--long") else (4, 16)
    if request.node.callspec.params["root"] == "seaweedfs":
        writers, rounds = 8, 25
    memory = opened(root)
    memory.write("first", "x")
    if root.url.startswith("memory:"):
        check_chains(root, memory, in_threads(writers, root, rounds))
    else:
        check_chains(root, memory, in_processes(writers, race, root, rounds))


@pytest.mark.long
@pytest.mark.parametrize("renames", [True, False], ids=["renames", "none"])
def test_racing_processes_lose_no_state_on_a_network_that_fails(ministack: S3Server, renames: bool) -> None:
    root = Root(ministack.new_url(), ministack.options)
    memory = opened(root)
    memory.write("first", "x")
    with Proxy(ministack.endpoint) as proxy:
        proxy.choose = at_random(SHARE, 1, FAULTS)
        results = in_processes(8, race, Root(root.url, ministack.through(proxy)), 40, renames)
        check_chains(root, memory, results)
