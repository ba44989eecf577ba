"""The acceptance criteria of the memory service, on every backend.

They ask that reads, writes and appends give the documented results and errors, and that neither an invalid agent id
nor a path outside the agent's directory changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent_memory import (
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AgentNotFoundError,
    InvalidAgentIdError,
    InvalidPathError,
    PathTraversalError,
    WriteResult,
)
from tests.support.servers import Root

BAD_IDS = ["", ".", "..", "a/b", "../other", "a\\b", "/etc", "a b", "x" * 129, "nul", "é"]
ESCAPES = [
    "../other/notes.md",
    "a/../../notes.md",
    "..",
    "/etc/passwd",
    "C:\\notes.md",
    "..\\notes.md",
    "%2e%2e/notes.md",
    "%252e%252e%252fnotes.md",
    "..%2fnotes.md",
    "．．/notes.md",
    "~/notes.md",
]
Operation = Callable[[AgentMemoryService, str, str], object]
OPERATIONS: dict[str, Operation] = {
    "read": lambda service, agent, path: service.read_memory_file(agent, path),
    "write": lambda service, agent, path: service.write_memory_file(agent, path, "x"),
    "append": lambda service, agent, path: service.append_to_memory_file(agent, path, "x"),
    "create": lambda service, agent, path: service.create_memory_file(agent, path, "x"),
    "delete": lambda service, agent, path: service.delete_memory_file(agent, path),
    "rename": lambda service, agent, path: service.rename_memory_file(agent, path, "new.md"),
    "rename to": lambda service, agent, path: service.rename_memory_file(agent, "kept.md", path),
    "exists": lambda service, agent, path: service.memory_file_exists(agent, path),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@pytest.fixture
def service(root: Root) -> Iterator[AgentMemoryService]:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        yield service


def everything_stored(service: AgentMemoryService) -> dict[str, dict[str, bytes]]:
    return {
        agent: {str(entry): service.agent(agent).read_bytes(str(entry)) for entry in service.list_memory_files(agent)}
        for agent in service.agent_ids()
    }


def test_read_returns_the_content_of_an_existing_file(service: AgentMemoryService) -> None:
    service.write_memory_file("agent-1", "notes/today.md", "# Today\nGrüße, メモ\r\n")
    assert service.read_memory_file("agent-1", "notes/today.md") == "# Today\nGrüße, メモ\r\n"


def test_read_of_a_missing_file_raises_file_not_found(service: AgentMemoryService) -> None:
    service.write_memory_file("agent-1", "notes.md", "x")
    for agent, path in [("agent-1", "other.md"), ("agent-1", "notes.md/below"), ("agent-without-files", "notes.md")]:
        with pytest.raises(AgentMemoryFileNotFoundError, match="no such file"):
            service.read_memory_file(agent, path)
    assert service.agent_ids() == ("agent-1",), "reading created something"


@every_operation
def test_every_operation_refuses_an_invalid_agent_id(service: AgentMemoryService, operation: Operation) -> None:
    for bad in BAD_IDS:
        with pytest.raises(InvalidAgentIdError) as refused:
            operation(service, bad, "notes.md")
        assert isinstance(refused.value, AgentNotFoundError)
        assert service.agent(refused.value.suggestion)
    assert everything_stored(service) == {}


@every_operation
def test_every_operation_refuses_a_path_outside_the_agents_directory_and_changes_nothing(
    service: AgentMemoryService, operation: Operation
) -> None:
    service.write_memory_file("other", "notes.md", "secret")
    service.write_memory_file("agent-1", "kept.md", "kept")
    before = everything_stored(service)
    for path in ESCAPES:
        with pytest.raises(PathTraversalError) as refused:
            operation(service, "agent-1", path)
        assert isinstance(refused.value, InvalidPathError)
    assert everything_stored(service) == before


def test_write_creates_the_file_with_the_content_and_returns_a_success_status(service: AgentMemoryService) -> None:
    result = service.write_memory_file("agent-1", "deep/er/notes.md", "new")
    assert result == WriteResult("deep/er/notes.md", 3, SHA256_OF_NEW, result.etag)
    assert service.read_memory_file("agent-1", "deep/er/notes.md") == "new"


def test_write_overwrites_the_file_with_the_content_and_returns_a_success_status(service: AgentMemoryService) -> None:
    service.write_memory_file("agent-1", "notes.md", "a longer text that was here before")
    result = service.write_memory_file("agent-1", "notes.md", "new")
    assert result == WriteResult("notes.md", 3, SHA256_OF_NEW, result.etag)
    assert service.read_memory_file("agent-1", "notes.md") == "new"


def test_write_outside_the_agents_directory_writes_no_file(service: AgentMemoryService) -> None:
    for path in ESCAPES:
        with pytest.raises(PathTraversalError):
            service.write_memory_file("agent-1", path, "x")
    assert everything_stored(service) == {}


def test_append_adds_to_an_existing_file_and_returns_a_success_status(service: AgentMemoryService) -> None:
    service.write_memory_file("agent-1", "log.txt", "one\n")
    result = service.append_to_memory_file("agent-1", "log.txt", "new")
    assert result == WriteResult("log.txt", 7, SHA256_OF_NEW, result.etag)
    assert service.read_memory_file("agent-1", "log.txt") == "one\nnew"


def test_append_creates_a_file_that_does_not_exist_and_returns_a_success_status(service: AgentMemoryService) -> None:
    result = service.append_to_memory_file("agent-1", "a/log.txt", "new")
    assert result == WriteResult("a/log.txt", 3, SHA256_OF_NEW, result.etag)
    assert service.read_memory_file("agent-1", "a/log.txt") == "new"


def test_append_outside_the_agents_directory_modifies_and_creates_no_file(service: AgentMemoryService) -> None:
    service.write_memory_file("other", "notes.md", "secret")
    for path in ESCAPES:
        with pytest.raises(PathTraversalError):
            service.append_to_memory_file("agent-1", path, "x")
    assert everything_stored(service) == {"other": {"notes.md": b"secret"}}


SHA256_OF_NEW = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
