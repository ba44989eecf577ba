"""A failure of the service that gives obstore its credentials is told as one, and never as an answer of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory import AgentMemory, FileOperationError
from agent_memory.object_store import NoResponse
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


def test_a_write_was_not_sent_if_its_credentials_could_not_be_obtained() -> None:
    answer = translated(OSError(STS_500), of_object=True)
    assert isinstance(answer, NoResponse)
    assert not answer.sent
