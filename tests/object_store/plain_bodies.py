"""Servers that cannot read a body in chunks with a checksum behind them (``aws-chunked``)."""

from __future__ import annotations

from aiohttp import web

from tests.object_store.proxy import Fault, Proxy

_OF_CHUNKS = {"content-encoding", "x-amz-decoded-content-length", "x-amz-trailer", "x-amz-content-sha256"}


class RefusesChunks(Proxy):
    """Refuse each request with such a body."""

    def _refused(self, request: web.Request, fault: Fault | None) -> tuple[int, str] | None:
        chunked = "aws-chunked" in request.headers.get("Content-Encoding", "")
        return (400, "XAmzContentSHA256Mismatch") if chunked else super()._refused(request, fault)


class StoresFraming(Proxy):
    """Store the sizes of the chunks and the checksum as content."""

    def _headers(self, request: web.Request) -> dict[str, str]:
        return {name: value for name, value in super()._headers(request).items() if name.lower() not in _OF_CHUNKS}
