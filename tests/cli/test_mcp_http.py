"""``agent-memory mcp --http``: the accepted and the refused requests."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import MCPError

from tests.support.mcp_clients import over_http
from tests.support.mcp_processes import ACCEPT, INITIALIZE, TOKEN, Server, serving, shared_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from shared_server(tmp_path_factory)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, f"Basic {TOKEN}", "Bearer \u00e9"],
)
def test_a_request_without_the_token_is_refused(server: Server, authorization: str) -> None:
    headers = {**ACCEPT, "Authorization": authorization.encode("latin-1")} if authorization else ACCEPT
    base = server.url.removesuffix("/mcp")
    with httpx2.Client(timeout=60) as client:
        for method in ("GET", "POST", "DELETE", "OPTIONS", "PUT"):
            for url in (server.url, base, f"{base}/other"):
                refused = client.request(method, url, headers=headers)  # type: ignore[arg-type]  # httpx accepts bytes
                assert (refused.status_code, refused.content) == (401, b"")
                assert refused.headers["WWW-Authenticate"] == 'Bearer realm="agent-memory"'


def test_a_request_with_two_tokens_is_refused(server: Server) -> None:
    headers = [*ACCEPT.items(), ("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    with httpx2.Client(timeout=60) as client:
        assert client.post(server.url, json=INITIALIZE, headers=headers).status_code == 401


@pytest.mark.asyncio
async def test_a_client_without_the_token_cannot_connect(server: Server) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with over_http(server.url, "wrong"):
            pytest.fail("it connected")
    assert raised.value.subgroup(MCPError)


@pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])
def test_a_request_with_another_host_or_origin_is_refused(server: Server, era: str) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example"):
        assert server.post(Host=host, **{"MCP-Protocol-Version": era}).status_code == 421
    for origin in ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"):
        assert server.post(Origin=origin, **{"MCP-Protocol-Version": era}).status_code == 403


def test_a_request_with_the_servers_host_and_origin_is_served(server: Server) -> None:
    port = server.url.split(":")[2].removesuffix("/mcp")
    assert server.post().status_code == 200
    assert server.post(Authorization=f"bearer {TOKEN}").status_code == 200
    assert server.post(Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status_code == 200


def test_a_server_without_a_given_token_generates_and_prints_one(script: str) -> None:
    with serving(script, token=None) as first, serving(script, token=None) as second:
        assert first.token != second.token
        assert len(first.token) >= 43
        assert first.post().status_code == 200
        assert first.post(Authorization=f"Bearer {second.token}").status_code == 401


def test_a_token_is_read_from_a_file(script: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o440)
    with serving(script, "--token-file", "token", token=None) as server:
        server.token = TOKEN
        assert server.post().status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", pytest.param("::", marks=pytest.mark.long)])
def test_beyond_loopback_a_request_must_name_the_public_url(script: str, host: str) -> None:
    with serving(script, "--host", host, "--public-url", "https://Memory.example.org") as server:
        port = server.url.split(":")[-1].removesuffix("/mcp")
        for name in ("memory.example.org", "memory.example.org:443", f"localhost:{port}"):
            assert server.post(Host=name).status_code == 200
        assert server.post(Host="memory.example.org", Origin="https://memory.example.org").status_code == 200
        assert server.post(Authorization="", Host="memory.example.org").status_code == 401
        for name in ("evil.example", f"{host}:{port}", "memory.example.org:80", "memory.example.org.evil.example"):
            assert server.post(Host=name).status_code == 421
        for origin in ("http://memory.example.org", "https://evil.example", "https://a.memory.example.org", "null"):
            assert server.post(Host="memory.example.org", Origin=origin).status_code == 403


def test_ipv6_is_served(script: str) -> None:
    with serving(script, "--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.post().status_code == 200


def test_a_server_is_ready_while_its_store_answers(script: str, tmp_path: Path) -> None:
    tree = tmp_path / "root/agent_memory/default"
    tree.mkdir(parents=True)
    with serving(script) as server, httpx2.Client(base_url=server.url.removesuffix("/mcp"), timeout=60) as client:
        assert [client.get(path).text for path in ("/healthz", "/readyz")] == ["ok", "ok"]
        tree.rename(tmp_path / "elsewhere")
        tree.symlink_to(tmp_path / "elsewhere")
        for _ in range(600):
            if client.get("/readyz").status_code == 503:
                break
            time.sleep(0.05)
        assert (client.get("/readyz").text, client.get("/healthz").text) == ("not ready", "ok")


def test_an_open_stream_does_not_prevent_the_end_of_the_server(script: str) -> None:
    with serving(script) as server, httpx2.Client(timeout=60) as client:
        opened = server.post()
        session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"], "Authorization": f"Bearer {TOKEN}"}
        with client.stream("GET", server.url, headers={**session, "Accept": "text/event-stream"}, timeout=30) as stream:
            assert stream.status_code == 200
            server.process.send_signal(signal.SIGINT)
            server.process.wait(60)


def test_a_second_interrupt_ends_a_server_that_waits_for_an_unfinished_request(script: str) -> None:
    with serving(script) as server, socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as client:
        lines = ["POST /mcp HTTP/1.1", f"Host: {client.getpeername()[0]}", f"Authorization: Bearer {TOKEN}",
                 "Expect: 100-continue", "Content-Length: 100", "", ""]  # fmt: skip
        client.sendall("\r\n".join(lines).encode())
        assert client.recv(100).startswith(b"HTTP/1.1 100")  # the server waits for the rest
        server.process.send_signal(signal.SIGINT)
        with suppress(ConnectionError):
            while True:  # until the server accepts no more connections
                socket.create_connection(client.getpeername(), 60).close()
        server.process.send_signal(signal.SIGINT)
        server.process.wait(30)
