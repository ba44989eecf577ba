"""The cache of a bucket's directories in one process."""

from __future__ import annotations

from agent_memory.object_store.directories import KnownDirectories


def test_an_emptied_directory_leaves_the_cache_with_everything_below_it() -> None:
    known = KnownDirectories()
    for place in (("one", ""), ("one", "a"), ("one", "a/b"), ("one", "ab"), ("other", "a")):
        known.add_children(place, set())
    known.add_to_parents([("one", ""), ("one", "a"), ("one", "a/b")])
    assert known.children(("one", "")) == {"a"}
    assert known.children(("one", "a")) == {"b"}
    known.forget(("one", "a"))
    assert known.children(("one", "")) == set()
    assert ("one", "a/b") not in known
    assert known.children(("one", "ab")) == set()
    assert known.children(("other", "a")) == set()


def test_the_cache_keeps_only_the_most_recently_used_directories() -> None:
    known = KnownDirectories()
    known.add_children(("base", "used"), set())
    for number in range(2_000):
        known.add(("base", f"{number}"))
        known.children(("base", "used"))
    assert known.children(("base", "used")) == set()
    assert ("base", "0") not in known
    assert ("base", "1999") in known
