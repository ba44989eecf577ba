"""The cache of a bucket's directories in one process."""

from __future__ import annotations

import tracemalloc
from contextlib import closing

import pytest

from agent_memory import AgentMemory
from agent_memory.object_store import directories
from agent_memory.object_store.directories import KnownDirectories
from tests.support.servers import S3Server, by_both_engines


def test_an_emptied_directory_leaves_the_cache_with_everything_below_it() -> None:
    known = KnownDirectories()
    for place in (("one", ""), ("one", "a"), ("one", "a/b"), ("one", "ab"), ("other", "a")):
        known.add_children(place, set())
    assert known.children(("one", "")) == {"a", "ab"}
    assert known.children(("one", "a")) == {"b"}
    known.forget(("one", "a"))
    assert known.children(("one", "")) == {"ab"}
    assert ("one", "a/b") not in known
    assert known.children(("one", "ab")) == ()
    assert known.children(("other", "a")) == ()


def test_the_cache_keeps_65536_directories_in_32_mb() -> None:
    tracemalloc.start()
    try:
        known, before = KnownDirectories(), tracemalloc.get_traced_memory()[0]
        for agent in range(30_000):
            known.add_children((f"agent-{agent}", "notes/2026"), set())
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used < 35e6
    remembered = [known.children((f"agent-{agent}", "notes/2026")) is not None for agent in range(30_000)]
    assert 3 * sum(remembered) >= 65_536
    assert remembered[-65_536 // 3 :].count(False) == 0, "not the least recently used ones were dropped"


def test_the_cache_drops_the_least_recently_used_directory_before_those_above_it() -> None:
    known = KnownDirectories()
    for base in ("used", "unused"):
        known.add_children((base, "a/b"), set())
    for number in range(130_000):
        known.add(("base", f"{number}"))
        known.children(("used", "a/b"))
        assert ("unused", "a/b") not in known or ("unused", "a") in known
        assert ("unused", "a") not in known or ("unused", "") in known
    assert known.children(("used", "a/b")) is not None
    assert ("unused", "") not in known
    assert ("base", "0") not in known
    assert ("base", "129999") in known


def test_a_directory_with_very_many_subdirectories_is_listed_again_and_costs_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directories, "_MOST_NAMES", 1_000)
    monkeypatch.setattr(directories, "_MOST_BYTES", 1 << 18)
    known = KnownDirectories()
    known.add_children(("one", "sessions"), [])
    for number in range(3_000):
        assert known.children(("one", "sessions")) is not None or number >= 1_000
        known.add_children(("one", f"sessions/{number}"), [])
        assert ("one", f"sessions/{number}") in known
    assert known.children(("one", "sessions")) is None
    assert set(known.add_children(("one", "sessions"), ["kept"])) >= {"kept"}
    assert known.children(("one", "sessions")) is not None
    assert known._bytes <= 1 << 18


def test_a_directory_with_too_many_subdirectories_for_the_memory_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "_MOST_BYTES", 1 << 16)
    known = KnownDirectories()
    for number in range(3_000):
        known.add_children(("one", f"sessions/{number}"), [])
        assert ("one", f"sessions/{number}") in known
    known.add_children(("another", "x"), [])
    assert ("another", "x") in known


def test_a_directory_that_another_task_is_about_to_write_into_is_a_subdirectory() -> None:
    known = KnownDirectories()
    known.add_children(("one", "a/b"), [])
    assert set(known.add_children(("one", ""), ["c"])) == {"a", "c"}


@by_both_engines
def test_a_directory_exists_also_if_its_first_name_is_no_key(ministack: S3Server, engine: str) -> None:
    server, url = ministack.by(engine), ministack.new_url()
    prefix = url.removeprefix("s3://memories/")
    with AgentMemory.open(url, storage_options=server.options) as memory, closing(ministack.client("s3")) as s3:
        memory.write("d/kept.md", "x")
        # The names of scratch objects, with which other processes try the store.
        for name in ("d/.0.agent-memory-tmp", "d/.1.agent-memory-tmp", "only/.0.agent-memory-tmp"):
            s3.put_object(Bucket="memories", Key=f"{prefix}/{name}", Body=b"")
        assert memory.is_directory("d")
        assert not memory.is_directory("only")
