"""The cache of recent writes: it matches the stored files, as far as the process's own writes can tell."""

from __future__ import annotations

import tracemalloc
from typing import cast

import pytest

from agent_memory.object_store.conditional_write import Write
from agent_memory.object_store.states import MOST_BYTES, RecentWrites, State
from agent_memory.object_store.write_log import WriteLog, Writer

NAME = "prefix/log.md"
STATE = State('"etag"', WriteLog.new(0.0))


class AWrite:
    """A stand-in for a write, compared by identity."""


def a_write() -> Write:
    return cast(Write, AWrite())


def test_the_next_write_knows_the_state_of_the_last_one() -> None:
    kept, write = RecentWrites(), a_write()
    assert kept.begin(NAME, write) is None
    kept.keep(NAME, STATE, write)
    assert kept.begin(NAME, a_write()) is STATE


@pytest.mark.parametrize(("ends", "known"), [((0, 1), True), ((1, 0), False)])
def test_overlapping_writes_are_kept_only_if_they_ended_in_the_order_they_began(
    ends: tuple[int, int], known: bool
) -> None:
    kept, writes = RecentWrites(), (a_write(), a_write())
    for write in writes:
        kept.begin(NAME, write)
    for number in ends:
        kept.keep(NAME, STATE, writes[number])
    assert (kept.begin(NAME, a_write()) is STATE) == known


def test_a_file_erased_during_its_write_is_not_kept() -> None:
    kept, write = RecentWrites(), a_write()
    kept.begin(NAME, write)
    kept.forget_all("prefix", "prefix/")
    kept.keep(NAME, STATE, write)
    assert kept.begin(NAME, a_write()) is None


def test_the_cache_is_bounded_and_drops_the_least_recently_used_write() -> None:
    kept, large, write = RecentWrites(), STATE._replace(data=bytes(MOST_BYTES // 4)), a_write()
    for name in "abcd":
        kept.begin(name, write)
        kept.keep(name, large, write)
    assert [kept.begin(name, write) is large for name in "abcd"] == [False, True, True, True]


@pytest.mark.parametrize(("records", "data"), [(1, 0), (30, 0), (1, 20_000)])
def test_the_cache_uses_the_memory_that_it_counts(records: int, data: int) -> None:
    kept, write, writer = RecentWrites(), a_write(), Writer()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2 * MOST_BYTES // (900 + 270 * records + data)):
            log = WriteLog.new(0.0, tuple(writer.new_record(1e9) for _ in range(records)))
            kept.begin(name := f"prefix/{number}/notes.md", write)
            kept.keep(name, State(f'"{number:032x}"', log, bytes(data), modified=1e9 + number), write)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.7 * MOST_BYTES < used < 1.2 * MOST_BYTES
