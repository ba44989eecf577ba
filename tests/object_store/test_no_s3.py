"""An answer with a success status but wrong content never gives a success, an empty result or wrong bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from agent_memory import AgentMemory, AgentMemoryError, AgentMemoryService, ReadError
from agent_memory.backend._pages import Markers
from agent_memory.key import Key
from agent_memory.object_store.engine import NotSatisfiable, Object, PermanentError, TooLarge
from agent_memory_s3._client import S3Store
from agent_memory_s3._replies import posix_seconds, retry_after
from tests.object_store.proxy import Proxy, operation_of
from tests.support import sizes
from tests.support.loops import looped
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("trusted")
Answer: TypeAlias = Callable[[web.Request], web.Response | None]
PAGES = {
    "a login page": '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body>Log in</body></html>',
    "another XML": "<a/>",
    "an empty body": "",
    "a listing of nothing known": "<ListBucketResult><Prefix></Prefix></ListBucketResult>",
}


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


@looped("page", PAGES.values())
def test_a_page_that_is_no_listing_raises_instead_of_an_empty_listing(
    service: AgentMemoryService, proxy: Proxy, page: str
) -> None:
    memory = service.agent("bob")
    proxy.instead = answers(page, "LIST")
    calls: list[Callable[[], object]] = [
        memory.list,
        service.agent_ids,
        lambda: memory.delete_tree(""),
        lambda: memory.copy("d", "e"),
    ]
    for call in calls:
        with pytest.raises(AgentMemoryError, match="not an S3 listing"):
            call()


@looped(("page", "operation"), product(PAGES.values(), ["VERSIONS", "UPLOADS"]))
def test_forget_deletes_nothing_if_a_page_is_no_listing(
    service: AgentMemoryService, proxy: Proxy, page: str, operation: str
) -> None:
    memory = service.agent("bob")
    proxy.instead = answers(page, operation)
    with pytest.raises(AgentMemoryError, match="not an S3 listing"):
        memory.forget("notes.md")
    proxy.instead = None
    assert memory.read("notes.md") == "x"


@looped(("ignored", "path"), product([{"versions"}, {"uploads"}, {"versions", "uploads"}], ["notes.md", ""]))
def test_forget_deletes_nothing_if_the_server_ignores_the_kind_of_listing(
    service: AgentMemoryService, proxy: Proxy, ignored: set[str], path: str
) -> None:
    memory = service.agent("bob")
    proxy.ignores = ignored
    with pytest.raises(AgentMemoryError, match=r"not an S3 listing: it has no Bucket|lists no version"):
        memory.forget(path)
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
of_listings = looped("operation", LISTINGS)


def listed(memory: AgentMemory, operation: str) -> object:
    return memory.list() if operation == "LIST" else memory.forget("notes.md")


@of_listings
def test_a_truncated_listing_without_a_marker_raises_an_error(
    service: AgentMemoryService, proxy: Proxy, operation: str
) -> None:
    proxy.instead = answers(LISTINGS[operation].format(""), operation)
    with pytest.raises(AgentMemoryError, match="it is truncated, and has no Next"):
        listed(service.agent("bob"), operation)


@of_listings
def test_a_listing_whose_marker_does_not_advance_raises_at_once(
    service: AgentMemoryService, proxy: Proxy, operation: str
) -> None:
    proxy.instead = answers(LISTINGS[operation].format(MARKERS[operation]), operation)
    with proxy.counting() as requests, pytest.raises(AgentMemoryError, match="does not advance"):
        listed(service.agent("bob"), operation)
    assert requests[operation] == 2


def test_markers_that_form_a_cycle_raise_an_error() -> None:
    markers = Markers(Key.tree())
    markers.go_on("a")
    markers.go_on("b")
    with pytest.raises(ReadError, match="does not advance"):
        markers.go_on("a")


ENTRIES = {
    "LIST": "<Contents><Size>1</Size></Contents>",
    "VERSIONS": "<Version><Key>.a</Key></Version>",
    "UPLOADS": "<Upload><Key>.a</Key></Upload>",
}


@of_listings
def test_a_listing_entry_without_its_elements_raises_an_error(
    service: AgentMemoryService, proxy: Proxy, operation: str
) -> None:
    proxy.instead = answers(LISTINGS[operation].format(ENTRIES[operation]), operation)
    with pytest.raises(AgentMemoryError, match="not an S3 listing: an entry has no"):
        listed(service.agent("bob"), operation)


def test_a_listing_with_names_outside_the_prefix_raises_an_error(service: AgentMemoryService, proxy: Proxy) -> None:
    service.agent("eve").write("secret.md", "x")
    memory = service.agent("bob")
    proxy.ignores = {"prefix"}
    for recursive in (True, False):
        with pytest.raises(AgentMemoryError, match="outside the prefix"):
            memory.list(recursive=recursive)


DATA = b"0123456789"


class Ranges:
    """One object that is read through a proxy."""

    def __init__(self, server: S3Server, proxy: Proxy) -> None:
        self.proxy = proxy
        self.name = server.new_url().removeprefix("s3://memories/") + "/digits"
        self._options = server.through(proxy)
        server.client("s3").put_object(Bucket="memories", Key=self.name, Body=DATA)

    def get(self, span: str | None, most: int | None = None) -> Object:
        async def got() -> Object:
            store = S3Store("memories", self._options)
            try:
                return await store.get(self.name, span=span, most=most)
            finally:
                await store.aclose()

        return asyncio.run(got())

    def answer(self, body: bytes, content_range: str | None, *, chunked: bool = False) -> None:
        """Answer every GET with this body: as a part, or as the whole object if ``content_range`` is None."""
        headers = {"ETag": '"1"'} | ({"Content-Range": content_range} if content_range else {})

        def answered(request: web.Request) -> web.StreamResponse | None:
            if operation_of(request) != "GET":
                return None
            response = web.Response(status=206 if content_range else 200, headers=headers, body=body)
            if chunked:
                response.enable_chunked_encoding()
            return response

        self.proxy.instead = answered


@pytest.fixture
def ranges(ministack: S3Server, proxy: Proxy) -> Ranges:
    return Ranges(ministack, proxy)


def thinned(members: Iterable[Any]) -> list[Any]:
    """All members with --long, and each third one in the short run."""
    return [*members][:: 1 if sizes.is_long else 3]


SPANS = {"bytes=2-4": b"234", "bytes=7-": b"789", "bytes=8-50": b"89", "bytes=-3": b"789", "bytes=-50": DATA}


@looped(("heeded", "span"), thinned(product([True, False], SPANS)))
def test_a_range_read_returns_the_range_even_if_the_server_sends_the_whole_object(
    ranges: Ranges, span: str, heeded: bool
) -> None:
    ranges.proxy.ignores = set() if heeded else {"range"}
    found = ranges.get(span, most=20)
    assert (found.data, found.size) == (SPANS[span], 10)


def test_a_range_past_the_end_is_not_satisfiable_even_if_the_whole_object_is_sent(ranges: Ranges) -> None:
    ranges.proxy.ignores = {"range"}
    with pytest.raises(NotSatisfiable):
        ranges.get("bytes=10-", most=20)


@looped("chunked", [True, False])
def test_a_range_read_fails_if_the_server_sends_the_whole_of_a_large_object(ranges: Ranges, chunked: bool) -> None:
    ranges.answer(bytes(1 << 20), None, chunked=chunked)
    with pytest.raises(PermanentError, match="ignores Range"):
        ranges.get("bytes=2-4", most=1000)
    with pytest.raises(TooLarge):
        ranges.get(None, most=1000)


OTHER_RANGES = [
    (b"345", "bytes 3-5/10"),
    (b"23", "bytes 2-3/10"),
    (b"2345", "bytes 2-4/10"),
    (b"23", "bytes 2-4/10"),
    (b"234", "bytes 2-4/*"),
    (b"234", "bytes 2-4/3"),
    (b"234", "lines 2-4/10"),
]


@looped(
    ("body", "content_range", "chunked"),
    thinned((*each, chunked) for each in OTHER_RANGES for chunked in (True, False)),
)
def test_an_answer_with_another_range_than_requested_is_refused(
    ranges: Ranges, body: bytes, content_range: str, chunked: bool
) -> None:
    ranges.answer(body, content_range, chunked=chunked)
    with pytest.raises(PermanentError, match="another range"):
        ranges.get("bytes=2-4", most=20)


def test_a_partial_answer_to_a_whole_read_is_refused(ranges: Ranges) -> None:
    ranges.answer(b"234", "bytes 2-4/10")
    with pytest.raises(PermanentError, match="another range"):
        ranges.get(None)


def test_an_answer_without_a_length_is_read(ranges: Ranges) -> None:
    ranges.answer(DATA, None, chunked=True)
    assert (ranges.get(None).data, ranges.get(None, most=10).size) == (DATA, 10)
    ranges.answer(b"234", "bytes 2-4/10", chunked=True)
    assert ranges.get("bytes=2-4", most=10).data == b"234"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        ("2.5", 2.5),
        ("-5", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("-inf", 0.0),
        ("1e999", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0.0),
        ("Sun, 06 Nov 99999 08:49:07 GMT", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(asked: str, seconds: float) -> None:
    assert retry_after({"retry-after": asked, "date": "Sun, 06 Nov 1994 08:49:37 GMT"}) == seconds


@pytest.mark.parametrize("date", ["", "soon", "Sun, 06 Nov 99999 08:49:07 GMT", "Sun, 06 Nov 1994 08:49:07 +9999"])
def test_an_invalid_date_is_read_as_none(date: str) -> None:
    assert retry_after({"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT", "date": date}) == 0.0
    assert posix_seconds(date) is None


@looped("asked", ["-5", "nan", "inf"])
def test_an_invalid_retry_after_does_not_prevent_a_retry(service: AgentMemoryService, proxy: Proxy, asked: str) -> None:
    left = iter(range(3))

    def busy(_: web.Request) -> web.Response | None:
        if next(left, None) is None:
            return None
        return web.Response(status=503, headers={"Retry-After": asked})

    proxy.instead = busy
    assert service.agent("bob").read("notes.md") == "x"
