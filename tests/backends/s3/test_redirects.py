"""A server that redirects: no signed request goes to another host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_memory import AgentMemory, ReadError
from agent_memory_s3._connection import can_send_once
from tests.object_store.listeners import listening, options, page
from tests.object_store.test_wrong_endpoints import every_call, refused
from tests.support.sizes import also

STATUSES = [
    "301 Moved Permanently",
    "307 Temporary Redirect",
    *also(["302 Found", "303 See Other", "308 Permanent Redirect"]),
]
every_status = pytest.mark.parametrize("status", STATUSES)
OBJECT = ("200 OK", b"another host's", 'ETag: "1"', "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT")


def to(address: str, status: str, *headers: str) -> Callable[[bytes], bytes]:
    """Redirect each request to the same path of another host."""

    def answer(head: bytes) -> bytes:
        path = head.split(b" ")[1].decode()
        return page(status, b"", f"Location: http://{address}{path}", *headers)

    return answer


@every_status
@every_call
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((), id="elsewhere"),
        pytest.param(("x-amz-bucket-region: eu-west-1",), id="another region", marks=pytest.mark.long),
    ],
)
def test_a_redirect_raises_an_error_and_no_request_reaches_the_other_host(
    status: str, call: Callable[[AgentMemory], object], headers: tuple[str, ...]
) -> None:
    assert can_send_once()
    with listening(lambda _: page(*OBJECT)) as other, listening(to(other.address, status, *headers)) as server:
        text = refused(call, options("s3fs", f"http://{server.address}", token="a-session-token"))
    assert "redirects to another address, which is not followed" in text
    assert other.heard == []


@every_status
def test_obstore_follows_a_redirect_to_another_host_without_the_signature(status: str) -> None:
    """obstore has no option to disable redirects: see the limits in docs/s3.md."""
    with listening(lambda _: page(*OBJECT)) as other, listening(to(other.address, status)) as server:
        with AgentMemory.open("s3://b/bot", storage_options=options("obstore", f"http://{server.address}")) as memory:
            try:
                memory.read("a.md")
            except ReadError:
                assert status.startswith("303")
    assert all(b"authorization" not in head.lower() for head in other.heard)
