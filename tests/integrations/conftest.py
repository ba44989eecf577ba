"""Fixtures for the adapters of agent frameworks: a memory on every storage, by both engines of S3."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import pytest_asyncio

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.audit import log_at
from agent_memory.audit.record import facts_of
from agent_memory.integrations.fsspec import AgentMemoryURLFileSystem
from tests.support.servers import Root, S3Server

_LONG = pytest.mark.long
URL_AGENT = "agent-1"
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


@pytest.fixture
def _fresh() -> Iterator[None]:
    yield
    AgentMemoryURLFileSystem.clear_instance_cache()


@pytest.fixture(params=["local", "ministack"])
def options(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Storage options of an agent's memory with an audit log; credentials come from the environment."""
    plugins = {"audit": {"target": str(tmp_path / "audit.jsonl")}}
    if request.param == "local":
        return {"root": str(tmp_path / "root"), "agent": URL_AGENT, "plugins": plugins}
    server: S3Server = request.getfixturevalue("ministack")
    given = dict(server.options)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(given.pop("key")))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(given.pop("secret")))
    return {"root": server.new_url(), "agent": URL_AGENT, "plugins": plugins, "root_options": given}


@pytest.fixture
def seen(options: dict[str, Any]) -> Callable[[], set[tuple[str, str]]]:
    """The kinds and paths of all operations in the audit log."""

    def look() -> set[tuple[str, str]]:
        fsspec.filesystem("agentmemory", **options).close()
        AgentMemoryURLFileSystem.clear_instance_cache()
        location = log_at(Path(options["plugins"]["audit"]["target"]))
        lines = b"".join(block for part in location.parts() for block in location.blocks(part)).splitlines()
        facts = [facts_of(line) for line in lines]
        assert {each["agent"] for each in facts if each["event"] == "operation"} <= {URL_AGENT}
        return {(str(each["operation"]), str(each["path"])) for each in facts if each["event"] == "operation"}

    return look
