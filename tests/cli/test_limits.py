"""doctor tells what a store cannot do although it keeps its promises."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from aiohttp import web
from click.testing import Result

from agent_memory.backend import AnyBackend
from agent_memory.cli.store_facts import limits
from agent_memory.key import Key
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server

TOP = Key.internal("doctor/limits")
RATE = "writes a second"


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def backend(proxy: Proxy, ministack: S3Server) -> Iterator[AnyBackend]:
    opened = open_backend(ministack.new_url(), ministack.through(proxy))
    yield opened
    close_backend(opened)


def lasting(backend: AnyBackend) -> list[str]:
    """The limits without the rate, which a busy machine may show too."""
    return [each for each in limits(backend, TOP) if RATE not in each]


def test_a_store_without_limits_has_none(backend: AnyBackend) -> None:
    assert lasting(backend) == []
    assert limits(open_backend("memory://no-limits"), TOP) == []


def test_a_server_that_lists_no_versions_cannot_forget(backend: AnyBackend, proxy: Proxy) -> None:
    proxy.ignores = {"versions"}
    (limit,) = lasting(backend)
    assert limit.startswith("forget does not work: the server lists no version of an existing file")


def test_a_server_without_versions_is_told(backend: AnyBackend, proxy: Proxy) -> None:
    def refuse(request: web.Request) -> web.Response | None:
        known = {"versions", "versioning"}.isdisjoint(request.query)
        return None if known else web.Response(status=501, text="<Error><Code>NotImplemented</Code></Error>")

    proxy.instead = refuse
    assert lasting(backend) == [
        "the server has no versions: forget and redact delete plainly and look for no earlier versions"
    ]


def test_a_server_that_copies_no_parts_takes_no_appends_to_large_files(backend: AnyBackend, proxy: Proxy) -> None:
    proxy.treatments = {"copy": "ignored"}
    (limit,) = lasting(backend)
    assert limit.startswith("a file over 50,000,000 bytes takes no appends: ")


def test_a_server_that_allows_one_write_a_second_is_told(backend: AnyBackend, proxy: Proxy) -> None:
    last: dict[str, float] = {}

    def once_a_second(request: web.Request) -> web.Response | None:
        if request.method != "PUT":
            return None
        now = time.monotonic()
        if now - last.get(request.path, -1.0) < 1:
            return web.Response(status=429, text="<Error><Code>TooManyRequests</Code></Error>")
        last[request.path] = now
        return None

    proxy.instead = once_a_second
    assert any(RATE in each for each in limits(backend, TOP))


def test_the_limits_of_obstore_are_told(ministack: S3Server) -> None:
    server = ministack.by("obstore")
    forget, appends = lasting(open_backend(server.new_url(), server.options))
    assert forget == "forget does not work: this store cannot list the versions that it keeps"
    assert "takes no appends" in appends


def test_doctor_prints_each_limit(run: Callable[..., Result], proxy: Proxy, ministack: S3Server) -> None:
    proxy.ignores = {"versions"}
    given = [f"-o{name}={value}" for name, value in ministack.through(proxy).items()]
    store = ("--url", ministack.new_url(), *given)
    document = json.loads(run(*store, "--json", "doctor", "--rounds", "1").stdout)
    assert document["healthy"]
    assert document["limits"][0].startswith("forget does not work")
    assert "Limit: forget does not work: " in run(*store, "doctor", "--rounds", "1").stdout
