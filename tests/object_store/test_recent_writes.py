"""What a process knows of the files it wrote last is what is there, as far as its own writes can tell."""

from __future__ import annotations

from typing import cast

import pytest

from agent_memory.object_store.conditional_write import State, Write
from agent_memory.object_store.recent_writes import MOST_BYTES, RecentWrites
from agent_memory.object_store.write_log import WriteLog

NAME = "prefix/log.md"
STATE = State('"etag"', WriteLog.new(0.0))


class AWrite:
    """Told from others by what it is."""


def a_write() -> Write:
    return cast(Write, AWrite())


def test_what_a_write_left_is_known_to_the_next_one() -> None:
    kept, write = RecentWrites(), a_write()
    assert kept.begin(NAME, write) is None
    kept.keep(NAME, STATE, write)
    assert kept.begin(NAME, a_write()) is STATE


@pytest.mark.parametrize(("ends", "known"), [((0, 1), True), ((1, 0), False)])
def test_of_writes_that_did_not_wait_for_each_other_only_the_last_in_everything_is_known(
    ends: tuple[int, int], known: bool
) -> None:
    kept, writes = RecentWrites(), (a_write(), a_write())
    for write in writes:
        kept.begin(NAME, write)
    for number in ends:
        kept.keep(NAME, STATE, writes[number])
    assert (kept.begin(NAME, a_write()) is STATE) == known


def test_nothing_is_known_of_a_file_that_was_erased_while_it_was_written() -> None:
    kept, write = RecentWrites(), a_write()
    kept.begin(NAME, write)
    kept.forget_all("prefix", "prefix/")
    kept.keep(NAME, STATE, write)
    assert kept.begin(NAME, a_write()) is None


def test_what_is_known_is_bounded_and_the_longest_unused_goes_first() -> None:
    kept, large, write = RecentWrites(), STATE._replace(data=bytes(MOST_BYTES // 4)), a_write()
    for name in "abcd":
        kept.begin(name, write)
        kept.keep(name, large, write)
    assert [kept.begin(name, write) is large for name in "abcd"] == [False, True, True, True]
