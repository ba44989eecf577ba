"""The stores of one process share the trial of a server, for an hour."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from agent_memory import AgentMemory, UnsupportedOperationError
from agent_memory.object_store.trial import race
from agent_memory.object_store.trial.results import REMEMBERED_SECONDS
from tests.object_store.proxy import Proxy
from tests.object_store.test_race import StandIn
from tests.support import sizes
from tests.support.servers import S3Server, by_both_engines, by_s3fs_or_both


def puts(proxy: Proxy, server: S3Server, engine: str, bucket: str = "memories") -> int:
    """The PUT requests of a new store that appends once."""
    url = server.new_url().replace("memories", bucket, 1)
    with (
        proxy.counting() as requests,
        AgentMemory.open(url, storage_options=server.by(engine).through(proxy)) as memory,
    ):
        memory.append("a.md", "x")
    return Counter(requests)["PUT"]


@by_s3fs_or_both
def test_the_stores_of_one_server_bucket_and_engine_share_a_trial(
    engine: str, ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ministack.make_bucket(other := f"other-{engine}")
    now = time.time
    if not sizes.is_long:
        monkeypatch.setattr(race, "OBJECTS", 1)
        monkeypatch.setattr(race, "PASSES", 1)
    with Proxy(ministack.endpoint) as proxy, Proxy(ministack.endpoint) as elsewhere:
        tried = puts(proxy, ministack, engine)
        assert tried > 10
        assert puts(proxy, ministack, engine) == 1
        assert puts(elsewhere, ministack, engine) == tried
        assert puts(proxy, ministack, engine, other) == tried
        assert puts(proxy, ministack, "obstore" if engine == "s3fs" else "s3fs") > 10
        assert puts(proxy, ministack, engine) == 1
        monkeypatch.setattr("time.time", lambda: now() + REMEMBERED_SECONDS)
        assert puts(proxy, ministack, engine) == tried


@pytest.mark.long
@by_both_engines
def test_what_a_server_does_not_keep_is_remembered_too(engine: str, stand_in: StandIn) -> None:
    server = stand_in("create in two steps").by(engine)
    for _ in range(2):
        with (
            AgentMemory.open(server.new_url(), storage_options=server.options) as memory,
            pytest.raises(UnsupportedOperationError, match="not in a race"),
        ):
            memory.create("a.md", "x")
