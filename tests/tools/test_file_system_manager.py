"""The requirements of `FileSystemManager`, with each named failure: sync and async, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AppendError,
    AsyncAgentMemory,
    FileAlreadyExistsError,
    InvalidPathError,
    PathTraversalError,
    WriteError,
    WriteResult,
)
from agent_memory.testing import race
from agent_memory.tools import AsyncFileSystemManager, FileSystemManager
from tests.support.servers import ATOMIC, ROOTS, Root, S3Server
from tests.tools.calls import everything, fill

Handle = Callable[[str, Any], WriteResult]
ESCAPES = [
    "../a.md",
    "docs/../../a.md",
    "docs/../a.md/../../../b.md",
    "..",
    "/etc/passwd",
    "/a.md",
    "C:/a.md",
    "C:\\a.md",
    "..\\a.md",
    "~/a.md",
    "%2e%2e/a.md",
    "..%2fa.md",
    "．．/a.md",
    "../.git/config",
]


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        yield memory


@pytest.fixture(params=["sync", "async"])
def manager(request: pytest.FixtureRequest, memory: AgentMemory, root: Root) -> Iterator[Any]:
    """The sync manager, or the async one behind the same sync interface."""
    if request.param == "sync":
        yield FileSystemManager(memory)
    else:
        other = AsyncAgentMemory.open(root.url, storage_options=root.options)
        yield Awaited(AsyncFileSystemManager(other))
        asyncio.run(other.aclose())


class Awaited:
    """An async manager; each call runs in a new event loop."""

    def __init__(self, manager: AsyncFileSystemManager) -> None:
        self._manager = manager

    def handle_create(self, path: str, content: str) -> WriteResult:
        return asyncio.run(self._manager.handle_create(path, content))

    def handle_append(self, path: str, content: str) -> WriteResult:
        return asyncio.run(self._manager.handle_append(path, content))


def both(manager: FileSystemManager) -> list[Handle]:
    return [manager.handle_create, manager.handle_append]


def test_create_makes_the_file_and_its_parent_directories(manager: FileSystemManager, memory: AgentMemory) -> None:
    result = manager.handle_create("docs//projects/./ai/file.md", "# Grüße\r\n")
    assert (result.path, result.size) == ("docs/projects/ai/file.md", 11)
    assert everything(memory) == {"docs/projects/ai/file.md": "# Grüße\r\n".encode()}


def test_append_always_prepends_two_newlines(manager: FileSystemManager, memory: AgentMemory) -> None:
    fill(memory, {"a.md": "one", "b.md": "one\n\n", "c.md": ""})
    for path in ("a.md", "b.md", "c.md"):
        result = manager.handle_append(path, "two")
        assert (result.path, result.size) == (path, len(memory.read(path)))
    assert everything(memory) == {"a.md": b"one\n\ntwo", "b.md": b"one\n\n\n\ntwo", "c.md": b"\n\ntwo"}
    manager.handle_append("a.md", "")
    assert memory.read("a.md") == "one\n\ntwo\n\n"


def test_a_path_that_leads_outside_raises_a_path_traversal_error(
    manager: FileSystemManager, memory: AgentMemory
) -> None:
    before = everything(fill(memory, {"a.md": "a"}))
    for handle in both(manager):
        for path in ESCAPES:
            with pytest.raises(PathTraversalError):
                handle(path, "x")
    assert everything(memory) == before


def test_creating_an_existing_file_raises_a_file_already_exists_error(
    manager: FileSystemManager, memory: AgentMemory
) -> None:
    before = everything(fill(memory, {"a.md": "a", "d.md/b.md": "b"}))
    for path in ("a.md", "d.md", "a.md/below.md"):
        with pytest.raises(FileAlreadyExistsError):
            manager.handle_create(path, "x")
    assert everything(memory) == before


def test_appending_to_a_missing_file_raises_a_file_not_found_error(
    manager: FileSystemManager, memory: AgentMemory
) -> None:
    before = everything(fill(memory, {"d.md/b.md": "b"}))
    for path in ("missing.md", "new/missing.md", "d.md", "d.md/b.md/below.md"):
        with pytest.raises(AgentMemoryFileNotFoundError):
            manager.handle_append(path, "x")
    assert everything(memory) == before


def broken(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> AgentMemory:
    """A memory whose storage fails: its root is below a file on disk or in a missing bucket."""
    if name == "local":
        (tmp_path / "file").touch()
        return AgentMemory.open(tmp_path / "file" / "repository")
    server: S3Server = request.getfixturevalue(name)
    return AgentMemory.open("s3://no-such-bucket/repository", storage_options=server.options)


@pytest.mark.parametrize("name", [name for name in ROOTS if name != "memory"])
def test_a_storage_failure_in_a_create_raises_a_write_error(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with broken(name, tmp_path, request) as memory, pytest.raises(WriteError) as failed:
        FileSystemManager(memory).handle_create("a.md", "x")
    assert failed.value.__cause__ is not None
    assert str(tmp_path) not in str(failed.value)


@pytest.mark.parametrize("name", [name for name in ROOTS if name != "memory"])
def test_a_storage_failure_in_an_append_raises_an_append_error(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with broken(name, tmp_path, request) as memory, pytest.raises(AppendError) as failed:
        FileSystemManager(memory).handle_append("a.md", "x")
    assert failed.value.__cause__ is not None
    assert str(tmp_path) not in str(failed.value)


atomic = pytest.mark.parametrize("root", ATOMIC, indirect=True)


@atomic
def test_exactly_one_racing_creator_wins(memory: AgentMemory) -> None:
    manager = FileSystemManager(memory)
    outcomes = race([partial(manager.handle_create, "claim.md", f"{number}") for number in range(8)])
    won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, WriteResult)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, FileAlreadyExistsError)]
    assert (len(won), len(lost)) == (1, 7)
    assert memory.read("claim.md") == f"{won[0]}"


@atomic
def test_no_concurrent_append_is_lost_or_split(memory: AgentMemory) -> None:
    manager = FileSystemManager(memory)
    manager.handle_create("log.md", "log")
    race([partial(manager.handle_append, "log.md", f"block {number}") for number in range(8)])
    first, *blocks = memory.read("log.md").split("\n\n")
    assert (first, sorted(blocks)) == ("log", [f"block {number}" for number in range(8)])


@atomic
def test_an_append_never_restores_a_concurrently_deleted_file(memory: AgentMemory) -> None:
    manager = FileSystemManager(memory)
    for _ in range(10):
        manager.handle_create("a.md", "x")
        _, deleted = race([partial(manager.handle_append, "a.md", "y"), partial(memory.delete, "a.md")])
        assert deleted is None
        assert everything(memory) == {}


def test_each_error_is_an_agent_memory_error_and_a_builtin_error() -> None:
    for error, builtin in [
        (PathTraversalError, ValueError),
        (FileAlreadyExistsError, FileExistsError),
        (AgentMemoryFileNotFoundError, FileNotFoundError),
        (WriteError, OSError),
        (AppendError, OSError),
    ]:
        assert issubclass(error, AgentMemoryError)
        assert issubclass(error, builtin)


@pytest.mark.parametrize("manager_class", [FileSystemManager, AsyncFileSystemManager])
def test_a_manager_of_a_repository_writes_only_within_it(tmp_path: Path, manager_class: Any) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "up").symlink_to(tmp_path)
    manager = manager_class.for_repository(tmp_path / "repository")
    if manager_class is AsyncFileSystemManager:
        manager = Awaited(manager)
    manager.handle_create("docs/a.md", "x")
    assert (tmp_path / "repository" / "docs" / "a.md").read_text() == "x"
    for path in ("up/a.md", "../a.md", "up/repository/.git/a.md"):
        with pytest.raises(InvalidPathError):
            manager.handle_create(path, "x")
    assert list(tmp_path.rglob("a.md")) == [tmp_path / "repository" / "docs" / "a.md"]
