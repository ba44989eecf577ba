"""Credentials that a tool renews are read anew after the server refused the old ones; errors tell where they failed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from aiohttp import web

from agent_memory import AgentMemory, FileOperationError, OutcomeUnknownError
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory_s3 import S3Backend
from agent_memory_s3._credentials import RenewableCredentials
from tests.backends.s3.test_s3 import EVERY_CALL, every_call
from tests.object_store.listeners import listening, page
from tests.object_store.proxy import Fault, Proxy
from tests.support import sizes
from tests.support.servers import S3Server

VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


class Profile:
    """A profile with a session token in the files of AWS."""

    def __init__(self, directory: Path) -> None:
        self.credentials, self.config = directory / "credentials", directory / "config"
        self.config.write_text("")
        self.renew("old")

    def renew(self, token: str, key: str = "key") -> None:
        lines = ("[default]", f"aws_access_key_id = {key}", "aws_secret_access_key = s", f"aws_session_token = {token}")
        self.credentials.write_text("\n".join(lines) + "\n")


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    found = Profile(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(found.credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(found.config))
    return found


class Guard:
    """A server that accepts one token, and refuses others with a code.

    Attributes:
        accepted: the token.
        answer: the status and the code for another one.
        seen: the tokens of all requests.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.accepted = "old"
        self.answer: tuple[int, str] = (400, "ExpiredToken")
        self.seen: list[str] = []
        self.proxy = proxy
        proxy.instead = self._refused

    def _refused(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("X-Amz-Security-Token", "")
        self.seen.append(token)
        if token == self.accepted:
            return None
        status, code = self.answer
        text = "" if request.method == "HEAD" else f"<Error><Code>{code}</Code></Error>"
        return web.Response(status=status, text=text, content_type="application/xml")


@pytest.fixture
def guard(ministack: S3Server) -> Iterator[Guard]:
    with Proxy(ministack.endpoint) as proxy:
        yield Guard(proxy)


@pytest.fixture
def memory(guard: Guard, ministack: S3Server, profile: Profile) -> Iterator[AgentMemory]:
    del profile
    with AgentMemory.open(ministack.new_url(), storage_options={"endpoint_url": guard.proxy.endpoint}) as memory:
        memory.write("a.md", "x")
        yield memory


@pytest.mark.long
@pytest.mark.parametrize("call", [each for name, each in EVERY_CALL.items() if name != "create"])
def test_a_renewed_token_is_picked_up_by_every_call(
    memory: AgentMemory, guard: Guard, profile: Profile, call: Callable[[AgentMemory], object]
) -> None:
    for token in ("second", "third"):
        memory.write("a.md", "x")
        profile.renew(token)
        guard.accepted = token
        call(memory)
        assert guard.seen[-1] == token


OF_CREDENTIALS = [
    (403, "InvalidAccessKeyId"),
    (401, "ExpiredToken"),
    (403, "ExpiredToken"),
    (400, "ExpiredTokenException"),
    (400, "TokenRefreshRequired"),
    (400, "InvalidToken"),
    (403, "SignatureDoesNotMatch"),
]
OTHERS = [(403, "AccessDenied"), (403, "RequestTimeTooSkewed"), (400, "Other")]


def codes(answers: list[tuple[int, str]], short: int) -> pytest.MarkDecorator:
    """Parametrize a test with answers; only the first ones are in the short run."""
    values = [
        pytest.param(*each, marks=() if number < short else pytest.mark.long) for number, each in enumerate(answers)
    ]
    return pytest.mark.parametrize(("status", "code"), values)


@codes(OF_CREDENTIALS, 2)
def test_codes_that_prove_that_nothing_was_done(
    memory: AgentMemory, guard: Guard, profile: Profile, status: int, code: str
) -> None:
    guard.answer, guard.accepted = (status, code), "new"
    profile.renew("new")
    memory.write("a.md", "y")
    assert memory.read("a.md") == "y"


@codes(OTHERS, 1)
def test_other_refusals_read_no_credentials(
    memory: AgentMemory, guard: Guard, profile: Profile, status: int, code: str
) -> None:
    guard.answer, guard.accepted = (status, code), "new"
    profile.renew("new")
    with pytest.raises(FileOperationError):
        memory.write("a.md", "y")
    assert set(guard.seen) == {"old"}


def test_a_token_that_was_not_renewed_is_refused_without_a_repetition(
    memory: AgentMemory, guard: Guard, profile: Profile
) -> None:
    guard.accepted = "new"
    before = len(guard.seen)
    with pytest.raises(FileOperationError, match="ExpiredToken") as failed:
        memory.write("a.md", "y")
    assert not isinstance(failed.value, OutcomeUnknownError)
    assert len(guard.seen) == before + 1
    profile.renew("new")
    memory.write("a.md", "y")
    assert memory.read("a.md") == "y"


def test_a_request_is_repeated_once_only(memory: AgentMemory, guard: Guard, profile: Profile) -> None:
    guard.accepted = "never"
    profile.renew("new")
    before = len(guard.seen)
    with pytest.raises(FileOperationError, match="ExpiredToken"):
        memory.write("a.md", "y")
    assert guard.seen[before:] == ["old", "new"]


def test_a_lost_answer_reads_no_credentials(memory: AgentMemory, guard: Guard, profile: Profile) -> None:
    faults: Iterator[Fault] = iter(("reply lost", "500 after it was done", "reset"))
    guard.proxy.choose = lambda _: next(faults, None)
    profile.renew("new")
    memory.append("a.md", "y")
    assert memory.read("a.md") == "xy"
    assert set(guard.seen) == {"old"}


def test_threads_that_meet_an_expired_token_at_once_all_go_on(
    memory: AgentMemory, guard: Guard, profile: Profile
) -> None:
    turns = 5 if sizes.is_long else 2
    for turn in range(turns):
        profile.renew(f"{turn}")
        guard.accepted = f"{turn}"
        start = threading.Barrier(8)

        def append(number: int, start: threading.Barrier = start, turn: int = turn) -> None:
            start.wait()
            memory.append("log.md", f"{turn} {number}\n")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(8)))
    assert sorted(memory.read("log.md").splitlines()) == sorted(f"{t} {n}" for t in range(turns) for n in range(8))


def test_credentials_in_the_options_are_not_replaced(ministack: S3Server, guard: Guard, profile: Profile) -> None:
    options = {"endpoint_url": guard.proxy.endpoint, "key": "k", "secret": "s", "token": "given"}
    guard.accepted = "given"
    with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
        memory.write("a.md", "x")
        profile.renew("new")
        guard.accepted = "new"
        with pytest.raises(FileOperationError, match="ExpiredToken"):
            memory.write("a.md", "y")


class Keys:
    """Credentials that renew themselves."""

    def __init__(self, keys: str) -> None:
        self.keys = keys

    async def get_frozen_credentials(self) -> str:
        return self.keys


def test_keys_that_were_renewed_since_the_request_are_used_without_being_read_anew() -> None:
    """Credentials of a role, a login or a machine renew themselves shortly before they expire."""
    own, reads = Keys("old"), 0

    async def load() -> Keys:
        return own

    async def load_anew() -> Keys:
        nonlocal reads
        reads += 1
        return Keys("new")

    async def play() -> None:
        credentials = RenewableCredentials(load, load_anew)
        assert not await credentials.renew(await credentials.get_frozen_credentials())
        await credentials.load_credentials()
        own.keys = "new"
        assert await credentials.renew("old")
        assert reads == 0
        assert not await credentials.renew("new")
        assert reads == 1

    asyncio.run(play())


GOOD = "[default]\naws_access_key_id = key\naws_secret_access_key = s\n"
DAMAGED_FILE = "a file of the AWS configuration or credentials is damaged"
NO_KEYS = "their provider, such as a credential_process, returned none"
DAMAGED_SOURCE = "their source, such as a file or a credential_process, is damaged"


def outputs(text: str) -> str:
    """A configuration whose credential_process prints a text."""
    return f"[default]\ncredential_process = printf %s '{text}'\n"


WITHOUT_KEYS = {
    "no section": ("aws_access_key_id = hidden\n", "", DAMAGED_FILE),
    "a section twice": (GOOD + GOOD, "", DAMAGED_FILE),
    "cut": ("[default]\naws_access_key_id = hidden\naws_secr", "", DAMAGED_FILE),
    "one key": ("[default]\naws_access_key_id = hidden\n", "", "both a key and its secret are needed"),
    "a line end": ("[default]\naws_access_key_id = k\n  hidden\naws_secret_access_key = s\n", "", DAMAGED_SOURCE),
    "no JSON": ("", outputs("hidden"), DAMAGED_SOURCE),
    "another JSON": ("", outputs('["hidden"]'), DAMAGED_SOURCE),
    "a number": ("", outputs('{"Version":1,"AccessKeyId":5,"SecretAccessKey":6}'), DAMAGED_SOURCE),
    "no key": ("", outputs('{"Version":1}'), NO_KEYS),
    "an unclosed quote": ("", "[default]\ncredential_process = echo 'hidden\n", DAMAGED_SOURCE),
    "no source": (
        "",
        "[default]\nrole_arn = hidden\nsource_profile = none\n",
        "a setting of the profile, such as role_arn",
    ),
}
without_keys = pytest.mark.parametrize(
    ("credentials", "config", "reason"), WITHOUT_KEYS.values(), ids=WITHOUT_KEYS.keys()
)


@without_keys
def test_damaged_credentials_are_told_when_the_store_is_opened_or_first_used(
    ministack: S3Server, profile: Profile, credentials: str, config: str, reason: str
) -> None:
    profile.credentials.write_text(credentials)
    profile.config.write_text(config)
    with pytest.raises((FileOperationError, ValueError), match=reason) as failed:
        AgentMemory.open(ministack.new_url(), storage_options={"endpoint_url": ministack.endpoint}).write("a.md", "x")
    assert not isinstance(failed.value, OutcomeUnknownError)
    assert not any(hidden in str(failed.value) for hidden in ("hidden", str(profile.config.parent), "ConfigParse"))


@pytest.mark.parametrize(
    ("call", "credentials", "config", "reason"),
    [
        pytest.param(EVERY_CALL[call], *given, marks=() if number % 9 == 0 else pytest.mark.long)
        for number, (given, call) in enumerate(product(WITHOUT_KEYS.values(), ("write", "append", "delete", "read")))
        if NO_KEYS not in given  # retried until the deadline, because the provider may have some later
    ],
)
def test_credentials_that_were_damaged_since_the_last_request_are_told_and_nothing_is_done(
    memory: AgentMemory,
    guard: Guard,
    profile: Profile,
    call: Callable[[AgentMemory], object],
    credentials: str,
    config: str,
    reason: str,
) -> None:
    guard.accepted = "new"
    profile.credentials.write_text(credentials)
    profile.config.write_text(config)
    with pytest.raises(FileOperationError, match=reason) as failed:
        call(memory)
    assert not isinstance(failed.value, OutcomeUnknownError)
    assert "hidden" not in str(failed.value)
    guard.accepted = "old"
    assert memory.read("a.md") == "x"


def test_a_write_whose_session_has_damaged_credentials_was_not_sent(ministack: S3Server, profile: Profile) -> None:
    """The session's own provider raises within the client's call."""
    profile.credentials.write_text("")
    profile.config.write_text(outputs("hidden"))
    backend: Any = S3Backend("memories", "", {"endpoint_url": ministack.endpoint, "session": AioSession()})
    with pytest.raises(FileOperationError, match="no request could be made") as failed:
        BlockingStore(backend).call(backend.write, Key.tree().join("a.md"), b"x")
    assert not isinstance(failed.value, OutcomeUnknownError)


ROLE = "arn:aws:iam::123456789012:role/reader"


def assume(profile: Profile, role: str) -> None:
    profile.config.write_text(f"[profile assuming]\nrole_arn = {role}\nsource_profile = default\nregion = us-east-1\n")


def refused(server: S3Server, call: Callable[[AgentMemory], object], name: str | None = "assuming") -> str:
    """The error message of a call, which must not say that the outcome is unknown, nor have an ARN or a host."""
    options = {"endpoint_url": server.endpoint, **({"profile": name} if name else {})}
    with (
        AgentMemory.open(server.new_url(), storage_options=options) as memory,
        pytest.raises(FileOperationError) as failed,
    ):
        call(memory)
    assert not isinstance(failed.value, OutcomeUnknownError)
    text = str(failed.value)
    assert not any(hidden in text for hidden in ("arn:", "127.0.0.1", "secret"))
    return text.partition("bucket 'memories': ")[2]


@every_call
def test_a_refusal_of_sts_is_told_as_one(
    ministack: S3Server, profile: Profile, call: Callable[[AgentMemory], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assume(profile, ROLE)
    body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>secret</Message></Error></ErrorResponse>"
    with listening(lambda _: page("403 Forbidden", body)) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{sts.address}")
        text = refused(ministack, call)
    assert text == "the credentials could not be obtained: access denied by AssumeRole"


def test_an_expired_token_of_sts_is_told_with_its_code(
    ministack: S3Server, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assume(profile, ROLE)
    body = b"<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>"
    with listening(lambda _: page("400 Bad Request", body)) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{sts.address}")
        text = refused(ministack, EVERY_CALL["write"])
    assert text == "the credentials could not be obtained: AssumeRole answered ExpiredToken"


def test_an_invalid_role_is_not_told_as_a_bucket(ministack: S3Server, profile: Profile) -> None:
    assume(profile, "reader")
    text = refused(ministack, EVERY_CALL["write"])
    assert text == "the credentials could not be obtained: a setting of the profile, such as role_arn, is not valid"


@pytest.mark.long
def test_an_sts_that_does_not_answer_is_told(
    ministack: S3Server, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assume(profile, ROLE)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{held.getsockname()[1]}")
        text = refused(ministack, EVERY_CALL["write"])
    assert text.startswith("the credentials could not be obtained (EndpointConnectionError), ")


def test_a_missing_web_identity_token_is_told(
    ministack: S3Server, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.credentials.write_text("")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "missing"))
    assert refused(ministack, EVERY_CALL["read"], None) == "the credentials could not be obtained (FileNotFoundError)"


def test_a_login_that_was_never_made_is_told(ministack: S3Server, profile: Profile) -> None:
    profile.config.write_text(
        "[profile assuming]\nsso_start_url = https://example.org\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\nregion = us-east-1\n"
    )
    assert "log in again" in refused(ministack, EVERY_CALL["write"])


def test_an_invalid_name_of_a_bucket_is_told(ministack: S3Server) -> None:
    with AgentMemory.open("s3://not_a_*_bucket", storage_options=ministack.options) as memory:
        with pytest.raises(FileOperationError, match="check the name of the bucket"):
            memory.write("a.md", "x")
