"""The server as an OAuth 2.1 resource server: access tokens are JWTs of one issuer, for this server's URL."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_memory._json import parse_json
from agent_memory.mcp_server._issuer import ALGORITHMS, PAUSE_SECONDS, IssuerKeys, checked_issuer

MAX_TOKEN_CHARACTERS: Final = 16_384
LEEWAY_SECONDS: Final = 30
"""The difference between the clocks of the issuer and this host that ``nbf`` and ``iat`` may have; ``exp`` has none."""
_TYPES: Final = frozenset({"jwt", "at+jwt"})
"""The types of tokens that an API accepts (RFC 9068); a token for another purpose states another type."""
_REQUIRED: Final = ["aud", "exp", "iss", "sub"]
_log = logging.getLogger("agent_memory.mcp_server")


@dataclass(frozen=True)
class OAuth:
    """The issuer of access tokens, and what a token must have.

    Attributes:
        issuer: the URL of the authorization server, as in the claim ``iss``.
        audience: the value that the claim ``aud`` is or contains; None: the URL of this server.
        scopes: the scopes that every token must have.
        write_scope: a scope that clients are told to request too; see `can_write`.

    Raises:
        ValueError: the issuer is not an ``https://`` URL, or a scope is not a word.
    """

    issuer: str
    audience: str | None = None
    scopes: Sequence[str] = ()
    write_scope: str | None = None

    def __post_init__(self) -> None:
        checked_issuer(self.issuer)
        for scope in self._offered:
            if not scope or not all("!" <= character <= "~" and character not in '"\\' for character in scope):
                raise ValueError('a scope is one word of printable ASCII characters without " and \\')

    def can_write(self, token: AccessToken) -> bool:
        """Whether a token has the scope for changes, or there is none."""
        return self.write_scope is None or self.write_scope in token.scopes

    @property
    def challenge(self) -> str:
        """The scopes for the header ``WWW-Authenticate``."""
        return " ".join(self._offered)

    @property
    def _offered(self) -> list[str]:
        return [*dict.fromkeys([*self.scopes, *([] if self.write_scope is None else [self.write_scope])])]


class TokenReader:
    """Verifies access tokens: signature, issuer, audience, times; the SDK compares the scopes."""

    def __init__(self, oauth: OAuth, resource: str) -> None:
        self.oauth = oauth
        self.keys = IssuerKeys(oauth.issuer)
        self._resource = resource
        self._audience = oauth.audience or resource

    def settings(self) -> AuthSettings:
        """The settings for the SDK's server."""
        return AuthSettings(
            issuer_url=self.oauth.issuer,  # type: ignore[arg-type]  # as text, it keeps its form
            resource_server_url=AnyHttpUrl(self._resource),
            required_scopes=[*self.oauth.scopes],
            validate_token_resource=False,  # the reader compares the audience
        )

    async def verify_token(self, token: str) -> AccessToken | None:
        """What a token says; None if it is refused. Neither the token nor a claim is logged."""
        try:
            return _access(token, await self._claims(token), self._audience)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            _log.info("an access token was refused (%s)", type(error).__name__)
            return None

    async def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a valid token; its header is parsed here first, with a bound on its nesting."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise jwt.DecodeError
        head = token.partition(".")[0]
        header = parse_json(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        if not isinstance(header, dict) or "crit" in header or _type(header) not in _TYPES:
            raise jwt.DecodeError
        key_id, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in ALGORITHMS or not isinstance(key_id, str | None):
            raise jwt.InvalidAlgorithmError
        key = await self.keys.find(key_id, algorithm)
        if key is None:
            raise jwt.InvalidKeyError
        claims: dict[str, Any] = jwt.decode(
            token, key.key, algorithms=[key.algorithm_name], audience=self._audience, issuer=self.oauth.issuer,
            leeway=LEEWAY_SECONDS, options={"require": _REQUIRED},
        )  # fmt: skip
        if "cnf" in claims:  # the token belongs to a key, and this server cannot tell whether the client has that key
            raise jwt.InvalidTokenError
        return claims


def _type(header: dict[str, Any]) -> str:
    return str(header.get("typ", "JWT")).lower().removeprefix("application/")


def _access(token: str, claims: dict[str, Any], audience: str) -> AccessToken:
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject:
        raise jwt.InvalidTokenError
    subject.encode()  # a lone surrogate cannot be recorded
    client = claims.get("client_id", claims.get("azp", subject))
    return AccessToken(
        token=token,
        client_id=str(client),
        scopes=_scopes(claims),
        expires_at=int(claims["exp"]),
        resource=audience,
        subject=subject,
        claims=claims,
    )


def _scopes(claims: dict[str, Any]) -> list[str]:
    """The scopes: text as in RFC 9068, or ``scp``, as some servers have it, a text or a list."""
    found = claims.get("scope", claims.get("scp", ""))
    words = found.split(" ") if isinstance(found, str) else found
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise jwt.InvalidTokenError
    return words


class BehindOAuth:
    """Answers with 503 while no keys are known, and names the scopes to request where access is refused."""

    def __init__(self, app: ASGIApp, reader: TokenReader) -> None:
        self._app = app
        self._scopes = f', scope="{reader.oauth.challenge}"'.encode() if reader.oauth.challenge else b""
        self._keys = reader.keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [each for each in scope.get("headers", ()) if each[0] == b"authorization"]
        if len(given) > 1:  # the SDK would take the first, and a proxy perhaps another
            scope = {**scope, "headers": [each for each in scope["headers"] if each not in given]}
        elif given and not await self._keys.usable():
            unavailable = Response(status_code=503, headers={"Retry-After": str(PAUSE_SECONDS)})
            await unavailable(scope, receive, send)
            return

        async def send_with_scopes(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*map(self._with_scopes, message.get("headers", ()))]}
            await send(message)

        await self._app(scope, receive, send_with_scopes)

    def _with_scopes(self, header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        name, value = header
        return (name, value + self._scopes) if name == b"www-authenticate" else header
