"""Answers with a good status that are not what was asked for make no success, no emptiness and no wrong bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from aiohttp import web

from agent_memory import AgentMemory, AgentMemoryError, AgentMemoryService
from tests.s3.proxy import Proxy, operation_of
from tests.servers import S3Server

Answer: TypeAlias = Callable[[web.Request], web.Response | None]
PAGES = {
    "a login page": '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body>Log in</body></html>',
    "another XML": "<a/>",
    "an empty body": "",
    "a listing of nothing known": "<ListBucketResult><Prefix></Prefix></ListBucketResult>",
}
no_listing = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def service(ministack: S3Server, proxy: Proxy) -> Iterator[AgentMemoryService]:
    with AgentMemoryService(ministack.new_url(), storage_options=ministack.through(proxy), timeout=10) as service:
        service.agent("bob").write("notes.md", "x")
        yield service


def xml(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/xml")


def answers(page: str, *operations: str) -> Answer:
    return lambda request: xml(page) if operation_of(request) in operations else None


@no_listing
def test_a_page_that_is_no_listing_is_no_empty_listing(service: AgentMemoryService, proxy: Proxy, page: str) -> None:
    memory = service.agent("bob")
    proxy.instead = answers(page, "LIST")
    calls: list[Callable[[], object]] = [
        memory.list,
        service.agent_ids,
        lambda: memory.delete_tree(""),
        lambda: memory.copy("d", "e"),
    ]
    for call in calls:
        with pytest.raises(AgentMemoryError, match="no S3 listing"):
            call()


@no_listing
@pytest.mark.parametrize("operation", ["VERSIONS", "UPLOADS"])
def test_nothing_is_forgotten_by_a_page_that_is_no_listing(
    service: AgentMemoryService, proxy: Proxy, page: str, operation: str
) -> None:
    memory = service.agent("bob")
    proxy.instead = answers(page, operation)
    with pytest.raises(AgentMemoryError, match="no S3 listing"):
        memory.forget("notes.md")
    proxy.instead = None
    assert memory.read("notes.md") == "x"


LISTINGS = {
    "LIST": "<ListBucketResult><Name>b</Name><Prefix/><IsTruncated>true</IsTruncated>{}</ListBucketResult>",
    "VERSIONS": "<ListVersionsResult><Name>b</Name><KeyMarker/><IsTruncated>true</IsTruncated>{}</ListVersionsResult>",
    "UPLOADS": "<ListMultipartUploadsResult><Bucket>b</Bucket><KeyMarker/><IsTruncated>true</IsTruncated>{}"
    "</ListMultipartUploadsResult>",
}
MARKERS = {
    "LIST": "<NextContinuationToken>again</NextContinuationToken>",
    "VERSIONS": "<NextKeyMarker>.a</NextKeyMarker><NextVersionIdMarker>1</NextVersionIdMarker>",
    "UPLOADS": "<NextKeyMarker>.a</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>",
}
of_listings = pytest.mark.parametrize("operation", LISTINGS)


def listed(memory: AgentMemory, operation: str) -> object:
    return memory.list() if operation == "LIST" else memory.forget("notes.md")


@of_listings
def test_a_listing_with_more_and_no_marker_is_not_complete(
    service: AgentMemoryService, proxy: Proxy, operation: str
) -> None:
    proxy.instead = answers(LISTINGS[operation].format(""), operation)
    with pytest.raises(AgentMemoryError, match="there is more of it, and no Next"):
        listed(service.agent("bob"), operation)


@of_listings
def test_a_listing_whose_marker_does_not_advance_ends_at_once(
    service: AgentMemoryService, proxy: Proxy, operation: str
) -> None:
    proxy.instead = answers(LISTINGS[operation].format(MARKERS[operation]), operation)
    with proxy.counting() as requests, pytest.raises(AgentMemoryError, match="does not advance"):
        listed(service.agent("bob"), operation)
    assert requests[operation] == 2


def test_names_outside_the_prefix_are_no_listing_of_it(service: AgentMemoryService, proxy: Proxy) -> None:
    service.agent("eve").write("secret.md", "x")
    memory = service.agent("bob")
    proxy.ignores = {"prefix"}
    for recursive in (True, False):
        with pytest.raises(AgentMemoryError, match="outside the prefix"):
            memory.list(recursive=recursive)
