"""What one file cannot do stops no call over many files: the file is left out, counted and named."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, FileOperationError, OperationDenied, ReadError
from agent_memory.backend import ANY, ReadWhen, Snapshot
from agent_memory.core.one_file import fails_alone
from agent_memory.hookspecs import Operation, hookimpl
from agent_memory.integrations.toolkit import known_text, read_each, record_segment, step, sync_view
from agent_memory.key import Key
from agent_memory.tools import AsyncMemorySearch, MemorySearch, MemoryTool
from agent_memory.tools._toolset import Toolset
from agent_memory_memory import MemoryBackend
from tests.support.bad_files import BINARY, GOOD, LARGE, LOCKED, WORD, make_bad_files, unprivileged_directory


@pytest.fixture
def tree() -> Iterator[Path]:
    with unprivileged_directory() as path:
        make_bad_files(path)
        yield path


def test_a_search_finds_the_others_and_names_the_files(tree: Path) -> None:
    result = MemorySearch(AgentMemory.open(tree)).search(WORD)
    assert [match.path for match in result.matches] == [GOOD[0], BINARY, GOOD[1]]
    assert [each.path for each in result.left_out] == sorted([LARGE, *LOCKED])
    assert result.left_out[0].reason == "1 line of more than 16,777,216 bytes"
    assert {each.reason for each in result.left_out[1:]} == {"the storage failed: Permission denied"}

    async def search() -> tuple[object, ...]:
        found = await AsyncMemorySearch(AsyncAgentMemory.open(tree)).search(WORD)
        return found.matches, found.left_out

    assert asyncio.run(search()) == (result.matches, result.left_out)


def test_a_model_is_told_which_files_were_left_out(tree: Path) -> None:
    memory = AgentMemory.open(tree)
    found = MemorySearch(memory).call({"query": WORD, "path": "locked"})
    assert found.output.splitlines() == [
        'No matches found for "needle".',
        "[Left out: locked/00.md: the storage failed: Permission denied]",
        "[Left out: locked/01.md: the storage failed: Permission denied]",
        "[Left out: locked/02.md: the storage failed: Permission denied]",
        "[Left out: 22 more files]",
    ]
    assert found.data is not None
    assert (found.is_error, found.data["left_out_count"]) == (False, 25)
    named = asyncio.run(Toolset(memory.as_async()).call("search", {"query": WORD}))
    assert "/memories/a.md:1: needle a.md" in named.output
    assert "[Left out: /memories/locked/00.md: the storage failed: Permission denied]" in named.output
    assert named.output.endswith("[Left out: 23 more files]")


def test_a_search_of_one_file_that_cannot_be_read_is_an_error(tree: Path) -> None:
    with pytest.raises(ReadError, match="Permission denied"):
        MemorySearch(AgentMemory.open(tree)).search(WORD, LOCKED[0])


def test_a_directory_is_listed_and_viewed(tree: Path) -> None:
    memory = AgentMemory.open(tree)
    assert [entry.path for entry in memory.list()] == sorted([*GOOD, *LOCKED, LARGE, BINARY])
    view = MemoryTool(memory).call({"command": "view", "path": "/memories"})
    assert not view.is_error
    assert "/memories/z.md" in view.output


def test_adapters_read_the_others(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = sync_view(AgentMemory.open(tree))
    files = step(read_each(memory, [*GOOD, "missing.md", *LOCKED, LARGE, "link.md"]))
    assert [*files] == [*GOOD]
    (warning,) = [record for record in caplog.records if "left out" in record.getMessage()]
    assert warning.getMessage().startswith(f"27 files could not be read and are left out; one is {LARGE}: ")


def test_a_file_that_a_guard_refuses_is_left_out() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.path == "b.md" and operation.kind == "read":
                raise OperationDenied("not this one")

    memory = AgentMemory.open("memory://", plugins=[Guard()])
    for name in ("a.md", "b.md", "c.md"):
        memory.write(name, WORD)
    result = MemorySearch(memory).search(WORD)
    assert [match.path for match in result.matches] == ["a.md", "c.md"]
    assert [tuple(each) for each in result.left_out] == [("b.md", "not this one")]


class Down(MemoryBackend):
    """A storage that fails to read the files of a tree, after its listing."""

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        if key.is_internal:
            return super().read(key, start, end, when)
        raise ReadError("the storage failed: Connection reset by peer", path=key.path) from ConnectionResetError()


def test_a_failure_of_the_storage_stops_the_call() -> None:
    memory = AgentMemory.open(Down())
    memory.write("a.md", WORD)
    with pytest.raises(FileOperationError):
        MemorySearch(memory).search(WORD)
    with pytest.raises(FileOperationError):
        step(read_each(sync_view(memory), ["a.md"]))


def test_a_text_of_a_segment_that_cannot_be_read_is_left_out(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = AgentMemory.open(tree)
    segment = step(record_segment(sync_view(memory), "x" * 500))
    assert step(known_text(sync_view(memory), segment)) == "x" * 500
    next((tree / ".texts").iterdir()).chmod(0)
    assert step(known_text(sync_view(memory), segment)) is None
    assert "Permission denied" in caplog.text


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EISDIR, errno.ELOOP])
def test_an_error_of_one_file_is_told_from_one_of_the_storage(number: int) -> None:
    assert fails_alone(OSError(number, ""))
    for other in (TimeoutError(), ConnectionRefusedError(), OSError(errno.ENOSPC, ""), OSError(errno.ESTALE, "")):
        assert not fails_alone(other)
