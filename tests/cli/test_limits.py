"""doctor tells what a store cannot do although it keeps its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from aiohttp import web
from click.testing import Result

from agent_memory.backend import AnyBackend
from agent_memory.cli.probes import limited_rate, limits
from agent_memory.key import Key
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from tests.object_store.proxy import Proxy
from tests.object_store.stand_ins import OneWriteASecond
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("quick_doctor")
TOP = Key.internal("doctor/limits")


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def backend(proxy: Proxy, ministack: S3Server) -> Iterator[AnyBackend]:
    opened = open_backend(ministack.new_url(), ministack.through(proxy))
    yield opened
    close_backend(opened)


def test_a_store_without_limits_has_none(backend: AnyBackend) -> None:
    assert limits(backend, TOP) == []
    assert limits(open_backend("memory://no-limits"), TOP) == []


def test_a_server_that_lists_no_versions_cannot_forget(backend: AnyBackend, proxy: Proxy) -> None:
    proxy.ignores = {"versions"}
    (limit,) = limits(backend, TOP)
    assert limit.startswith("forget does not work: the server lists no version of an existing file")


def test_a_server_without_versions_is_told(backend: AnyBackend, proxy: Proxy) -> None:
    def refuse(request: web.Request) -> web.Response | None:
        known = {"versions", "versioning"}.isdisjoint(request.query)
        return None if known else web.Response(status=501, text="<Error><Code>NotImplemented</Code></Error>")

    proxy.instead = refuse
    assert limits(backend, TOP) == [
        "the server has no versions: forget and redact delete plainly and look for no earlier versions"
    ]


def test_a_server_that_copies_no_parts_takes_no_appends_to_large_files(backend: AnyBackend, proxy: Proxy) -> None:
    proxy.treatments = {"copy": "ignored"}
    (limit,) = limits(backend, TOP)
    assert limit.startswith("a file over 50,000,000 bytes takes no appends: ")


def test_a_server_that_allows_one_write_a_second_is_told(backend: AnyBackend, proxy: Proxy) -> None:
    proxy.instead = OneWriteASecond()
    assert limited_rate(backend, TOP) is not None


def test_a_slow_server_does_not_limit_the_writes_of_a_file(
    backend: AnyBackend, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.object_store.proxy._SLOW_SECONDS", 0.6)
    proxy.choose = lambda operation: "slow" if operation == "PUT" else None
    assert limited_rate(backend, TOP) is None
    proxy.choose = lambda _: "no http"
    assert limited_rate(backend, TOP) is None, "the probes tell what fails"


def test_the_limits_of_obstore_are_told(ministack: S3Server) -> None:
    server = ministack.by("obstore")
    forget, appends = limits(open_backend(server.new_url(), server.options), TOP)
    assert forget == "forget does not work: this store cannot list the versions that it keeps"
    assert "takes no appends" in appends


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ([], "Limit: forget does not work: "),
        (["--json"], '"limits": ["forget does not work'),
    ],
)
def test_doctor_prints_each_limit(
    run: Callable[..., Result], proxy: Proxy, ministack: S3Server, how: list[str], told: str
) -> None:
    proxy.ignores = {"versions"}
    given = [f"-o{name}={value}" for name, value in ministack.through(proxy).items()]
    shown = run("--url", ministack.new_url(), *given, *how, "doctor", "--rounds", "1")
    assert (shown.exit_code, told in shown.stdout) == (0, True)
