"""Many processes write one file: no append is lost or refused, on every backend that processes can share."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_memory import AgentMemoryError, AgentMemoryService, FileAlreadyExistsError
from tests.support.processes import in_processes
from tests.support.servers import Root, S3Server, by_both_engines

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the workers are other processes

Barrier = threading.Barrier  # multiprocessing's has the same methods
long = pytest.mark.long


def append_lines(number: int, _: object, root: Root, lines: int) -> int:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        for line in range(lines):
            service.append_to_memory_file("team", "log.txt", f"{number}:{line}\n")
    return lines


def create_in_rounds(
    number: int,
    barrier: Barrier,
    root: Root,
    rounds: int,
    beaten: tuple[type[AgentMemoryError], ...] = (FileAlreadyExistsError,),
) -> list[int]:
    """The rounds that this creator won; ``beaten``: the errors that a losing creator may get."""
    won = []
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        for turn in range(rounds):
            barrier.wait(300)
            try:
                service.create_memory_file("team", f"{turn}/claimed.txt", f"{number}")
                won.append(turn)
            except beaten:
                continue
    return won


def assert_one_winner_each(root: Root, won: list[list[int]], rounds: int) -> None:
    assert Counter(turn for turns in won for turn in turns) == Counter(range(rounds))
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        for number, turns in enumerate(won):
            for turn in turns:
                assert service.read_memory_file("team", f"{turn}/claimed.txt") == f"{number}"


def lines_of(root: Root) -> list[str]:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        return service.read_memory_file("team", "log.txt").splitlines()


def assert_all_once_and_in_order(lines: list[str], writers: int, each: int) -> None:
    assert Counter(lines) == Counter(f"{number}:{line}" for number in range(writers) for line in range(each))
    for number in range(writers):
        own = [line for line in lines if line.startswith(f"{number}:")]
        assert own == [f"{number}:{line}" for line in range(each)]


@pytest.mark.parametrize(("writers", "each"), [(4, 10), pytest.param(16, 50, marks=long)])
def test_no_append_of_many_processes_is_lost_on_local_disk(tmp_path: Path, writers: int, each: int) -> None:
    root = Root(str(tmp_path), {})
    in_processes(writers, append_lines, root, each)
    assert_all_once_and_in_order(lines_of(root), writers, each)


@long  # tests/object_store/test_faulty_network.py has a smaller test for every run, behind a network that fails
@by_both_engines
def test_no_append_of_many_processes_is_lost_on_s3(ministack: S3Server, engine: str) -> None:
    root = Root(ministack.new_url(), ministack.by(engine).options)
    in_processes(16, append_lines, root, 50)
    assert_all_once_and_in_order(lines_of(root), 16, 50)


@long
@pytest.mark.parametrize(("engine", "writers", "each"), [("s3fs", 3, 4), ("s3fs", 8, 25), ("obstore", 8, 25)])
def test_no_append_of_many_processes_is_lost_on_a_distributed_store(
    seaweedfs: S3Server, engine: str, writers: int, each: int
) -> None:
    root = Root(seaweedfs.new_url(), seaweedfs.by(engine).options)
    in_processes(writers, append_lines, root, each)
    assert_all_once_and_in_order(lines_of(root), writers, each)


@long
@by_both_engines
def test_no_append_of_many_processes_is_lost_on_ceph(ceph: S3Server, engine: str) -> None:
    root = Root(ceph.new_url(), ceph.by(engine).options)
    in_processes(8, append_lines, root, 25)
    assert_all_once_and_in_order(lines_of(root), 8, 25)


@long
@by_both_engines
def test_exactly_one_racing_creator_wins_on_ceph(ceph: S3Server, engine: str) -> None:
    root = Root(ceph.new_url(), ceph.by(engine).options)
    assert_one_winner_each(root, in_processes(8, create_in_rounds, root, 25), 25)


def test_no_append_of_many_threads_is_lost_in_memory() -> None:
    root = Root("memory://appends-of-threads", {})
    barrier = threading.Barrier(16)

    def work(number: int) -> int:
        barrier.wait(60)
        return append_lines(number, barrier, root, 50)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(work, range(16))) == 800
    assert_all_once_and_in_order(lines_of(root), 16, 50)


@pytest.mark.parametrize(("creators", "rounds"), [(4, 10), pytest.param(16, 100, marks=long)])
def test_exactly_one_racing_creator_wins_on_local_disk(tmp_path: Path, creators: int, rounds: int) -> None:
    root = Root(str(tmp_path), {})
    assert_one_winner_each(root, in_processes(creators, create_in_rounds, root, rounds), rounds)


@long
@by_both_engines
def test_exactly_one_racing_creator_wins_on_s3(ministack: S3Server, engine: str) -> None:
    root = Root(ministack.new_url(), ministack.by(engine).options)
    assert_one_winner_each(root, in_processes(16, create_in_rounds, root, 100), 100)


@long
@pytest.mark.parametrize(("creators", "rounds"), [(3, 3), (8, 10)])
def test_exactly_one_racing_creator_wins_on_a_distributed_store(
    seaweedfs: S3Server, creators: int, rounds: int
) -> None:
    root = Root(seaweedfs.new_url(), seaweedfs.options)
    assert_one_winner_each(root, in_processes(creators, create_in_rounds, root, rounds), rounds)


def test_exactly_one_racing_creator_wins_in_memory() -> None:
    root, barrier = Root("memory://racing-creators", {}), threading.Barrier(16)
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda number: create_in_rounds(number, barrier, root, 100), range(16)))
    assert_one_winner_each(root, won, 100)
