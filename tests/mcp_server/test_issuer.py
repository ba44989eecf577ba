"""The keys of an OAuth issuer, with a real one: discovery, rotation, an issuer that is down, bounded requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from agent_memory.mcp_server import OAuth, _issuer
from agent_memory.mcp_server._issuer import IssuerKeys
from agent_memory.mcp_server._oauth import TokenReader
from tests.support.oauth_issuer import KEY_SET, METADATA, OPENID, Issuer, issuing, rsa_key

pytestmark = pytest.mark.asyncio


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        issuer.audience = "https://memory.example.org/mcp"
        yield issuer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass for the cache of keys."""
    passed = [0.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + passed[0]

    def let_pass(seconds: float) -> None:
        passed[0] += seconds

    monkeypatch.setattr(_issuer, "time", Clock)
    return let_pass


def reader_of(issuer: Issuer) -> TokenReader:
    return TokenReader(OAuth(issuer.url), issuer.audience)


async def is_accepted(issuer: Issuer, reader: TokenReader, **how: Any) -> bool:
    return await reader.verify_token(issuer.token(**how)) is not None


async def test_the_keys_are_fetched_once_for_many_tokens_at_once(issuer: Issuer) -> None:
    reader = reader_of(issuer)
    assert all(await asyncio.gather(*(is_accepted(issuer, reader) for _ in range(20))))
    assert issuer.requests == {METADATA: 1, KEY_SET: 1}


async def test_the_metadata_of_openid_connect_is_found_too(issuer: Issuer) -> None:
    issuer.documents[OPENID] = issuer.documents.pop(METADATA)
    assert await is_accepted(issuer, reader_of(issuer))


async def test_an_issuer_with_a_path_is_found(issuer: Issuer) -> None:
    document = issuer.documents.pop(METADATA)
    issuer.url += "/tenant"
    for place in (f"{METADATA}/tenant", f"{OPENID}/tenant", f"/tenant{OPENID}"):
        issuer.documents[place] = {**document, "issuer": issuer.url}
        assert await is_accepted(issuer, reader_of(issuer))
        del issuer.documents[place]


async def test_a_new_key_is_accepted_and_a_removed_one_is_refused_later(
    issuer: Issuer, clock: Callable[[float], None]
) -> None:
    reader = reader_of(issuer)
    assert await is_accepted(issuer, reader)
    old = issuer.keys["one"]
    issuer.keys = {"two": ec.generate_private_key(ec.SECP384R1())}
    clock(_issuer.PAUSE_SECONDS)
    assert await is_accepted(issuer, reader, key_id="two", algorithm="ES384")
    assert not await is_accepted(issuer, reader, key=old, key_id="one")
    issuer.keys = {"three": rsa_key()}
    clock(_issuer.FRESH_SECONDS + 1)
    assert await is_accepted(issuer, reader, key_id="three")


async def test_a_removed_key_is_refused_when_the_keys_are_no_longer_fresh(
    issuer: Issuer, clock: Callable[[float], None]
) -> None:
    reader = reader_of(issuer)
    old = issuer.keys["one"]
    assert await is_accepted(issuer, reader)
    issuer.keys = {"two": rsa_key()}
    clock(_issuer.FRESH_SECONDS + 1)
    assert not await is_accepted(issuer, reader, key=old, key_id="one")


async def test_tokens_with_unknown_keys_cause_no_more_than_one_request_in_each_pause(
    issuer: Issuer, clock: Callable[[float], None]
) -> None:
    reader = reader_of(issuer)
    assert await is_accepted(issuer, reader)
    for round_ in range(1, 4):
        for number in range(20):
            assert not await is_accepted(issuer, reader, key=issuer.keys["one"], key_id=f"unknown {number}")
        assert issuer.requests[KEY_SET] == round_
        clock(_issuer.PAUSE_SECONDS)


async def test_the_keys_are_used_for_an_hour_while_the_issuer_is_down(
    issuer: Issuer, clock: Callable[[float], None]
) -> None:
    reader = reader_of(issuer)
    assert await reader.keys.usable()
    issuer.is_down = True
    clock(_issuer.USABLE_SECONDS - 60)
    assert await is_accepted(issuer, reader)
    clock(120)
    assert not await is_accepted(issuer, reader)
    assert not await reader.keys.usable()
    issuer.is_down = False
    clock(_issuer.PAUSE_SECONDS)
    assert await reader.keys.usable()
    assert await is_accepted(issuer, reader)


async def test_a_client_that_goes_away_does_not_keep_the_keys_from_being_fetched(issuer: Issuer) -> None:
    reader = reader_of(issuer)
    issuer.answering.clear()
    leaving = asyncio.create_task(is_accepted(issuer, reader))
    while not issuer.requests:  # noqa: ASYNC110 - another thread counts them
        await asyncio.sleep(0.01)
    leaving.cancel()
    staying = asyncio.create_task(is_accepted(issuer, reader))
    await asyncio.wait([leaving])
    issuer.answering.set()
    assert await staying
    assert leaving.cancelled()


async def test_known_keys_are_used_while_the_issuer_does_not_answer(
    issuer: Issuer, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_issuer, "_FETCH_SECONDS", 3600)
    reader = reader_of(issuer)
    assert await is_accepted(issuer, reader)
    issuer.answering.clear()
    clock(_issuer.FRESH_SECONDS + 1)
    assert all(await asyncio.gather(*(is_accepted(issuer, reader) for _ in range(20))))
    assert not issuer.answering.is_set()


BAD: dict[str, Callable[[Issuer], None]] = {
    "down": lambda issuer: setattr(issuer, "is_down", True),
    "without metadata": lambda issuer: issuer.documents.clear(),
    "no object": lambda issuer: issuer.documents.update({METADATA: ["x"]}),
    "another issuer": lambda issuer: issuer.documents[METADATA].update(issuer="http://127.0.0.1:1"),
    "keys without TLS": lambda issuer: issuer.documents[METADATA].update(jwks_uri="http://keys.example/keys"),
    "keys in a file": lambda issuer: issuer.documents[METADATA].update(jwks_uri="file:///etc/passwd"),
    "keys that are no URL": lambda issuer: issuer.documents[METADATA].update(jwks_uri=7),
    "keys at a port that is none": lambda issuer: issuer.documents[METADATA].update(jwks_uri="https://a:x/"),
    "no keys": lambda issuer: issuer.documents.update({KEY_SET: {"keys": []}}),
    "strange keys": lambda issuer: issuer.documents.update({KEY_SET: {"keys": [{"kty": "RSA", "alg": ["x"]}]}}),
    "a long document": lambda issuer: issuer.documents.update({KEY_SET: {"keys": [], "x": "x" * 1_100_000}}),
    "a deep document": lambda issuer: issuer.documents.update({KEY_SET: _deep(500)}),
    "only a secret": lambda issuer: issuer.documents.update(
        {KEY_SET: {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}]}}
    ),
    "only a key for encryption": lambda issuer: issuer.documents.update(
        {KEY_SET: {"keys": [{**issuer.public("one"), "use": "enc"}]}}
    ),
    "a short key": lambda issuer: issuer.keys.update(one=rsa_key(1024)),
}


def _deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"keys": found}
    return found


@pytest.mark.parametrize("make_bad", BAD.values(), ids=BAD)
async def test_an_issuer_without_valid_keys_is_logged_and_gives_none(
    issuer: Issuer, make_bad: Callable[[Issuer], None], caplog: pytest.LogCaptureFixture
) -> None:
    make_bad(issuer)
    keys = IssuerKeys(issuer.url)
    with caplog.at_level(logging.DEBUG, "agent_memory"):
        assert not await keys.usable()
    (record,) = caplog.records
    assert record.message.startswith("the keys of the OAuth issuer cannot be fetched (")
    assert issuer.url not in record.message


async def test_a_refused_token_is_logged_without_the_token_and_its_claims(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(issuer)
    with caplog.at_level(logging.DEBUG):
        refused: list[dict[str, Any]] = [{"aud": "other-audience"}, {"exp": 1}, {"iss": "other-issuer"}]
        for changed in [*refused, {}]:
            token = issuer.token(sub="secret-subject", **changed)
            await reader.verify_token(token)
            for part in (*token.split("."), "secret-subject", "other-", issuer.audience):
                assert part not in caplog.text
    assert caplog.text.count("an access token was refused (") == 3


@pytest.mark.parametrize(
    "url",
    ["", "issuer", "http://issuer.example", "ftp://issuer.example", "https://", "https://a@b/", "https://a/?x", "https://a/#x",
     "http://127.0.0.1.example", "http://localhost.example", "https://a:x/"],
)  # fmt: skip
async def test_an_issuer_must_be_reached_over_tls_or_on_this_host(url: str) -> None:
    with pytest.raises(ValueError, match="the issuer must be an https:// URL"):
        OAuth(url)


@pytest.mark.parametrize("scope", ["", "a b", 'a"', "a\\", "é", "a\n"])
async def test_a_scope_is_one_word(scope: str) -> None:
    with pytest.raises(ValueError, match="a scope is one word"):
        OAuth("https://issuer.example", scopes=[scope])
