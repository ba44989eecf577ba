"""Behind a network that fails every fifth request, no change is lost or done twice, and no false conflict is raised."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest

from agent_memory import AgentMemoryService, FileAlreadyExistsError, OutcomeUnknownError
from tests.core.test_concurrency import (
    append_lines,
    assert_all_once_and_in_order,
    assert_one_winner_each,
    create_in_rounds,
    lines_of,
)
from tests.object_store.proxy import Fault, Proxy, at_random
from tests.support.processes import in_processes
from tests.support.servers import Root, S3Server, by_both_engines

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the workers are other processes

SHARE = 0.2
FAULTS: tuple[Fault, ...] = ("reply lost", "reset", "500", "503", "409", "500 after it was done", "slow",
                             "truncated body")  # fmt: skip
pytestmark = pytest.mark.long


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """A proxy that fails a fifth of the requests to the test's server."""
    server: S3Server = request.getfixturevalue(getattr(request, "param", "ministack"))
    with Proxy(server.endpoint) as proxy:
        proxy.choose = at_random(SHARE, 1, FAULTS)
        yield proxy


def roots(proxy: Proxy, server: S3Server, engine: str = "s3fs") -> tuple[Root, Root]:
    """The same root twice: through the proxy by one engine, and directly."""
    url = server.new_url()
    return Root(url, server.by(engine).through(proxy)), Root(url, server.options)


@by_both_engines
@pytest.mark.parametrize(("writers", "each"), [(4, 10), (16, 50)])
def test_every_append_is_stored_once(proxy: Proxy, ministack: S3Server, engine: str, writers: int, each: int) -> None:
    faulty, direct = roots(proxy, ministack, engine)
    in_processes(writers, append_lines, faulty, each)
    assert_all_once_and_in_order(lines_of(direct), writers, each)


@by_both_engines
@pytest.mark.parametrize("proxy", ["seaweedfs"], indirect=True)
def test_every_append_is_stored_once_on_a_distributed_store(proxy: Proxy, seaweedfs: S3Server, engine: str) -> None:
    faulty, direct = roots(proxy, seaweedfs, engine)
    in_processes(8, append_lines, faulty, 25)
    assert_all_once_and_in_order(lines_of(direct), 8, 25)


@by_both_engines
@pytest.mark.parametrize(("creators", "rounds"), [(16, 100)])
def test_exactly_one_racing_creator_wins(
    proxy: Proxy, ministack: S3Server, engine: str, creators: int, rounds: int
) -> None:
    faulty, direct = roots(proxy, ministack, engine)
    won = in_processes(creators, create_in_rounds, faulty, rounds, (FileAlreadyExistsError, OutcomeUnknownError))
    assert_one_winner_each(direct, won, rounds)


def add(line: str, text: str) -> str:
    return text + line


def edit_lines(number: int, _: object, root: Root, lines: int) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        memory = service.agent("team")
        for line in range(lines):
            memory.edit("log.txt", partial(add, f"{number}:{line}\n"))


@by_both_engines
@pytest.mark.parametrize(("writers", "each"), [(16, 20)])
def test_no_concurrent_edit_is_lost(proxy: Proxy, ministack: S3Server, engine: str, writers: int, each: int) -> None:
    faulty, direct = roots(proxy, ministack, engine)
    with AgentMemoryService(direct.url, storage_options=direct.options) as service:
        service.write_memory_file("team", "log.txt", "")
    in_processes(writers, edit_lines, faulty, each)
    assert_all_once_and_in_order(lines_of(direct), writers, each)
