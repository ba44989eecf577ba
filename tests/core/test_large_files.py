"""Files that are too large for one call are written, copied and renamed completely or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import (
    ABSENT,
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
    Limits,
    Operation,
    OperationDenied,
    UnsupportedOperationError,
    hookimpl,
)
from agent_memory.backend import AnyBackend
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.reading.reader import Reader
from agent_memory.registry import open_backend
from agent_memory.testing import RecordingPlugin
from tests.support.servers import Root

PART = 6 << 20  # bytes; S3 accepts no part smaller than 5 MiB
DATA = b"".join(b"%015d\n" % number for number in range(2 * PART // 16)) + b"the end\n"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def backend(large_root: Root) -> AnyBackend:
    """An empty store whose calls carry at most 1,000,000 bytes."""
    found = open_backend(large_root.url, large_root.options)
    found.max_bytes, found.part_bytes = 1_000_000, PART
    return found


@pytest.fixture
def local(tmp_path: Path) -> AnyBackend:
    found = open_backend(str(tmp_path / "root"))
    found.max_bytes, found.part_bytes = 2000, 300
    return found


def blocks(data: bytes = DATA, size: int = 100_000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


async def digest(memory: AsyncAgentMemory, path: str) -> str:
    found = hashlib.sha256()

    async def read(reader: Reader) -> None:
        at = 0
        while data := await reader.read(at, at + 900_000):
            found.update(data)
            at += len(data)

    await memory.scan(path, read)
    return found.hexdigest()


def test_a_file_too_large_for_one_call_is_written_copied_and_renamed(backend: AnyBackend) -> None:
    with AgentMemory.open(backend) as memory:
        twin = memory.as_async()
        written = memory.write_blocks("d/large.bin", blocks(), len(DATA), when=ABSENT)
        assert (written.path, written.size, written.sha256) == ("d/large.bin", len(DATA), DIGEST)
        memory.copy("d/large.bin", "copied.bin")
        memory.rename("d/large.bin", "e/moved.bin")
        assert [(entry.path, entry.size) for entry in memory.list()] == [
            ("copied.bin", len(DATA)), ("e/moved.bin", len(DATA)),
        ]  # fmt: skip
        for path in ("copied.bin", "e/moved.bin"):
            assert asyncio.run(digest(twin, path)) == DIGEST
            with pytest.raises(FileAlreadyExistsError):
                memory.write_blocks(path, blocks(), len(DATA), when=ABSENT)
        with pytest.raises(FileAlreadyExistsError):
            memory.rename("copied.bin", "e/moved.bin")
        memory.write_blocks("copied.bin", blocks(DATA[:-1]), len(DATA) - 1)
        assert memory.stat("copied.bin").size == len(DATA) - 1


def test_async_callers_write_copy_and_rename_large_files(backend: AnyBackend) -> None:
    async def work() -> list[str]:
        async with AsyncAgentMemory.open(backend) as memory:
            await memory.write_blocks("large.bin", blocks(), len(DATA), when=ABSENT)
            await memory.copy("large.bin", "copied.bin")
            await memory.rename("large.bin", "moved.bin")
            return [await digest(memory, path) for path in ("copied.bin", "moved.bin")]

    assert asyncio.run(work()) == [DIGEST, DIGEST]


@pytest.mark.long
def test_a_directory_with_large_files_is_copied_and_renamed(local: AnyBackend) -> None:
    with AgentMemory.open(local) as memory:
        memory.write_blocks("d/large.bin", blocks(), len(DATA))
        memory.write("d/small.md", "x")
        assert memory.copy("d", "e").files == 2
        assert memory.rename("d", "f").files == 2
        assert [(entry.path, entry.size) for entry in memory.list()] == [
            ("e/large.bin", len(DATA)), ("e/small.md", 1), ("f/large.bin", len(DATA)), ("f/small.md", 1),
        ]  # fmt: skip


def test_a_service_renames_large_files(local: AnyBackend) -> None:
    with AgentMemoryService(local) as service:
        service.agent("bob").write_blocks("large.bin", blocks(), len(DATA))
        service.rename_memory_file("bob", "large.bin", "moved.bin")
        assert service.agent("bob").stat("moved.bin").size == len(DATA)


@pytest.mark.parametrize("content", [[b"short"], [b"x" * 5000], [b"x" * 4000, "text"]], ids=["short", "long", "text"])
def test_content_of_another_size_or_type_than_announced_is_not_written(local: AnyBackend, content: list[bytes]) -> None:
    with AgentMemory.open(local) as memory:
        memory.write("a.md", "old")
        for size in (4500, 900):
            with pytest.raises(InvalidContentError):
                memory.write_blocks("a.md", content, size)
        assert memory.read("a.md") == "old"
        with pytest.raises(InvalidContentError):
            memory.write_blocks("new/a.md", content, 4500)
        with pytest.raises(InvalidContentError):
            memory.write_blocks("new/a.md", content, -1)
        assert [entry.path for entry in memory.list()] == ["a.md"]


def test_a_source_that_fails_leaves_no_file(local: AnyBackend, tmp_path: Path) -> None:
    def fails() -> Iterator[bytes]:
        yield b"x" * 2000
        raise OSError("the source is gone")

    with AgentMemory.open(local) as memory:
        with pytest.raises(OSError, match="the source is gone"):
            memory.write_blocks("d/a.md", fails(), 5000)
        assert memory.list() == ()
    assert not list((tmp_path / "root").rglob("*"))


def test_the_refusal_of_a_large_read_names_the_calls_that_work(backend: AnyBackend) -> None:
    with AgentMemory.open(backend) as memory:
        memory.write_blocks("large.bin", blocks(), len(DATA))
        with pytest.raises(FileTooLargeError, match=r"scan\(\), view and export can read large files"):
            memory.read("large.bin")


def test_a_backend_without_multipart_writes_refuses_a_large_file_with_a_clear_message(tmp_path: Path) -> None:
    backend = open_backend(f"simplecache::file://{tmp_path}/plain", {"allow_single_writer": True})
    backend.max_bytes = 1000
    with AgentMemory.open(backend) as memory:
        memory.write_blocks("a.md", [b"x" * 999], 999)
        with pytest.raises(UnsupportedOperationError, match=r"limit of 1,000 bytes .* cannot write a file in parts"):
            memory.write_blocks("b.md", [b"x" * 2500], 2500)
        assert [entry.path for entry in memory.list()] == ["a.md"]
        backend.max_bytes = 500
        for act in (memory.copy, memory.rename):
            with pytest.raises(UnsupportedOperationError, match=r"'a\.md': .* larger than the limit of 500 bytes"):
                act("a.md", "b.md")
        assert [entry.path for entry in memory.list()] == ["a.md"]


class CheckingPlugin:
    @hookimpl
    def agent_memory_check_content(self, operation: Operation, content: bytes) -> None: ...


@pytest.mark.parametrize("plugin", [RedactionPlugin(), CheckingPlugin()], ids=["filter", "guard"])
def test_a_plugin_that_must_see_content_refuses_content_too_large_to_pass(local: AnyBackend, plugin: object) -> None:
    with AgentMemory.open(local, plugins=[plugin]) as memory:
        with pytest.raises(OperationDenied, match=f"{type(plugin).__name__}' cannot be given the content"):
            memory.write_blocks("a.md", [b"x" * 2500], 2500)
        memory.write_blocks("a.md", [b"x" * 500], 500)  # has several parts, but fits in one call
        assert memory.read("a.md") == "x" * 500


def test_hooks_receive_a_large_file_once_with_its_size(local: AnyBackend) -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open(local, plugins=[recorder]) as memory:
        memory.write_blocks("a.md", [b"x" * 2500], 2500, when=ABSENT)
    (operation,) = recorder.before
    assert (operation.kind, operation.path, operation.size) == ("create", "a.md", 2500)
    assert (recorder.checked, recorder.sizes) == ([], [(operation, 2500)])
    assert recorder.outcome().size == 2500
    assert recorder.outcome().sha256 == hashlib.sha256(b"x" * 2500).hexdigest()


def test_limits_count_the_bytes_of_large_files(local: AnyBackend) -> None:
    with AgentMemory.open(local, limits=Limits(file_bytes=3000, agent_bytes=5000)) as memory:
        memory.write_blocks("a.md", [b"x" * 2900], 2900)
        with pytest.raises(OperationDenied, match="may have 3,000 bytes, and this one would have 3,100"):
            memory.append("a.md", "y" * 200)
        with pytest.raises(OperationDenied, match="may have 3,000 bytes, and this one would have 3,001"):
            memory.write_blocks("b.md", [b"x" * 3001], 3001)
        with pytest.raises(OperationDenied, match="may have 5,000 bytes and has 2,900; 2,400 more do not fit"):
            memory.write_blocks("b.md", [b"x" * 2400], 2400)
        with pytest.raises(OperationDenied, match="may have 5,000 bytes and has 2,900; 2,900 more do not fit"):
            memory.copy("a.md", "b.md")
        memory.rename("a.md", "b.md")
        with pytest.raises(OperationDenied, match="may have 3,000 bytes, and this one would have 3,100"):
            memory.append("b.md", "y" * 200)
