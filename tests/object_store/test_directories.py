"""The cache of a bucket's directories in one process."""

from __future__ import annotations

from contextlib import closing

from agent_memory import AgentMemory
from agent_memory.object_store.directories import KnownDirectories
from tests.support.servers import S3Server, by_both_engines


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
