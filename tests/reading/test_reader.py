"""A reader reads one etag of a file in ranges: a concurrent append is allowed, a rewrite is a conflict."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError, AsyncAgentMemory, ConflictError, InvalidPathError
from agent_memory.reading.reader import Reader
from agent_memory.testing import RecordingPlugin
from tests.support.servers import Root

DATA = random.Random(1).randbytes(10_000)
REWRITES = {
    "as long": DATA[::-1],
    "longer": DATA[::-1] * 2,
    "shorter": DATA[5000:],
    "cut": DATA[:5000],
    "empty": b"",
}


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.write("a", DATA)
        yield memory


@pytest.fixture
def other(root: Root) -> Iterator[AgentMemory]:
    """Another client of the same store."""
    with AgentMemory.open(root.url, storage_options=root.options) as other:
        yield other


def test_a_reader_reads_ranges(memory: AgentMemory) -> None:
    async def work(reader: Reader) -> list[bytes]:
        assert reader.size == 0
        assert (await reader.read(100, 101), reader.size) == (DATA[100:101], len(DATA))
        return [await reader.read(start, end) for start, end in [(0, 10), (5000, 5010), (3, 4), (0, len(DATA))]]

    async def past_the_end(reader: Reader) -> list[bytes]:
        size = len(DATA)
        return [await reader.read(start, size + 100) for start in (size - 5, size - 1, size, size + 5)]

    assert memory.scan("a", work) == [DATA[:10], DATA[5000:5010], DATA[3:4], DATA]
    assert memory.scan("a", past_the_end) == [DATA[-5:], DATA[-1:], b"", b""]


def test_a_reader_can_begin_with_the_tail(memory: AgentMemory) -> None:
    for size in (1, 1000, len(DATA), 2 * len(DATA)):

        async def work(reader: Reader, size: int = size) -> tuple[bytes, int, bytes]:
            return await reader.read_tail(size), reader.size, await reader.read(0, 10)

        assert memory.scan("a", work) == (DATA[-size:], len(DATA), DATA[:10])


def test_a_readers_version_changes_when_the_file_changes(memory: AgentMemory, other: AgentMemory) -> None:
    async def work(reader: Reader) -> list[bool]:
        first = reader.etag
        await reader.read(0, 10)
        second = reader.etag
        await reader.read(10, 20)
        third = reader.etag
        other.append("a", "more")
        await reader.read(10, 20)
        return [first is None, second == third, third == reader.etag]

    assert memory.scan("a", work) == [True, True, False]


def test_an_empty_file_is_read(memory: AgentMemory) -> None:
    memory.write("a", b"")

    async def from_the_beginning(reader: Reader) -> tuple[bytes, int, bytes]:
        return await reader.read(0, 10), reader.size, await reader.read(0, 10)

    async def from_the_end(reader: Reader) -> tuple[bytes, int, bytes]:
        return await reader.read_tail(10), reader.size, await reader.read(0, 10)

    assert memory.scan("a", from_the_beginning) == memory.scan("a", from_the_end) == (b"", 0, b"")


def test_the_first_read_of_a_missing_file_raises_not_found(memory: AgentMemory) -> None:
    async def tail(reader: Reader) -> bytes:
        return await reader.read_tail(1)

    memory.write("dir/file", "x")
    for name in ("missing", "dir", "a/b"):
        for work in (first_bytes, tail):
            with pytest.raises(AgentMemoryFileNotFoundError):
                memory.scan(name, work)


async def first_bytes(reader: Reader) -> bytes:
    return await reader.read(0, 10)


def meanwhile(change: Callable[[], object], *ranges: tuple[int, int]) -> Callable[[Reader], Awaitable[list[bytes]]]:
    """Read ranges, and call ``change`` after the first one."""

    async def work(reader: Reader) -> list[bytes]:
        read = [await reader.read(*ranges[0])]
        change()
        return read + [await reader.read(*more) for more in ranges[1:]]

    return work


def test_an_append_between_two_reads_does_not_change_the_result(memory: AgentMemory, other: AgentMemory) -> None:
    for first in [(0, 10), (4000, 9000), (0, len(DATA))]:
        memory.write("a", DATA)
        work = meanwhile(lambda: other.append("a", "more"), first, (7, 9), (5000, 20_000), first)
        assert memory.scan("a", work) == [DATA[slice(*first)], DATA[7:9], DATA[5000:], DATA[slice(*first)]]


def test_bytes_appended_between_two_reads_are_not_read(memory: AgentMemory, other: AgentMemory) -> None:
    async def work(reader: Reader) -> tuple[bytes, bytes, int]:
        tail = await reader.read_tail(10)
        other.append("a", "more")
        return tail, await reader.read(len(DATA) - 10, len(DATA) + 10), reader.size

    assert memory.scan("a", work) == (DATA[-10:], DATA[-10:], len(DATA))


def test_appends_between_all_reads_do_not_change_the_result(memory: AgentMemory, other: AgentMemory) -> None:
    async def work(reader: Reader) -> bytes:
        read = b""
        while data := await reader.read(len(read), len(read) + 3000):
            read += data
            other.append("a", "more")
        return read

    assert memory.scan("a", work) == DATA
    assert memory.read_bytes("a") == DATA + b"more" * 4


def test_appends_in_progress_do_not_look_like_a_rewrite(tmp_path: Path) -> None:
    barrier, ended = threading.Barrier(2), threading.Event()

    async def work(reader: Reader) -> bytes:
        return b"".join([await reader.read(at, at + 1000) for at in range(0, len(DATA), 1000)])

    def append() -> None:
        with AgentMemory.open(tmp_path) as other:
            barrier.wait()
            while not ended.is_set():
                other.append("a", DATA * 2)

    with AgentMemory.open(tmp_path) as memory:
        memory.write("a", DATA)
        thread = threading.Thread(target=append)
        thread.start()
        try:
            barrier.wait()
            assert {memory.scan("a", work) == DATA for _ in range(200)} == {True}
        finally:
            ended.set()
            thread.join()


def test_a_rewrite_between_two_reads_is_a_conflict(memory: AgentMemory, other: AgentMemory) -> None:
    for kind, new in REWRITES.items():
        memory.write("a", DATA)
        work = meanwhile(partial(other.write, "a", new), (2000, 4000), (6000, 8000))
        with pytest.raises(ConflictError, match="'a': the file was rewritten while it was read"):
            pytest.fail(f"{kind}: {memory.scan('a', work)!r}")


def test_a_rewrite_after_an_append_is_a_conflict(memory: AgentMemory, other: AgentMemory) -> None:
    async def work(reader: Reader) -> None:
        await reader.read(2000, 4000)
        other.append("a", "more")
        await reader.read(2000, 4000)
        other.write("a", DATA[::-1] * 2)
        await reader.read(2000, 4000)

    with pytest.raises(ConflictError):
        memory.scan("a", work)


def test_a_file_deleted_between_two_reads_raises_not_found(memory: AgentMemory, other: AgentMemory) -> None:
    with pytest.raises(AgentMemoryFileNotFoundError):
        memory.scan("a", meanwhile(lambda: other.delete("a"), (0, 10), (10, 20)))


def test_a_scan_is_reported_to_the_hooks_once(root: Root, other: AgentMemory) -> None:
    other.write("a", DATA)
    recorder = RecordingPlugin()
    work = meanwhile(lambda: other.append("a", "more"), (0, 10), (10, 20), (20, 30))
    with AgentMemory.open(root.url, storage_options=root.options, plugins=[recorder]) as watched:
        assert watched.scan("a", work) == [DATA[:10], DATA[10:20], DATA[20:30]]
    ((operation, outcome),) = recorder.after
    assert recorder.before == [operation]
    assert (operation.kind, operation.path) == ("read", "a")
    assert (outcome.status, outcome.size) == ("ok", len(DATA))


def test_a_failed_scan_is_reported_to_the_hooks_once() -> None:
    async def work(reader: Reader) -> None:
        await reader.read(0, 10)
        raise ValueError("what was read is wrong")

    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.write("a", DATA)
    with pytest.raises(ValueError, match="what was read is wrong"):
        memory.scan("a", work)
    assert [(outcome.status, outcome.error) for _, outcome in recorder.after[1:]] == [("error", "ValueError")]
    assert len(recorder.before) == 2


def test_an_invalid_name_is_refused_before_any_read() -> None:
    read: list[Reader] = []

    async def work(reader: Reader) -> None:
        read.append(reader)

    with pytest.raises(InvalidPathError):
        AgentMemory.open("memory://").scan("../a", work)
    assert not read


def test_a_read_only_view_can_scan(memory: AgentMemory) -> None:
    assert memory.read_only().scan("a", first_bytes) == DATA[:10]


def test_an_async_scan_survives_an_append_and_refuses_a_rewrite(root: Root, other: AgentMemory) -> None:
    other.write("a", DATA)
    recorder = RecordingPlugin()

    async def scans() -> None:
        async with AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=[recorder]) as watched:
            appended = meanwhile(lambda: other.append("a", "more"), (0, 2000), (5000, 6000))
            assert await watched.scan("a", appended) == [DATA[:2000], DATA[5000:6000]]
            with pytest.raises(ConflictError):
                await watched.scan("a", meanwhile(lambda: other.write("a", DATA[::-1]), (0, 2000), (5000, 6000)))

    asyncio.run(scans())
    ended = [(operation.kind, outcome.status) for operation, outcome in recorder.after]
    assert ended == [("read", "ok"), ("read", "error")]


@pytest.mark.parametrize("longer_by", [1, 7, 5000])
@pytest.mark.parametrize("changed_at", [10, 3000, 7000, 9990])
def test_an_edit_that_makes_the_file_longer_is_not_mistaken_for_an_append(
    memory: AgentMemory, other: AgentMemory, changed_at: int, longer_by: int
) -> None:
    """The beginning, which was already read, is unchanged; the bytes after the insertion are at other offsets."""

    async def work(reader: Reader) -> None:
        assert await reader.read(0, 5) == DATA[:5]
        other.write("a", DATA[:changed_at] + b"+" * longer_by + DATA[changed_at:])
        await reader.read(5, len(DATA))

    with pytest.raises(ConflictError):
        memory.scan("a", work)
