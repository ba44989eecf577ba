"""A failure of the service that gives obstore its credentials is told as one, and never as an answer of the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agent_memory import AgentMemory, FileOperationError, OutcomeUnknownError
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory.object_store.engine import NoResponse
from agent_memory_obstore import ObstoreBackend
from agent_memory_obstore._answers import translated
from tests.object_store.listeners import listening, page
from tests.support.servers import S3Server
from tests.support.tls import certificate

STS_500 = """Generic S3 error: Error performing POST

Debug source:
Generic {
    store: "S3",
    source: RetryError(
        RetryErrorImpl {
            method: POST,
            inner: Status {
                status: 500,
                body: None,
            },
        },
    ),
}"""


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("403 Forbidden", "AccessDenied", "access denied by their service"),
        ("400 Bad Request", "ExpiredToken", "their service answered ExpiredToken"),
    ],
)
@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_refusal_of_sts_is_told_as_one(
    ministack: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    code: str,
    expected: str,
    verb: str,
) -> None:
    (tmp_path / "token").write_text("token")
    context = certificate(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    body = f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>".encode()
    with listening(lambda _: page(status, body), context) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"https://{sts.address}")
        options = {"engine": "obstore", "endpoint": ministack.endpoint}
        with (
            AgentMemory.open(ministack.new_url(), storage_options=options) as memory,
            pytest.raises(FileOperationError) as failed,
        ):
            memory.read("a.md") if verb == "read" else memory.write("a.md", "x")
    assert str(failed.value).endswith(f"bucket 'memories': the credentials could not be obtained: {expected}")


def _fail() -> NoReturn:
    raise ValueError("hidden")


async def _fail_later() -> NoReturn:
    raise KeyError("hidden")


PROVIDERS: dict[str, Callable[[], object]] = {
    "fails": _fail,
    "fails later": _fail_later,
    "nothing": lambda: None,
    "numbers": lambda: {"access_key_id": 5, "secret_access_key": 6, "expires_at": None},
    "no date": lambda: {"access_key_id": "k", "secret_access_key": "s", "expires_at": "hidden"},
}


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_provider_without_keys_is_told_at_once_and_nothing_is_sent(provider: Callable[[], object], verb: str) -> None:
    with listening(lambda _: page("403 Forbidden")) as server:
        backend = ObstoreBackend("b", "", {"endpoint": f"http://{server.address}", "credential_provider": provider})
        text = refused(backend, verb)
    assert text.endswith(": the function in the option credential_provider failed, or returned none")
    assert server.heard == []


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_service_of_credentials_that_sends_no_json_is_told(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with listening(lambda _: page()) as service, listening(lambda _: page("403 Forbidden")) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{service.address}")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", os.devnull)
        text = refused(ObstoreBackend("b", "", {"endpoint": f"http://{server.address}"}), verb)
    assert text.endswith(": their service sent another answer than JSON")
    assert server.heard == []


def refused(backend: Any, verb: str) -> str:
    """The message of the first request of a backend, which must not say that the outcome is unknown."""
    arguments = (Key.tree().join("a.md"), *((b"x",) if verb == "write" else ()))
    with pytest.raises(FileOperationError) as failed:
        BlockingStore(backend).call(getattr(backend, verb), *arguments)
    assert not isinstance(failed.value, OutcomeUnknownError)
    assert "hidden" not in str(failed.value)
    assert "the credentials could not be obtained" in str(failed.value)
    return str(failed.value)


def test_a_write_was_not_sent_if_its_credentials_could_not_be_obtained() -> None:
    answer = translated(OSError(STS_500), of_object=True)
    assert isinstance(answer, NoResponse)
    assert not answer.sent
