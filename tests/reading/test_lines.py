"""Lines are read whole, once and in order for any block size; lines that are too long to hold are skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.reading.lines import BLOCK, MAX_LINE, Lines, backwards, forwards
from agent_memory.reading.reader import Reader
from agent_memory_memory import MemoryBackend
from tests.support.sizes import examples

Walk = Callable[[Reader], AsyncIterator[Lines]]
LONG = b"long " * ((MAX_LINE + 2 * BLOCK) // 5)
walks: dict[str, Walk] = {"forwards": forwards, "backwards": backwards}
both_ways = pytest.mark.parametrize("walk", walks.values(), ids=walks)
blocks = st.integers(1, 20) | st.just(1000)
files = st.lists(st.sampled_from([b"", b"a", b"bb", b"\r", b"line", b"c" * 50, b"\0"]), max_size=15).map(b"\n".join)


def walked(data: bytes, walk: Walk) -> list[Lines]:
    async def work(reader: Reader) -> list[Lines]:
        return [lines async for lines in walk(reader)]

    with AgentMemory.open(MemoryBackend()) as memory:
        memory.append("file", "")
        for at in range(0, len(data), 40_000_000):
            memory.append("file", data[at : at + 40_000_000].decode())
        return memory.scan("file", work)


def assert_whole_lines(data: bytes, found: list[Lines], start: int, end: int) -> None:
    """Check that the pieces, in file order, hold every line between two offsets exactly once."""
    for piece in found:
        assert piece.data == data[piece.start : piece.end] != b""
        assert piece.start == 0 or data[piece.start - 1 : piece.start] == b"\n"
        assert piece.data.endswith(b"\n") or piece.end == len(data)
    assert [start, *(piece.end for piece in found)] == [*(piece.start for piece in found), end]


@examples(300)
@given(files, blocks)
@example(b"\n", 1)
@example(b"\n\n\n", 1)
@example(b"a\nb", 1)
@example(b"", 1)
def test_forwards_gives_every_line_once_and_in_order(data: bytes, block: int) -> None:
    found = walked(data, lambda reader: forwards(reader, block=block))
    assert_whole_lines(data, found, 0, len(data))


@examples(300)
@given(files, blocks)
@example(b"\n", 1)
@example(b"\n\n\n", 1)
@example(b"a\nb", 1)
@example(b"", 1)
def test_backwards_gives_every_line_once_and_the_last_line_first(data: bytes, block: int) -> None:
    found = walked(data, lambda reader: backwards(reader, block=block))
    assert_whole_lines(data, found[::-1], 0, len(data))


@examples(200)
@given(files, blocks, st.data())
def test_forwards_and_backwards_can_start_at_any_line(data: bytes, block: int, draw: st.DataObject) -> None:
    line = draw.draw(st.sampled_from([0, *(at + 1 for at, byte in enumerate(data) if byte == ord("\n"))]))
    after = walked(data, lambda reader: forwards(reader, line, block))
    before = walked(data, lambda reader: backwards(reader, line, block))
    assert_whole_lines(data, after, line, len(data))
    assert_whole_lines(data, before[::-1], 0, line)


def test_blocks_hold_as_many_lines_as_fit() -> None:
    data = b"12345678\n" * 100
    assert [len(piece.data) for piece in walked(data, lambda reader: forwards(reader, block=100))] == [99] * 9 + [9]
    assert [len(piece.data) for piece in walked(data, lambda reader: backwards(reader, block=100))] == [
        99,
        198,
        396,
        207,
    ]


@both_ways
@pytest.mark.parametrize(
    ("before", "after"), [(b"a\nb\n", b"\nc\nd"), (b"", b"\nc"), (b"a\n", b""), (b"a\n", b"\n"), (b"", b"")]
)
def test_a_line_too_long_to_hold_is_skipped_and_its_beginning_is_given(walk: Walk, before: bytes, after: bytes) -> None:
    found = sorted(walked(before + LONG + after, walk))
    (passed_over,) = (piece for piece in found if piece.too_long)
    assert passed_over.data == b""
    assert passed_over.start == len(before)
    assert passed_over.end == len(before) + len(LONG) + after.startswith(b"\n")
    assert LONG.startswith(passed_over.too_long)
    assert len(passed_over.too_long) <= BLOCK
    assert b"".join(piece.data for piece in found) == before + after.removeprefix(b"\n")


@both_ways
def test_each_line_too_long_to_hold_is_skipped_separately(walk: Walk) -> None:
    found = sorted(walked(b"\n".join([LONG, b"a", LONG, LONG]), walk))
    assert [piece.data or piece.too_long[:4] for piece in found] == [b"long", b"a\n", b"long", b"long"]


@both_ways
def test_a_line_of_the_maximum_length_is_held(walk: Walk) -> None:
    line = b"x" * MAX_LINE
    found = sorted(walked(b"a\n" + line + b"\nb", walk))
    assert b"".join(piece.data for piece in found) == b"a\n" + line + b"\nb"
    assert not any(piece.too_long for piece in found)


def test_lines_appended_during_the_read_are_not_read() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", "12345678\n" * 100)

    async def work(reader: Reader) -> bytes:
        found = b""
        async for piece in forwards(reader, block=100):
            memory.append("file", "more\n")
            found += piece.data
        return found

    assert memory.scan("file", work) == b"12345678\n" * 100
