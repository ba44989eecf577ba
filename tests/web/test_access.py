"""Who may use the pages: every request of another site, another name or another browser is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.datastructures import Headers

from agent_memory import AgentMemoryService
from agent_memory.web import _access
from agent_memory.web._access import WebAccess
from tests.support.web_pages import Pages, pages


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("access") / "store"
    with AgentMemoryService(root) as service:
        service.write_memory_file("ann", "plan.md", "the plan of ann")
        service.write_memory_file("ben", "plan.md", "the plan of ben")
    return root


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Pages]:
    """Pages whose link was used: the client has the cookie."""
    with pages(str(store)) as found:
        found.enter()
        yield found


def cookie_of(served: Pages) -> str:
    return "; ".join(f"{name}={value}" for name, value in served.client.cookies.items())


def test_the_link_opens_the_pages_once_and_redirects_away_from_the_token(store: Path) -> None:
    with pages(str(store)) as served:
        answer = served.client.get(served.link)
        home = answer.headers["location"]
        assert (answer.status_code, len(home)) == (303, 18)
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", f"Path={home.removesuffix('/')}", "SameSite=strict"} <= {*cookie.split("; ")}
        assert served.client.get(home).status_code == 200
        with httpx2.Client(base_url=served.base) as other:
            assert other.get(served.link).status_code == 403
            assert other.get(home).status_code == other.get("/").status_code == 401
            assert home not in other.get("/").text + other.get(served.link).text
        assert served.client.get(home).status_code == 200
        assert served.client.get("/").status_code == 401, "the cookie is not sent to other paths"


def test_a_link_that_is_fetched_beforehand_still_works(store: Path) -> None:
    with pages(str(store)) as served:
        assert served.client.get(served.link, headers={"Sec-Purpose": "prefetch;prerender"}).status_code == 403
        assert served.enter().get("/").status_code == 200


def test_behind_tls_the_cookie_is_secure_and_the_origin_is_that_of_tls() -> None:
    access = WebAccess(["pages.example"], https=True)
    answer = access.enter(access.new_link().rpartition("=")[2])
    assert answer
    assert {"Secure", "Path=/"} <= {*answer.headers["set-cookie"].split("; ")}
    found = [
        access.refusal(Headers({"host": "pages.example", "origin": f"{scheme}://pages.example"}), "POST")
        for scheme in ("https", "http")
    ]
    assert [each and each[0] for each in found] == [None, 403]


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "\u00e9", "%00", "%ff"])
def test_a_guessed_token_is_refused_and_leaves_the_link_alive(store: Path, token: str) -> None:
    with pages(str(store)) as served:
        refused = served.client.get(f"{served.base}/open?token={token}")
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
        assert served.client.post(served.link, headers={"Origin": served.base}).status_code == 401
        assert served.enter().get("/").status_code == 200


def test_a_link_is_dead_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    access = WebAccess(["127.0.0.1:1"])
    token = access.new_link().rpartition("=")[2]
    monkeypatch.setattr(_access, "LINK_SECONDS", 0)
    expired = access.new_link().rpartition("=")[2]
    assert access.enter(token) is None, "a new link ends the one before it"
    assert access.enter(expired) is None


def test_only_the_newest_sessions_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_access, "MAX_SESSIONS", 2)
    access = WebAccess(["127.0.0.1:1"])
    cookies = []
    for _ in range(3):
        answer = access.enter(access.new_link().rpartition("=")[2])
        assert answer
        cookies.append(Headers({"cookie": answer.headers["set-cookie"].split(";")[0]}))
    assert [access.csrf_of(cookie) is not None for cookie in cookies] == [False, True, True]


@pytest.mark.parametrize("path", ["/", "/timeline", "/agents/ann/tree/", "/agents/ann/raw/plan.md", "/search?q=plan"])
def test_without_the_cookie_nothing_is_shown(served: Pages, path: str) -> None:
    for headers in ({}, {"Cookie": "a=b"}, {"Cookie": cookie_of(served)[:-1]}, {"Cookie": cookie_of(served) + "x"}):
        with httpx2.Client(base_url=served.base + served.root, headers=headers) as other:
            refused = other.get(path)
            assert refused.status_code == 401
            assert "ann" not in refused.text


def test_a_request_with_another_host_is_refused(served: Pages) -> None:
    names = ("evil.example", f"evil.example:{served.port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil:{served.port}")
    for name in (*names, f"127.0.0.1:{served.port}.evil.example", ""):
        for path in (f"{served.root}/", served.link.removeprefix(served.base), "/static/style.css"):
            request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nCookie: {cookie_of(served)}\r\nConnection: close\r\n\r\n"
            assert served.raw(request.encode()).startswith(b"HTTP/1.1 421 "), name


def test_a_request_without_one_host_is_refused(served: Pages) -> None:
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    for hosts in ("", host + "Host: evil.example\r\n", "Host: evil.example\r\n" + host, host + host):
        request = f"GET {served.root}/ HTTP/1.1\r\n{hosts}Cookie: {cookie_of(served)}\r\nConnection: close\r\n\r\n"
        assert served.raw(request.encode()).split(b" ")[1] in (b"400", b"421"), hosts
    absolute = f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nCookie: {cookie_of(served)}\r\n"
    assert served.raw(f"{absolute}Connection: close\r\n\r\n".encode()).split(b" ")[1] in (b"400", b"421")


def test_the_servers_own_names_are_served(served: Pages) -> None:
    for name in (f"127.0.0.1:{served.port}", f"localhost:{served.port}", f"LOCALHOST:{served.port}"):
        request = (
            f"GET {served.root}/ HTTP/1.1\r\nHost: {name}\r\nCookie: {cookie_of(served)}\r\nConnection: close\r\n\r\n"
        )
        assert served.raw(request.encode()).startswith(b"HTTP/1.1 200 "), name


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", ""])
def test_a_request_of_another_origin_is_refused(served: Pages, origin: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        assert served.client.request(method, "/", headers={"Origin": origin}).status_code == 403


def test_a_change_needs_an_origin(served: Pages) -> None:
    assert served.client.post("/").status_code == 403
    assert served.client.post("/", headers={"Origin": served.base}).status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/none", "/static/style.css", "/static/none", "/open?token=x", "/agents/ann/raw/plan.md"]
)
@pytest.mark.parametrize("has_session", [True, False])
def test_every_answer_forbids_frames_scripts_of_others_and_caches(served: Pages, path: str, has_session: bool) -> None:
    cookies = {"Cookie": cookie_of(served)} if has_session else {}
    with httpx2.Client(headers=cookies) as client:
        headers = client.get(f"{served.base}{served.root if '/static' not in path else ''}{path}").headers
    policy = headers["content-security-policy"]
    assert "unsafe-" not in policy
    is_download = "/raw/" in path and has_session
    assert ("sandbox; default-src 'none'" if is_download else "default-src 'self'") in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/agents/ann/file/../../ben/plan.md", "/agents/ann/raw/..%2f..%2fben/plan.md", "/agents/ann/raw//etc/passwd",
        "/agents/ann/raw/%2e%2e/%2e%2e/x", "/agents/../raw/x", "/agents/..%2fann/tree/", "/agents/ann%00/tree/",
        "/static/../__init__.py", "/static/..%2f__init__.py", "/static/%2e%2e/__init__.py", "/agents/ann/raw/%ff",
        "/agents/ann/raw/.agent-memory", "/agents/ann/raw/%252e%252e/x",
    ],
)  # fmt: skip
def test_a_path_outside_the_view_is_refused(served: Pages, path: str) -> None:
    request = f"GET {served.root}{path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nCookie: {cookie_of(served)}\r\n"
    answer = served.raw(f"{request}Connection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 "), answer[:200]
    assert b"ben" not in answer.split(b"<main")[0].split(b"\r\n\r\n")[0]


def test_pages_of_one_agent_show_no_other(store: Path) -> None:
    with pages(str(store), "--agent", "ann") as served:
        client = served.enter()
        assert "ann" in client.get("/").text
        assert "ben" not in client.get("/").text
        for path in ("tree/", "file/plan.md", "raw/plan.md", "versions/plan.md"):
            assert client.get(f"/agents/ben/{path}").status_code == 404, path
        assert "plan of ben" not in client.get("/search/found?q=plan").text


def test_pages_that_are_read_only_have_no_route_that_changes_anything(served: Pages, store: Path) -> None:
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    headers = {"Origin": served.base}
    for name in ("restore", "undo", "redact"):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            answer = served.client.request(method, f"/agents/ann/{name}", headers=headers)
            assert answer.status_code == 404, (method, name)
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before
