"""The public keys of an OAuth issuer: found by its metadata, cached, and fetched again at a bounded rate."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls

from agent_memory._json import parse_json
from agent_memory.mcp_server._addresses import is_loopback, split_url

ALGORITHMS: Final = frozenset({
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
})  # fmt: skip
"""The algorithms of accepted signatures; all are asymmetric."""
FRESH_SECONDS: Final = 300
"""The age of keys at which the next token makes the server fetch them again: the issuer may have removed one."""
USABLE_SECONDS: Final = 3600
"""The age of keys at which they are used no more, if the issuer does not answer."""
PAUSE_SECONDS: Final = 10
"""The least time between two attempts, so that tokens with an unknown key are no way to load the issuer."""
_FETCH_SECONDS: Final = 10
_STALE_SECONDS: Final = 1
"""The wait of a token for new keys while the earlier ones are usable."""
_LEAST_RSA_BITS: Final = 2048
_MAX_BYTES: Final = 1_000_000
_log = logging.getLogger("agent_memory.mcp_server")


class KeysUnavailable(Exception):
    """The issuer did not answer with its keys, and no earlier keys are usable."""


class IssuerKeys:
    """The keys with which an issuer signs, by their ids."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at = self._tried_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def usable(self) -> bool:
        """Whether there are keys that are not too old; fetches them otherwise, unless the last attempt was just now."""
        if self._age > USABLE_SECONDS:
            await self._refresh()
        return self._age <= USABLE_SECONDS

    async def require(self) -> None:
        """Raise `KeysUnavailable` if there are no usable keys."""
        if not await self.usable():
            raise KeysUnavailable

    async def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key with an id and an algorithm; without an id, the only key.

        The algorithm of a key is that of the issuer's key set, so a token cannot choose another for the same key.
        """
        if self._age > FRESH_SECONDS:
            await self._refresh(_STALE_SECONDS if self._age <= USABLE_SECONDS else None)
        found = self._known(key_id, algorithm)
        if found is None:
            await self._refresh()
            found = self._known(key_id, algorithm)
        return found

    @property
    def _age(self) -> float:
        return time.monotonic() - self._fetched_at

    def _known(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        if self._age > USABLE_SECONDS or (key_id is None and len(self._keys) != 1):
            return None
        named = (key for key in self._keys if key_id in (None, key.key_id))
        return next((key for key in named if key.algorithm_name == algorithm), None)

    async def _refresh(self, seconds: float | None = None) -> None:
        """Wait for new keys, at most some seconds; a waiting request that is cancelled does not cancel the others'."""
        if self._fetching is None:
            if time.monotonic() - self._tried_at < PAUSE_SECONDS:
                return
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.wait([self._fetching], timeout=seconds)

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                self._keys = await _fetched(self._issuer)
            self._fetched_at = time.monotonic()
        except (httpx2.HTTPError, httpx2.InvalidURL, jwt.PyJWTError, TimeoutError, TypeError, ValueError) as error:
            _log.error("the keys of the OAuth issuer cannot be fetched (%s)", _reason(error))
        finally:
            self._tried_at = time.monotonic()
            self._fetching = None


def checked_issuer(url: str) -> str:
    """The URL of an issuer, as it is; raises `ValueError` if its keys would not come over TLS or from this host."""
    parts = split_url(url)
    if parts is None or not _is_trusted(url):
        raise ValueError(
            "the issuer must be an https:// URL without a user, query and fragment; or http:// on loopback"
        )
    return url


def _is_trusted(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


async def _fetched(issuer: str) -> list[jwt.PyJWK]:
    """The keys for signatures with one of `ALGORITHMS`; redirects are not followed."""
    async with httpx2.AsyncClient(timeout=_FETCH_SECONDS) as client:
        url = await _key_set_url(client, issuer)
        found = jwt.PyJWKSet.from_dict(await _document(client, url)).keys
    keys = [key for key in found if _is_strong(key)]
    if not keys:
        raise ValueError("the key set has no key for an asymmetric signature")
    return keys


async def _key_set_url(client: httpx2.AsyncClient, issuer: str) -> str:
    """The URL of the key set, from the first metadata document that is this issuer's: of RFC 8414 or OpenID Connect."""
    reason: Exception = ValueError("there is no metadata")
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
        try:
            metadata = await _document(client, url)
        except (httpx2.HTTPError, ValueError) as error:
            reason = error
            continue
        found = metadata.get("jwks_uri")
        if metadata.get("issuer") != issuer:
            reason = ValueError("the metadata names another issuer")
        elif not isinstance(found, str) or not _is_trusted(found):
            reason = ValueError("the metadata has no https:// URL of a key set")
        else:
            return found
    raise reason


async def _document(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
        if answer.status_code != httpx2.codes.OK:
            raise ValueError(f"status {answer.status_code}")
        data = bytearray()
        async for block in answer.aiter_bytes():
            data += block
            if len(data) > _MAX_BYTES:
                raise ValueError("the answer is too long")
    document = parse_json(bytes(data))
    if not isinstance(document, dict):
        raise ValueError("the answer is not a JSON object")
    return document


def _is_strong(key: jwt.PyJWK) -> bool:
    if key.algorithm_name not in ALGORITHMS or key.public_key_use not in (None, "sig"):
        return False
    return key.key_type != "RSA" or key.key.key_size >= _LEAST_RSA_BITS


def _reason(error: Exception) -> str:
    """Our own reasons, and otherwise only the kind: the text of an error may quote an answer."""
    return str(error) if type(error) is ValueError else type(error).__name__
