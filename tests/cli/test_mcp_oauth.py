"""``agent-memory mcp --http --oauth-issuer`` with a real issuer: the accepted tokens, and the memories of users."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import RSAAlgorithm
from mcp.types import LATEST_PROTOCOL_VERSION

from agent_memory import AgentMemoryService, agent_id
from agent_memory.audit import records
from agent_memory.cli.auditing import log_of_store
from tests.support.mcp_clients import both_eras, called, hold_session, over_http, resource
from tests.support.mcp_processes import ACCEPT, INITIALIZE, Server, serving
from tests.support.oauth_issuer import Issuer, base64url, issuing, rsa_key

LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
HOSTILE = [
    "ann", "Ann", "ann ", "../ann", "ann/../bob", "bob", "a=6E", "0==", "..", ".", "con", "*", "agent_memory",
    ".agent-memory", "auth0|5f", "x" * 120, "jörg", "jo\u0308rg", "a\0b", "a\nb", "%2e%2e", "ann\u200b", "/",
    "\\", "default",
]  # fmt: skip


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        issuer.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
        yield issuer


@contextmanager
def serving_users(script: str, issuer: Issuer, *args: str, cwd: Path | None = None) -> Iterator[Server]:
    """A server for the issuer's tokens; its token is a good one."""
    with serving(script, "--oauth-issuer", issuer.url, *args, token=None, cwd=cwd) as server:
        issuer.audience = server.url
        server.token = issuer.token()
        yield server


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory, script: str) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("served")
    with serving_users(script, issuer, "--oauth-scope", "memory", cwd=directory) as server:
        yield server


def recorded_actors(root: Path) -> set[object]:
    location = log_of_store(str(root), {})
    try:
        return {each["actor"] for each in records(location) if "path" in each}
    finally:
        location.store.close()


@pytest.mark.asyncio
@both_eras
async def test_a_client_with_an_access_token_can_use_a_session_and_its_subject_is_recorded(
    script: str, issuer: Issuer, tmp_path: Path, mode: str
) -> None:
    with serving_users(script, issuer) as server:
        for key_id, algorithm in (("one", "RS256"), ("curve", "ES256")):
            token = issuer.token(key_id=key_id, algorithm=algorithm, sub=f"user|{key_id}")
            async with over_http(server.url, token, mode) as client:
                await hold_session(client)
    assert recorded_actors(tmp_path / "root") == {"user|one", "user|curve"}


def forged(issuer: Issuer, algorithm: str, signature: Callable[[bytes], bytes], **header: Any) -> str:
    head = json.dumps({"alg": algorithm, "typ": "at+jwt", "kid": "one", **header}).encode()
    signed = f"{base64url(head)}.{base64url(json.dumps(issuer.claims()).encode())}"
    return f"{signed}.{base64url(signature(signed.encode()))}"


def with_secret(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda data: hmac.digest(secret, data, sha256)


def tampered(token: str, **changed: Any) -> str:
    head, body, signature = token.split(".")
    claims = jwt.decode(token, options={"verify_signature": False}) | changed
    assert body != base64url(json.dumps(claims).encode())
    return f"{head}.{base64url(json.dumps(claims).encode())}.{signature}"


def now(seconds: float) -> int:
    return int(time.time() + seconds)


BAD: dict[str, Callable[[Issuer], str]] = {
    "no token": lambda _: "x",
    "four parts": lambda issuer: f"{issuer.token()}.x",
    "five parts": lambda issuer: f"{issuer.token()}.x.y",
    "a key of another": lambda issuer: issuer.token(key=rsa_key()),
    "changed claims": lambda issuer: tampered(issuer.token(), sub="bob"),
    "no signature": lambda issuer: issuer.token().rpartition(".")[0] + ".",
    "alg none": lambda issuer: forged(issuer, "none", lambda _: b""),
    "alg None": lambda issuer: forged(issuer, "None", lambda _: b""),
    "HS256 with the public key": lambda issuer: forged(issuer, "HS256", with_secret(issuer.pem())),
    "HS256 with the public key, called RS256": lambda issuer: forged(issuer, "RS256", with_secret(issuer.pem())),
    "HS256 with the key as JWK": lambda issuer: forged(
        issuer, "HS256", with_secret(json.dumps(issuer.public("one")).encode())
    ),
    "the key in the header": lambda issuer: issuer.token(key=(own := rsa_key()), headers={"jwk": _jwk(own)}),
    "a key set in the header": lambda issuer: issuer.token(headers={"jku": "http://127.0.0.1:9/"}, key=rsa_key()),
    "another algorithm of the key": lambda issuer: issuer.token(algorithm="PS256"),
    "an RSA key as a curve's": lambda issuer: issuer.token(key=issuer.keys["one"], key_id="curve"),
    "an unknown key": lambda issuer: issuer.token(key=issuer.keys["one"], key_id="two"),
    "no id of the key, of two": lambda issuer: issuer.token(key_id=None),
    "a strange id of the key": lambda issuer: forged(issuer, "RS256", lambda _: b"x", kid=["one"]),
    "a strange algorithm": lambda issuer: forged(issuer, ["RS256"], lambda _: b"x"),  # type: ignore[arg-type]
    "a critical extension": lambda issuer: issuer.token(headers={"crit": ["b64"], "b64": True}),
    "an identity token": lambda issuer: issuer.token(headers={"typ": "id+jwt"}),
    "a logout token": lambda issuer: issuer.token(headers={"typ": "logout+jwt"}),
    "nested deeply": lambda _: f"{base64url(b'[' * 9000)}.e30.e30",
    "too long": lambda issuer: issuer.token(more="x" * 20_000),
    "expired": lambda issuer: issuer.token(exp=now(-1)),
    "without an end": lambda issuer: issuer.token(exp=None),
    "an endless end": lambda issuer: issuer.token(exp=float("inf")),
    "not yet valid": lambda issuer: issuer.token(nbf=now(60)),
    "issued in the future": lambda issuer: issuer.token(iat=now(60)),
    "another issuer": lambda issuer: issuer.token(iss="http://127.0.0.1:1"),
    "the issuer with a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "without an issuer": lambda issuer: issuer.token(iss=None),
    "another audience": lambda issuer: issuer.token(aud="https://other.example/mcp"),
    "the audience of the host": lambda issuer: issuer.token(aud=issuer.audience.removesuffix("/mcp")),
    "a longer audience": lambda issuer: issuer.token(aud=f"{issuer.audience}/x"),
    "without an audience": lambda issuer: issuer.token(aud=None),
    "an empty audience": lambda issuer: issuer.token(aud=[]),
    "without a subject": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "half a character": lambda issuer: issuer.token(sub="\ud800"),
    "of a key of the client": lambda issuer: issuer.token(cnf={"jkt": "x"}),
    "strange scopes": lambda issuer: issuer.token(scope={"memory": True}),
}


def _jwk(key: Any) -> dict[str, Any]:
    found: dict[str, Any] = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return found


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_token_that_is_not_the_issuers_for_this_server_is_refused(
    server: Server, issuer: Issuer, bad: Callable[[Issuer], str]
) -> None:
    with httpx2.Client(timeout=60) as client:
        for method in ("POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD"):
            headers = {**ACCEPT, "Authorization": f"Bearer {bad(issuer)}"}
            refused = client.request(method, server.url, headers=headers)
            assert refused.status_code == 401
            told = refused.headers["WWW-Authenticate"]
            assert told.startswith('Bearer error="invalid_token"')
            base = server.url.removesuffix("/mcp")
            assert f'resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"' in told
            assert told.endswith(', scope="memory"')
    assert server.post().status_code == 200


def test_a_token_elsewhere_than_in_one_authorization_header_is_refused(server: Server, issuer: Issuer) -> None:
    token = issuer.token()
    with httpx2.Client(timeout=60) as client:
        for query in ("access_token", "token", "authorization"):
            assert client.post(f"{server.url}?{query}={token}", json=INITIALIZE, headers=ACCEPT).status_code == 401
        form = {"access_token": token}
        assert client.post(server.url, data=form, headers=ACCEPT).status_code == 401
        for given in (token, f"Basic {token}", f"DPoP {token}", "Bearer"):
            assert client.post(server.url, json=INITIALIZE, headers={**ACCEPT, "Authorization": given}).is_client_error
        twice = [*ACCEPT.items(), ("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
        assert client.post(server.url, json=INITIALIZE, headers=twice).status_code == 401
        cookies = {**ACCEPT, "Cookie": f"access_token={token}; Authorization=Bearer {token}"}
        assert client.post(server.url, json=INITIALIZE, headers=cookies).status_code == 401


def test_a_token_without_the_scope_is_told_which_scope_it_needs(server: Server, issuer: Issuer) -> None:
    scopes: list[dict[str, Any]] = [{"scope": None}, {"scope": "memory:read memoryx"}, {"scope": "", "scp": ["memory"]}]
    for changed in scopes:
        refused = server.post(Authorization=f"Bearer {issuer.token(**changed)}")
        assert refused.status_code == 403
        assert refused.headers["WWW-Authenticate"].startswith('Bearer error="insufficient_scope"')
        assert refused.headers["WWW-Authenticate"].endswith(', scope="memory"')
    lists: list[dict[str, Any]] = [{"scope": None, "scp": "memory"}, {"scope": None, "scp": ["x", "memory"]}]
    accepted: list[dict[str, Any]] = [{"scope": "x memory"}, *lists]
    for changed in accepted:
        assert server.post(Authorization=f"Bearer {issuer.token(**changed)}").status_code == 200


def test_a_token_for_several_audiences_and_one_without_a_type_are_accepted(server: Server, issuer: Issuer) -> None:
    for token in (issuer.token(aud=["https://other.example", issuer.audience]), issuer.token(headers={"typ": "JWT"})):
        assert server.post(Authorization=f"bearer {token}").status_code == 200


def test_the_metadata_names_the_server_and_its_issuer(server: Server, issuer: Issuer) -> None:
    base = server.url.removesuffix("/mcp")
    with httpx2.Client(timeout=60) as client:
        document = client.get(f"{base}/.well-known/oauth-protected-resource/mcp").json()
    assert document["resource"] == server.url
    assert document["authorization_servers"] == [issuer.url]
    assert document["scopes_supported"] == ["memory"]
    assert document["bearer_methods_supported"] == ["header"]


def test_a_request_with_a_token_and_another_host_or_origin_is_refused(server: Server) -> None:
    for era in ("2025-06-18", LATEST_PROTOCOL_VERSION):
        version = {"MCP-Protocol-Version": era}
        for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example"):
            assert server.post(Host=host, **version).status_code == 421
        for origin in ("http://evil.example", "null", "https://127.0.0.1"):
            assert server.post(Origin=origin, **version).status_code == 403


@pytest.mark.parametrize("path", ["//mcp", "/mcp/", "/mcp/x", "/MCP", "/%6dcp", "/./mcp", "/healthz/../mcp", "/x", "/"])
def test_no_other_path_leads_around_the_token(server: Server, path: str) -> None:
    base = server.url.removesuffix("/mcp")
    with httpx2.Client(timeout=60) as client:
        for method in ("GET", "POST", "OPTIONS", "TRACE"):
            headers = {**ACCEPT, "Host": "evil.example"}
            answer = client.request(method, httpx2.URL(base, raw_path=path.encode()), headers=headers)
            assert answer.status_code in (401, 404)
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert "Location" not in answer.headers


def test_a_session_can_be_used_only_with_a_token_of_its_user(server: Server, issuer: Issuer) -> None:
    session = {"Mcp-Session-Id": server.post().headers["Mcp-Session-Id"]}
    others = [issuer.token(sub="bob"), issuer.token(sub="ann", client_id="other"), issuer.token(sub="Ann")]
    for token in others:
        shown = {**session, "Authorization": f"Bearer {token}"}
        assert server.post(LIST, **shown).status_code == 404
        with httpx2.Client(timeout=60) as client:
            for method in ("GET", "DELETE"):
                answer = client.request(method, server.url, headers={**ACCEPT, **shown})
                assert answer.status_code == 404
    renewed = issuer.token(exp=now(60))
    assert server.post(LIST, **session, Authorization=f"Bearer {renewed}").status_code == 200


def kept(user: str) -> str:
    return f"kept by {user.encode().hex()}"


@pytest.mark.asyncio
@both_eras
async def test_each_user_has_a_memory_that_no_other_user_reaches(
    script: str, issuer: Issuer, tmp_path: Path, mode: str
) -> None:
    async def keep(url: str, user: str) -> None:
        async with over_http(url, issuer.token(sub=user), mode) as client:
            assert (await client.list_resources()).resources == []
            await called(client, "create", path="/memories/own.md", file_text=kept(user))
            for path in ("/memories/../ann/own.md", "/memories/../../agent_memory/ann/own.md"):
                assert (await called(client, "view", path=path)).is_error

    async def check(url: str, user: str) -> None:
        async with over_http(url, issuer.token(sub=user), mode) as client:
            assert await resource(client, "memory://own.md") == kept(user)
            assert len((await client.list_resources()).resources) == 1
            found = await called(client, "search", query="kept")
            assert found.text.count("/memories/") == 1

    with serving_users(script, issuer, "--agent-from-claim", "sub") as server:
        for users in (HOSTILE[:8], HOSTILE[8:16], HOSTILE[16:]):
            await asyncio.gather(*(keep(server.url, user) for user in users))
        for users in (HOSTILE[:8], HOSTILE[8:16], HOSTILE[16:]):
            await asyncio.gather(*(check(server.url, user) for user in users))
    with AgentMemoryService(tmp_path / "root") as service:
        assert set(service.agent_ids()) == {agent_id(user) for user in HOSTILE}
    assert len({agent_id(user) for user in HOSTILE}) == len(HOSTILE)
    assert recorded_actors(tmp_path / "root") == {*HOSTILE}


@pytest.mark.parametrize("claims", [{"team": None}, {"team": ""}, {"team": 7}, {"team": ["a"]}, {"team": "x" * 200}])
def test_a_token_whose_claim_names_no_agent_reaches_no_memory(
    script: str, issuer: Issuer, tmp_path: Path, claims: dict[str, Any]
) -> None:
    with serving_users(script, issuer, "--agent-from-claim", "team") as server:
        shown = {"Authorization": f"Bearer {issuer.token(**claims)}"}
        session = {"Mcp-Session-Id": server.post(**shown).headers["Mcp-Session-Id"]}
        arguments = {"path": "/memories/a.md", "file_text": "x"}
        for method, params in (
            ("tools/call", {"name": "create", "arguments": arguments}),
            ("resources/list", {}),
            ("resources/read", {"uri": "memory://a.md"}),
        ):
            answer = server.post({**LIST, "method": method, "params": params}, **session, **shown).json()
            assert "error" in answer
    with AgentMemoryService(tmp_path / "root") as service:
        assert service.agent_ids() == ()


@pytest.mark.asyncio
async def test_without_the_write_scope_a_client_can_only_read(script: str, issuer: Issuer) -> None:
    with serving_users(script, issuer, "--oauth-scope", "read", "--oauth-write-scope", "write") as server:
        challenge = server.post(Authorization="Bearer x").headers["WWW-Authenticate"]
        assert challenge.endswith(', scope="read write"')
        async with over_http(server.url, issuer.token(scope="read write")) as client:
            assert not (await called(client, "append", path="/memories/a.md", text="x")).is_error
        async with over_http(server.url, issuer.token(scope="read writer")) as client:
            assert await resource(client, "memory://a.md") == "x"
            for tool, more in (("append", {"text": "y"}), ("delete", {})):
                told = await called(client, tool, path="/memories/a.md", **more)
                assert told.is_error
            assert await resource(client, "memory://a.md") == "x"


def test_each_request_of_a_session_has_the_rights_of_its_own_token(script: str, issuer: Issuer, tmp_path: Path) -> None:
    params = {"name": "append", "arguments": {"path": "/memories/a.md", "text": "x"}}
    append = {**LIST, "method": "tools/call", "params": params}
    with serving_users(script, issuer, "--oauth-write-scope", "write", "--agent-from-claim", "team") as server:
        first = issuer.token(scope="write", team="a")
        session = {"Mcp-Session-Id": server.post(Authorization=f"Bearer {first}").headers["Mcp-Session-Id"]}
        for scope, team, is_error in (("write", "a", False), ("read", "a", True), ("write", "b", False)):
            token = issuer.token(scope=scope, team=team)
            answer = server.post(append, **session, Authorization=f"Bearer {token}").json()
            assert bool(answer["result"].get("isError")) == is_error
    with AgentMemoryService(tmp_path / "root") as service:
        assert [service.read_memory_file(agent, "a.md") for agent in service.agent_ids()] == ["x", "x"]
