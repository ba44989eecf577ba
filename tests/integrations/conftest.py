"""Fixtures for the adapters of agent frameworks: a memory on every storage, by both engines of S3."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_memory import AgentMemory, AsyncAgentMemory
from tests.support.servers import Root, S3Server

_LONG = pytest.mark.long
SHARED = [
    "local",
    "ministack-s3fs",
    "ministack-obstore",
    pytest.param("seaweedfs-s3fs", marks=_LONG),
    pytest.param("seaweedfs-obstore", marks=_LONG),
]
PLACES = ["memory", *SHARED]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root on every storage."""
    return _root(request, tmp_path)


@pytest.fixture(params=SHARED)
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root that several processes can open."""
    return _root(request, tmp_path)


def _root(request: pytest.FixtureRequest, directory: Path) -> Root:
    name: str = request.param
    if name == "local":
        return Root(str(directory / "root"), {})
    if name == "memory":
        return Root(f"memory://{directory.name}-{os.getpid()}", {})
    server_name, _, engine = name.partition("-")
    server: S3Server = request.getfixturevalue(server_name).by(engine)
    return Root(server.new_url(), server.options)


@pytest.fixture
def memory(place: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(place.url, storage_options=place.options) as opened:
        yield opened


@pytest_asyncio.fixture
async def async_memory(place: Root) -> AsyncIterator[AsyncAgentMemory]:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as opened:
        yield opened


@pytest.fixture
def again(request: pytest.FixtureRequest) -> int:
    """The number of a repetition; see `tests.integrations.kit.rounds`."""
    number: int = request.param
    return number
