"""Both engines report a wrong endpoint clearly: at once if no retry can help, else after a few seconds."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, FileOperationError, OutcomeUnknownError
from agent_memory.object_store.engine import NoResponse, PermanentError, Unreachable
from agent_memory.object_store.responses import Reachability
from agent_memory.object_store.retry import Attempts, OutOfTimeError
from tests.object_store.listeners import PAGE, listening, options, page
from tests.simulation.loop import VirtualLoop
from tests.support.loops import looped
from tests.support.servers import KEY, SECRET, by_both_engines, by_s3fs_or_both
from tests.support.sizes import long_except
from tests.support.tls import certificate

BUCKET = "bot-memories"
CALLS: dict[str, Callable[[AgentMemory], object]] = {
    "read": lambda memory: memory.read("a.md"),
    "stat": lambda memory: memory.stat("a.md"),
    "list": lambda memory: memory.list(),
    "list one level": lambda memory: memory.list(recursive=False),
    "exists": lambda memory: memory.exists("a.md"),
    "write": lambda memory: memory.write("a.md", "x"),
    "create": lambda memory: memory.create("a.md", "x"),
    "append": lambda memory: memory.append("a.md", "x"),
    "edit": lambda memory: memory.edit("a.md", str.upper),
    "delete": lambda memory: memory.delete("a.md"),
}
every_call = long_except(("read", "list", "append"), "call", CALLS)


@pytest.fixture(autouse=True)
def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hosts set these variables, which take precedence over each other."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def opened(storage_options: dict[str, object]) -> AgentMemory:
    return AgentMemory.open(f"s3://{BUCKET}/bot", storage_options=storage_options)


def refused(call: Callable[[AgentMemory], object], storage_options: dict[str, object]) -> str:
    """The error message of a call. Check that it names the store, but no credential and no host."""
    with opened(storage_options) as memory, pytest.raises(FileOperationError) as failed:
        call(memory)
    assert not isinstance(failed.value, OutcomeUnknownError)
    text = str(failed.value)
    assert BUCKET in text
    for hidden in (KEY, SECRET, "127.0.0.1", ".invalid"):
        assert hidden not in text
    return text


@by_both_engines
@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:4599",
        "ftp://127.0.0.1:4599",
        "localhost",
        "",
        "http://",
        "http://:9000",
        "http://h:99999",
        "http://a b",
    ],
)
def test_an_invalid_endpoint_is_refused_when_the_store_is_opened(engine: str, endpoint: str) -> None:
    with pytest.raises(TypeError, match=r"option endpoint(_url)?: an endpoint begins with http:// or https://"):
        opened(options(engine, endpoint))


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_error_names_an_environment_variable_with_an_invalid_endpoint(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "127.0.0.1:4599")
    with pytest.raises(TypeError, match=f"variable {variable}: an endpoint begins with http"):
        opened({})
    opened({"endpoint_url": "http://127.0.0.1:4599"}).close()  # the option takes precedence


def test_an_invalid_endpoint_in_a_configuration_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\nendpoint_url = 127.0.0.1:4599\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert "the configured endpoint must be a URL" in refused(CALLS["read"], {"key": KEY, "secret": SECRET})


@pytest.mark.long
@by_both_engines
@every_call
def test_an_unknown_host_is_reported(engine: str, call: Callable[[AgentMemory], object]) -> None:
    text = refused(call, options(engine, "http://no-such-host.invalid:9000"))
    assert text.endswith(": the host of the endpoint is not known")


@by_both_engines
@every_call
def test_an_endpoint_without_tls_is_reported_at_once(engine: str, call: Callable[[AgentMemory], object]) -> None:
    with listening(lambda _: page()) as server:
        text = refused(call, options(engine, f"https://{server.address}"))
    assert "does not speak TLS: is it http:// rather than https://" in text
    assert len(server.heard) <= 2, "a trial of the server removes its scratch object, in case it is there"


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.parametrize(
    ("engine", "advice"),
    [
        ("s3fs", r"option client_kwargs={'verify': FILE}, or in the variable AWS_CA_BUNDLE$"),
        ("obstore", r"variable SSL_CERT_FILE, or .* option client_options={'root_certificate': PEM}$"),
    ],
)
def test_an_untrusted_certificate_is_reported_at_once(engine: str, advice: str, untrusted: ssl.SSLContext) -> None:
    with listening(lambda _: page(), untrusted) as server:
        text = refused(CALLS["read"], options(engine, f"https://{server.address}"))
    assert ": the certificate of the endpoint is not trusted: " in text
    assert re.search(advice, text)
    assert len(server.heard) <= 1


CUT = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
AUTHORITY = r"option client_kwargs={'verify': FILE}, the variable AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE, or ca_bundle"
FILES: dict[str, tuple[str, str | None, Callable[[str], dict[str, object]], str]] = {
    "verify": ("s3fs", None, lambda file: {"client_kwargs": {"verify": file}}, AUTHORITY),
    "AWS_CA_BUNDLE": ("s3fs", "AWS_CA_BUNDLE", lambda _: {}, AUTHORITY),
    "REQUESTS_CA_BUNDLE": ("s3fs", "REQUESTS_CA_BUNDLE", lambda _: {}, AUTHORITY),
    "client_cert": ("s3fs", None, lambda file: {"config_kwargs": {"client_cert": file}}, "config_kwargs={'client_cert"),
    "proxy": (
        "s3fs",
        None,
        lambda file: {
            "config_kwargs": {"proxies": {"https": "https://p"}, "proxies_config": {"proxy_ca_bundle": file}}
        },
        "proxies_config in the option config_kwargs",
    ),
    "SSL_CERT_FILE": ("obstore", "SSL_CERT_FILE", lambda _: {}, "the variable SSL_CERT_FILE names no file"),
}


def of_certificates() -> Iterator[Any]:
    """Each file with each content; the short run takes one content of each file."""
    contents = {"missing": None, "empty": "", "garbage": "garbage", "cut": CUT}
    for number, (file, name) in enumerate(product(FILES, contents)):
        is_short = number % (len(contents) + 1) == 0
        marks = () if is_short else pytest.mark.long
        yield pytest.param(*FILES[file], contents[name], id=f"{file}-{name}", marks=marks)


@pytest.mark.parametrize(("engine", "variable", "more", "named", "content"), list(of_certificates()))
def test_a_file_of_certificates_that_cannot_be_used_is_told_and_not_the_endpoint(
    engine: str,
    variable: str | None,
    more: Callable[[str], dict[str, object]],
    named: str,
    content: str | None,
    untrusted: ssl.SSLContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "hidden.pem"
    (tmp_path / "others").mkdir()
    if content is not None:
        file.write_text(content)
    if variable:
        monkeypatch.setenv(variable, str(file))
    certificate(tmp_path / "others")
    (tmp_path / "others" / "cert.pem").rename(tmp_path / "others" / "00000000.0")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "others"))  # without any certificate obstore does not open
    with listening(lambda _: page(), untrusted) as server:
        for verb in ("read", "write"):
            text = refused(CALLS[verb], options(engine, f"https://{server.address}", **more(str(file))))
            assert f"bucket '{BUCKET}': the certificates cannot be used: " in text
            assert named in text
            assert "endpoint" not in text
            assert "hidden" not in text
    assert not any(server.heard), "no request was sent"


def test_the_configuration_of_aws_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {tmp_path / 'hidden'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert "ca_bundle in the AWS configuration" in refused(CALLS["read"], options("s3fs", "https://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("variable", "client", "named"),
    [
        (None, {"root_certificate": CUT}, r"option client_options\.root_certificate is no certificate in PEM"),
        (None, {"root_certificate": "/etc/hidden.pem"}, "No certificates found in `root_certificate`"),
        ("SSL_CERT_DIR", {}, "the variable SSL_CERT_DIR names no directory"),
        ("SSL_CERT_FILE", {}, "the variable SSL_CERT_FILE names no file"),
    ],
)
def test_obstore_refuses_certificates_when_the_store_is_opened(
    variable: str | None, client: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, "/no/such/hidden")
    with pytest.raises(ValueError, match=named) as failed:
        opened(options("obstore", "https://127.0.0.1:1", client_options=client))
    assert "hidden" not in str(failed.value)


@by_both_engines
@every_call
def test_missing_credentials_are_reported_and_no_request_is_sent(
    engine: str, call: Callable[[AgentMemory], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with listening(lambda _: page("403 Forbidden")) as server, listening(lambda _: page("403 Forbidden")) as metadata:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{metadata.address}")  # obstore ignores the variable above
        given = {name: each for name, each in options(engine, f"http://{server.address}").items() if "key" not in name}
        text = refused(call, {name: each for name, each in given.items() if name != "secret"})
    assert "there are no credentials" in text
    assert "AWS_ACCESS_KEY_ID" in text
    assert server.heard == []
    assert len(metadata.heard) <= 2, "by obstore; a trial of the server removes its scratch object"


@by_both_engines
@every_call
@looped("body", [PAGE, b"<a/>", b""])
def test_a_server_that_answers_200_without_s3_content_is_reported_at_once(
    engine: str, call: Callable[[AgentMemory], object], body: bytes
) -> None:
    with listening(lambda _: page(body=body)) as server:
        text = refused(call, options(engine, f"http://{server.address}"))
    assert "the answer is no" in text
    assert len(server.heard) <= 3


@by_both_engines
@every_call
def test_a_server_that_answers_404_to_everything_is_no_empty_store(
    engine: str, call: Callable[[AgentMemory], object]
) -> None:
    if call in (CALLS["stat"], CALLS["exists"], CALLS["delete"], CALLS["append"]):
        pytest.skip("an answer to HEAD has no body, so that of an S3 looks the same; the trial refuses an append")
    with listening(lambda _: page("404 Not Found")) as server:
        refused(call, options(engine, f"http://{server.address}"))
    assert len(server.heard) <= 2


@by_s3fs_or_both
@pytest.mark.parametrize("call", ["append", pytest.param("read", marks=pytest.mark.long)])
def test_a_refused_connection_is_retried_for_some_seconds_with_one_warning(
    engine: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without listen()
        text = refused(CALLS[call], options(engine, f"http://127.0.0.1:{held.getsockname()[1]}"))
    failed = re.search(r"\(the endpoint refuses the connection\), (\d+) requests in \d+\.\d s", text)
    assert failed, text
    told = [each for each in caplog.records if "retrying" in each.getMessage()]
    assert len(told) == (int(failed[1]) >= 4), "the fourth failure is told; a slow machine may have fewer"
    for each in told:
        assert each.levelno == logging.WARNING
        assert f"bucket '{BUCKET}'" in each.getMessage()
        assert "the endpoint refuses the connection" in each.getMessage()


@by_s3fs_or_both
def test_http_to_an_https_server_gives_a_hint(engine: str, untrusted: ssl.SSLContext) -> None:
    with listening(lambda _: page(), untrusted) as server:
        text = refused(CALLS["read"], options(engine, f"http://{server.address}"))
    assert "or https:// rather than http://" in text or "breaks HTTP" in text


def simulated(failure: Exception, seconds: float = 0.0) -> tuple[Exception, int, float]:
    """Fail every request after ``seconds``: return the operation's error, the number of requests and its duration."""
    requests = 0

    async def fail() -> None:
        nonlocal requests
        requests += 1
        await asyncio.sleep(seconds)
        raise failure

    async def play() -> tuple[Exception, int, float]:
        attempts = Attempts(lambda: 1.0, "the store")
        try:
            await attempts.until_answered(fail)
        except (PermanentError, OutOfTimeError) as error:
            return error, requests, asyncio.get_running_loop().time()
        raise AssertionError("there was an answer")

    return VirtualLoop().run(play())  # type: ignore[abstract]  # the missing methods are never called


def test_a_server_that_never_answered_is_retried_for_a_few_seconds() -> None:
    error, requests, ended = simulated(Unreachable("refused", sent=False))
    assert isinstance(error, PermanentError)
    assert 4 < requests < 20
    assert 5 <= ended < 10
    assert str(error) == f"refused, {requests} requests in {ended:.1f} s"


def test_a_connection_that_is_not_established_in_time_is_tried_once() -> None:
    error, requests, _ = simulated(Unreachable("no connection", sent=False), seconds=5.0)
    assert isinstance(error, PermanentError)
    assert requests == 1


def test_a_slow_first_answer_is_retried() -> None:
    error, requests, _ = simulated(Unreachable("no answer"), seconds=14.0)
    assert isinstance(error, PermanentError)
    assert requests == 4


def test_a_server_that_answered_before_is_retried_until_the_deadline() -> None:
    error, _, ended = simulated(NoResponse("refused", sent=False))
    assert isinstance(error, OutOfTimeError)
    assert ended > 50


@pytest.mark.parametrize("failure", [NoResponse("refused", sent=False), Unreachable("refused")])
def test_an_operation_that_retries_logs_one_warning(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    simulated(failure)
    (told,) = caplog.records
    assert told.getMessage().startswith("the store: refused; retrying for up to ")


def test_a_lasting_failure_is_permanent_only_until_the_server_has_answered() -> None:
    contact = Reachability()
    lasting = NoResponse("unknown host", sent=False, lasting=True)
    assert isinstance(contact.judged(lasting), PermanentError)
    assert isinstance(contact.judged(NoResponse("lost")), Unreachable)
    contact.made = True
    assert contact.judged(lasting) is lasting


@by_both_engines
@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:s3:us-east-1:123456789012:accesspoint/name",
        "arn:aws:s3:us-east-1:123456789012:accesspoint:name",
        "ARN:aws-cn:s3:::bucket",
        "arn:aws:s3-outposts:us-east-1:123456789012:outpost/op-1/accesspoint/name",
    ],
)
def test_an_arn_is_not_cut_at_its_slash_but_refused(engine: str, arn: str) -> None:
    with pytest.raises(ValueError, match=r"an ARN is no name of a bucket: .* give its alias"):
        AgentMemory.open(f"s3://{arn}/prefix", storage_options=options(engine, "http://127.0.0.1:1"))
