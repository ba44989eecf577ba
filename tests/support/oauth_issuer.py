"""An OAuth issuer for the tests: a real HTTP server with metadata and a key set, and tokens with real signatures."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

METADATA = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
KEY_SET = "/keys"


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """The server, its keys by id, and the tokens that it issues for one audience."""

    def __init__(self) -> None:
        self.keys: dict[str, PrivateKeyTypes] = {"one": rsa_key()}
        self.audience = ""
        self.documents: dict[str, Any] = {}
        self.is_down = False
        self.answering = threading.Event()
        self.answering.set()
        self.requests: Counter[str] = Counter()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests[self.path] += 1
                issuer.answering.wait()
                document = None if issuer.is_down else issuer.document(self.path)
                data = json.dumps(document).encode()
                self.send_response(503 if issuer.is_down else 200 if document else 404)
                self.send_header("Content-Length", str(len(data)))
                with suppress(ConnectionError):  # the client was cancelled
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.documents[METADATA] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}{KEY_SET}",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
        }

    def document(self, path: str) -> Any:
        if path == KEY_SET and KEY_SET not in self.documents:
            return {"keys": [self.public(key_id) for key_id in self.keys]}
        return self.documents.get(path)

    def public(self, key_id: str) -> dict[str, Any]:
        """A public key as a JSON Web Key, without the names of its use and its algorithm."""
        key = self.keys[key_id]
        if isinstance(key, rsa.RSAPrivateKey):
            found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return {**{name: value for name, value in found.items() if name != "key_ops"}, "kid": key_id}

    def pem(self, key_id: str = "one") -> bytes:
        key = self.keys[key_id]
        assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
        return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """The claims of a good token; a change to None removes one."""
        now = int(time.time())
        good = {
            "iss": self.url, "aud": self.audience, "sub": "ann", "client_id": "editor", "scope": "memory",
            "iat": now, "exp": now + 3600,
        }  # fmt: skip
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(
        self,
        *,
        key: Any = None,
        key_id: str | None = "one",
        algorithm: str = "RS256",
        headers: Mapping[str, Any] | None = None,
        **changed: Any,
    ) -> str:
        head = {"typ": "at+jwt", **({} if key_id is None else {"kid": key_id}), **(headers or {})}
        signing: Any = key or self.keys[key_id or "one"]
        return jwt.encode(self.claims(**changed), signing, algorithm, head)


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()
    thread = threading.Thread(target=issuer.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.answering.set()
        issuer.server.shutdown()
        issuer.server.server_close()
        thread.join()
