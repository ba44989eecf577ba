"""What a process knows of the directories in a bucket."""

from __future__ import annotations

from agent_memory.object_store.directories import KnownDirectories


def test_a_directory_emptied_is_forgotten_with_all_that_was_below() -> None:
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


def test_only_the_last_used_are_remembered() -> None:
    known = KnownDirectories()
    known.add_children(("base", "used"), set())
    for number in range(2_000):
        known.add(("base", f"{number}"))
        known.children(("base", "used"))
    assert known.children(("base", "used")) == set()
    assert ("base", "0") not in known
    assert ("base", "1999") in known
