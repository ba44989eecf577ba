"""Files are read in ranges, in bounded memory, and always from one version."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    ConflictError,
)
from agent_memory.filesystem import filesystem
from tests.filesystem.kit import BIG, FileSystem, Recorder


def test_a_range_read_equals_a_slice(fs: FileSystem) -> None:
    fs.pipe({"a": b"12345", "empty": b""})
    for start, end in itertools.product([None, 0, 2, 5, 9, -2, -9], [None, 0, 3, 5, 9, -1, -9]):
        assert fs.cat_file("a", start, end) == b"12345"[start:end], (start, end)
    assert [fs.cat_file("empty", *bounds) for bounds in ((0, 1), (1, 2), (-1, None), (None, -1))] == [b""] * 4


@pytest.mark.parametrize("cache_type", ["all", "background", "blockcache", "bytes", "first", "none", "readahead"])
def test_each_cache_of_fsspec_works(scratch: FileSystem, cache_type: str) -> None:
    scratch.pipe_file("big", BIG)
    with scratch.open("big", block_size=50_000, cache_type=cache_type) as file:
        for start in (0, 10, 250_000, 590_000, 300_000):
            file.seek(start)
            assert file.read(20_000) == BIG[start : start + 20_000]


def test_a_large_file_is_read_in_ranges(fs: FileSystem, recorder: Recorder) -> None:
    fs.pipe_file("big", BIG)
    recorder.kinds.clear()
    with fs.open("big", "rb", block_size=50_000) as file:
        parts = list(iter(lambda: file.read(30_000), b""))
        file.seek(-10, 2)
        assert (file.read(), file.tell(), file.size) == (BIG[-10:], len(BIG), len(BIG))
        file.seek(300_000)
        assert file.readline() == BIG[300_000 : BIG.index(b"\n", 300_000) + 1]
    assert b"".join(parts) == BIG
    assert set(recorder.kinds) == {"read"}
    assert 5 < len(recorder.kinds) < 15
    assert fs.tail("big", 20) == BIG[-20:]
    assert fs.read_block("big", 262_100, 100) == BIG[262_100:262_200]


def test_a_whole_read_has_no_limit_and_a_read_in_blocks_bounds_memory(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory._tree.backend.max_bytes = 9_000_000
        for _ in range(4):
            memory.append("big", bytes(8_000_000))
        fs = filesystem(memory)
        with fs.open("big", block_size=1_000_000) as file:
            tracemalloc.start()
            try:
                while file.read(500_000):
                    pass
                assert tracemalloc.get_traced_memory()[1] < 6_000_000
            finally:
                tracemalloc.stop()
        assert len(fs.open("big").read()) == 32_000_000


CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "as long": lambda memory: memory.write("big", BIG[::-1]),
    "one byte": lambda memory: memory.write("big", BIG[:300_000] + bytes([BIG[300_000] ^ 1]) + BIG[300_001:]),
    "longer": lambda memory: memory.write("big", BIG[:300_000] + b"inserted" + BIG[300_000:]),
    "shorter": lambda memory: memory.write("big", BIG[:-1]),
    "empty": lambda memory: memory.write("big", b""),
    "gone": lambda memory: memory.delete("big"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_rewrite_during_a_read_is_a_conflict(memory: AgentMemory, change: str) -> None:
    memory.write("big", BIG)
    with filesystem(memory).open("big", block_size=50_000) as file:
        assert file.read(10) == BIG[:10]
        CHANGES[change](memory)
        with pytest.raises(ConflictError, match="while it was read"):
            file.read()


def test_an_append_during_a_read_does_not_change_the_result(memory: AgentMemory) -> None:
    memory.write("big", BIG)
    with filesystem(memory).open("big", block_size=50_000) as file:
        parts = [file.read(10)]
        while part := file.read(100_000):
            memory.append("big", "more")
            parts.append(part)
    assert b"".join(parts) == BIG
