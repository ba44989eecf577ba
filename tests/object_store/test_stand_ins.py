"""The stand-ins behave as their names say, seen by a plain client."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.servers import S3Server
from tests.support.sizes import also

StandIn = Callable[[str], S3Server]
_RACERS = 4


def refused(call: Callable[[], object]) -> int:
    """The status of a refusal, 0 if there was none."""
    try:
        call()
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return 0


def raced(call: Callable[[int], object]) -> list[int]:
    """The statuses of refusals of several calls at once, 0 for each that was made."""
    start = Barrier(_RACERS)

    def run(number: int) -> int:
        start.wait()
        return refused(lambda: call(number))

    with ThreadPoolExecutor(_RACERS) as pool:
        return list(pool.map(run, range(_RACERS)))


def put(s3: Any, name: str, **condition: str) -> str:
    return str(s3.put_object(Bucket="memories", Key=name, Body=name.encode(), **condition)["ETag"])


@pytest.mark.parametrize("name", ["create in two steps", "one write a second", *also(["conditions in two steps"])])
def test_creates_that_race(stand_in: StandIn, name: str) -> None:
    server = stand_in(name)
    with closing(server.client("s3", retries=0)) as s3:
        key = server.new_url().removeprefix("s3://memories/")
        ends = raced(lambda _: put(s3, key, IfNoneMatch="*"))
        assert (ends.count(0) > 1) is ("in two steps" in name), ends
        assert (429 in ends) is (name == "one write a second"), ends
        if "in two steps" in name:
            assert refused(lambda: put(s3, key, IfNoneMatch="*")) == 412


@pytest.mark.parametrize("name", ["swap in two steps", "create in two steps", *also(["conditions in two steps"])])
def test_swaps_that_race(stand_in: StandIn, name: str) -> None:
    server = stand_in(name)
    with closing(server.client("s3", retries=0)) as s3:
        key = server.new_url().removeprefix("s3://memories/")
        etag = put(s3, key)

        def swap(number: int) -> object:
            return s3.put_object(Bucket="memories", Key=key, Body=str(number).encode(), IfMatch=etag)

        assert (raced(swap).count(0) > 1) is (name != "create in two steps")
        assert refused(lambda: swap(9)) == 412


@pytest.mark.parametrize("name", ["conditions in two steps", "create in two steps", *also(["delete in two steps"])])
def test_a_delete_that_races_with_a_put(stand_in: StandIn, name: str) -> None:
    server = stand_in(name)
    both = 0
    with closing(server.client("s3", retries=0)) as s3:
        for _ in range(5):
            key = server.new_url().removeprefix("s3://memories/")
            etag = put(s3, key)

            def change(number: int, key: str = key, etag: str = etag) -> object:
                if number:
                    return s3.put_object(Bucket="memories", Key=key, Body=str(number).encode(), IfMatch=etag)
                return s3.delete_object(Bucket="memories", Key=key, IfMatch=etag)

            delete, *puts = raced(change)
            both += delete == 0 and 0 in puts
    assert bool(both) is (name != "create in two steps")


def test_a_missing_key_meets_any_etag(stand_in: StandIn) -> None:
    server = stand_in("If-Match ignored on a missing key")
    with closing(server.client("s3", retries=0)) as s3:
        key = server.new_url().removeprefix("s3://memories/")
        former = put(s3, key)
        assert refused(lambda: put(s3, key, IfMatch='"0"')) == 412
        s3.delete_object(Bucket="memories", Key=key)
        assert put(s3, key, IfMatch=former) == former


def test_a_listing_of_versions_is_a_plain_listing(stand_in: StandIn) -> None:
    server = stand_in("versions ignored")
    with closing(server.client("s3", retries=0)) as s3:
        key = server.new_url().removeprefix("s3://memories/")
        put(s3, key)
        assert not s3.list_object_versions(Bucket="memories", Prefix=key).get("Versions")
