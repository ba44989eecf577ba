"""Behaviour specific to the engine obstore: options, forked processes, names, and the store's clock."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from obstore.exceptions import GenericError

from agent_memory import (
    AgentMemory,
    BackendNotAvailableError,
    FileOperationError,
    InvalidPathError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
)
from agent_memory.object_store import Writer
from agent_memory.object_store.engine import (
    AccessDenied,
    NoResponse,
    NotFound,
    NotSatisfiable,
    PermanentError,
    PreconditionFailed,
    WriteConflict,
)
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import run_sync
from agent_memory_obstore import ObstoreBackend, _client, _opening
from agent_memory_obstore._answers import translated
from agent_memory_obstore._client import ObstoreStore
from agent_memory_obstore._opening import s3_store
from tests.object_store.proxy import Fault, Proxy
from tests.support.servers import SECRET, S3Server
from tests.support.sizes import also


@pytest.fixture
def server(ministack: S3Server) -> S3Server:
    return ministack.by("obstore")


@pytest.fixture
def backend(server: S3Server) -> ObstoreBackend:
    return opened(server)


def opened(server: S3Server) -> ObstoreBackend:
    options = {name: value for name, value in server.options.items() if name != "engine"}
    return ObstoreBackend("memories", server.new_url().removeprefix("s3://memories/"), options)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(BackendNotAvailableError, match="'fast' is no engine for s3://; installed: obstore"):
        AgentMemory.open("s3://memories", storage_options={"engine": "fast"})
    with pytest.raises(BackendNotAvailableError, match="no engine for memory://; omit the option"):
        AgentMemory.open("memory://", storage_options={"engine": "obstore"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "k"}, "'access_key_id' instead of 'key'"),
        ({"acess_key_id": "k"}, "'acess_key_id' is not valid"),
        ({"allow_single_writer": "perhaps"}, "true or false"),
        ({"endpoint": "storage.example:9000"}, "endpoint begins with http"),
        ({"endpoint": 5}, "does not take these options"),
        ({"client_options": "x"}, "option client_options: a mapping, not str"),
        ({"prefix": "p"}, "sets these options: prefix"),
        ({"Bucket": "b"}, "sets these options: Bucket"),
        ({"config": {"aws_endpoint": "http://127.0.0.1:1"}}, "sets these options: config"),
        ({"retry_config": {"max_retries": 5}}, "sets these options: retry_config"),
        ({"client_options": {"timeuot": "1s"}}, "timeuot"),
    ],
)
def test_an_invalid_obstore_option_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore", **options})


TIMES = ["connect_timeout", "read_timeout", "timeout", "pool_idle_timeout", "http2_keep_alive_interval"]
TEXTS = ["region", "access_key_id", "session_token"]
BAD_VALUES: list[tuple[dict[str, object], str]] = [
    ({"access_key_id": "\0"}, "option access_key_id: only printable"),
    ({"client_options": {"default_content_type": "text/\n"}}, "option client_options.default_content_type: only"),
    ({"client_options": {"default_headers": {"x-a": "é"}}}, "option client_options.default_headers.x-a: only"),
    ({"client_options": {"http2_max_frame_size": "5"}}, "http2_max_frame_size: a number from 16384 to 16777215"),
    ({"client_options": {"pool_max_idle_per_host": "-1"}}, "pool_max_idle_per_host"),
    ({"client_options": {"proxy_url": "http://[::1"}}, "builder error"),
    ({"client_options": {"proxy_url": "http://p", "user_agent": "a\n"}}, "option client_options.user_agent: only"),
    ({"skip_signature": "perhaps"}, r"\(option skip_signature\)"),
]
for _name in TIMES:
    BAD_VALUES.append(({"client_options": {_name: "5x"}}, rf"\(option client_options.{_name}\)"))
    BAD_VALUES.append(({"client_options": {_name: f"{1 << 64}s"}}, f"{_name}: a number in a time"))
BAD_VALUES.extend(({_name: "text\n"}, f"option {_name}: only printable") for _name in TEXTS)


@pytest.mark.parametrize(("options", "said"), BAD_VALUES)
def test_a_bad_value_of_an_option_is_refused_when_the_store_is_opened(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore", **options})


@pytest.mark.parametrize("value", [5, 5.5, -1, 10**30, None, b"x", [], object()])
@pytest.mark.parametrize("name", ["region", "client_options.timeout", "client_options.proxy_url"])
def test_a_value_of_another_type_is_refused_with_the_name_of_the_option(name: str, value: object) -> None:
    above, _, below = name.partition(".")
    options = {above: {below: value} if below else value}
    with pytest.raises(TypeError, match=f"option {name}: a text, or true or false"):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore", **options})


@pytest.mark.parametrize("bucket", ["a b", "a%zz", "[", "é"])
def test_a_name_of_a_bucket_that_no_url_can_have_is_refused(bucket: str) -> None:
    with pytest.raises(ValueError, match="cannot send this name of a bucket"):
        ObstoreBackend(bucket)


@pytest.mark.parametrize("endpoint", [True, False, "true", "", "http://:0", "//", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: object) -> None:
    with pytest.raises(TypeError, match="an endpoint begins with http"):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore", "endpoint": endpoint})


@pytest.mark.parametrize(("variable", "option"), [("AWS_REGION", "region"), ("AWS_SESSION_TOKEN", "session_token")])
def test_a_variable_with_a_line_end_is_refused_unless_an_option_replaces_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, option: str
) -> None:
    monkeypatch.setenv(variable, "text\n")
    keys = {"access_key_id": "k", "secret_access_key": "s"}
    with pytest.raises(ValueError, match=f"variable {variable}: only printable ASCII"):
        ObstoreBackend("bucket", "", keys)
    ObstoreBackend("bucket", "", {**keys, option: "text"})


def test_a_panic_in_a_request_is_an_error_of_this_package() -> None:
    """The name of a bucket with a colon makes obstore panic if the name is a part of the host."""
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    backend = ObstoreBackend("a:b", "", {**keys, "virtual_hosted_style_request": True})
    with AgentMemory.open(backend) as memory:
        with pytest.raises(ReadError, match="the storage client failed"):
            memory.read("a.md")
        with pytest.raises(FileOperationError, match="the storage client failed"):
            memory.write("a.md", "x")


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://bucket/x?versionId=1", "s3://bucket/x#y"])
def test_an_invalid_s3_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="an S3 URL"):
        AgentMemory.open(url, storage_options={"engine": "obstore"})


def test_a_prefix_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidPathError, match="the prefix is too long"):
        ObstoreBackend("bucket", "p" * 101)


def test_the_error_names_the_package_to_install_if_obstore_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(BackendNotAvailableError, match=r"pip install 'agent-memory-files\[obstore\]'"):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore"})


@pytest.mark.parametrize("prefix", ["a//b", "./a", "a/..", "a/../b", "a\nb", "\ud800"])
def test_a_prefix_that_obstore_cannot_read_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot read the prefix"):
        AgentMemory.open(f"s3://bucket/{prefix}", storage_options={"engine": "obstore"})


@pytest.mark.parametrize("name", ["endpoint", "Endpoint", "AWS_ENDPOINT", "endpoint_url", "aws_endpoint_url_s3"])
@pytest.mark.parametrize(
    ("endpoint", "trusted"),
    [
        ("http://127.0.0.1:1", False),
        ("https://s3.amazonaws.com.evil.example", False),
        ("https://s3.amazonaws.com", True),
    ],
)
def test_only_aws_is_trusted_for_every_spelling_of_the_endpoint_option(name: str, endpoint: str, trusted: bool) -> None:
    assert s3_store("memories", {name: endpoint})._trusted is trusted


def test_both_engines_read_and_write_the_same_files(ministack: S3Server, server: S3Server) -> None:
    url = ministack.new_url()
    with (
        AgentMemory.open(url, storage_options=ministack.options) as one,
        AgentMemory.open(url, storage_options=server.options) as two,
    ):
        for number in range(3):
            one.append("d/log.md", f"s3fs {number}\n")
            two.append("d/log.md", f"obstore {number}\n")
        one.edit("d/log.md", str.upper)
        two.write("d/é メモ #.md", "x")
        assert two.read("d/log.md") == "".join(f"S3FS {n}\nOBSTORE {n}\n" for n in range(3))
        assert [e.path for e in one.list()] == [e.path for e in two.list()] == ["d/log.md", "d/é メモ #.md"]


def test_a_forked_child_gets_an_error_instead_of_hanging(server: S3Server) -> None:
    memory = AgentMemory.open(server.new_url(), storage_options=server.options)
    memory.append("log.md", "parent\n")

    def work() -> None:
        with pytest.raises(UnsupportedOperationError, match=r"forked.*spawn"):
            memory.read("log.md")
        with AgentMemory.open(server.new_url(), storage_options=server.options) as another:
            with pytest.raises(UnsupportedOperationError, match=r"forked.*spawn"):
                another.write("log.md", "child")

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    memory.append("log.md", "parent\n")
    assert memory.read("log.md") == "parent\nparent\n"
    memory.close()


_ENDS = """
import json, sys
from agent_memory import AgentMemory

with AgentMemory.open(sys.argv[1], storage_options=json.loads(sys.argv[2])) as memory:
    memory.write("notes.md", "x")
    memory.read("notes.md")
"""


@pytest.mark.long  # without the wait at exit, 1 of 10 processes would abort
def test_a_process_exits_with_status_0(server: S3Server) -> None:
    command = [sys.executable, "-c", _ENDS, server.new_url(), json.dumps(server.options)]
    assert [subprocess.run(command, check=False).returncode for _ in range(60)] == [0] * 60


def test_no_representation_shows_credentials(server: S3Server, backend: ObstoreBackend) -> None:
    memory = AgentMemory.open(server.new_url(), storage_options=server.options)
    bucket = backend._bucket
    assert SECRET not in f"{memory!r} {backend!r} {vars(backend)} {vars(bucket)} {vars(bucket.store)}"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(backend._bucket.store)
    memory.close()


@pytest.mark.long
def test_the_error_for_wrong_credentials_shows_no_credentials(seaweedfs: S3Server) -> None:
    options = {**seaweedfs.by("obstore").options, "secret_access_key": "a-wrong-secret-key"}
    with AgentMemory.open(seaweedfs.new_url(), storage_options=options) as memory:
        for action in (memory.read, lambda path: memory.write(path, "x")):
            with pytest.raises(FileOperationError, match="access denied") as denied:
                action("a.md")
            seen: BaseException | None = denied.value
            while seen:
                assert "wrong-secret" not in f"{seen} {seen!r} {memory!r}"
                assert seaweedfs.endpoint not in str(seen)
                seen = seen.__cause__


def test_a_missing_bucket_is_not_reported_as_a_missing_file(server: S3Server) -> None:
    with AgentMemory.open("s3://no-such-bucket", storage_options=server.options) as memory:
        with pytest.raises(ReadError, match="the bucket does not exist"):
            memory.read("a.md")
        for write in (memory.write, memory.create, memory.append):
            with pytest.raises(FileOperationError, match="the bucket does not exist"):
                write("a.md", "x")


@pytest.mark.long
def test_an_unreachable_server_raises_a_clear_error(server: S3Server) -> None:
    options = {**server.options, "endpoint": "http://127.0.0.1:9"}
    with AgentMemory.open("s3://memories", storage_options=options) as memory:
        with pytest.raises(ReadError, match="no reply from S3"):
            memory.read("a.md")
        with pytest.raises(FileOperationError, match="no reply from S3") as failed:
            memory.write("a.md", "x")
        assert not isinstance(failed.value, OutcomeUnknownError), "nothing was sent"


LARGE = "x" * 1_000_000


@pytest.mark.parametrize("own", [False, True])
def test_sending_a_large_file_may_take_longer_than_the_answer_timeout(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    short = {"read_timeout": "150ms"}
    monkeypatch.setitem(_opening._CLIENT, "read_timeout", "150ms")
    with Proxy(server.endpoint) as proxy:
        options = {**server.through(proxy), "client_options": short if own else {}}
        with AgentMemory.open(server.new_url(), storage_options=options) as memory:
            memory.write("small.md", "x")
            proxy.choose = lambda operation: "slow" if operation == "PUT" else None  # slower than the timeout
            with proxy.counting() as sent:
                if own:  # the caller's timeout applies to all requests
                    with pytest.raises(OutcomeUnknownError):
                        memory.with_timeout(3).write("large.md", LARGE)
                    return
                memory.write("large.md", LARGE)
            assert sent["PUT"] == 1
            proxy.choose = lambda _: None
            assert memory.read("large.md") == LARGE


def test_a_large_file_is_sent_again_if_there_is_no_answer(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_client, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(_client, "_SLOWEST_LINE", 100 * len(LARGE))
    with Proxy(server.endpoint) as proxy:
        with AgentMemory.open(server.new_url(), storage_options=server.through(proxy)) as memory:
            memory.create("large.md", "before")  # also tests the server
            faults: list[Fault] = ["hangs"]
            proxy.choose = lambda _: faults.pop() if faults else None
            memory.append("large.md", LARGE)
            assert memory.read("large.md") == "before" + LARGE
            assert not faults


def test_the_error_says_that_there_are_no_credentials(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = {"engine": "obstore", "endpoint": server.endpoint}
    with AgentMemory.open("s3://memories", storage_options=options) as memory:
        with pytest.raises(ReadError, match="there are no credentials"):
            memory.read("a.md")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT", *also(["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])])
def test_a_server_other_than_aws_is_tested_for_every_way_to_configure_it(
    variable: str, stand_in: Callable[[str], S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stand_in("conditions ignored")
    monkeypatch.setenv(variable, server.endpoint)
    options = {name: value for name, value in server.by("obstore").options.items() if name != "endpoint"}
    options["client_options"] = {"allow_http": True}
    with AgentMemory.open(server.new_url(), storage_options=options) as memory:
        with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
            memory.append("a.md", "x")


@pytest.mark.parametrize("value", ["", "storage.example:9000"])
def test_the_error_names_an_environment_variable_with_an_invalid_endpoint(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", value)
    with pytest.raises(TypeError, match="variable AWS_ENDPOINT_URL: an endpoint begins with http"):
        AgentMemory.open("s3://memories", storage_options={"engine": "obstore"})


@pytest.mark.parametrize("value", ["", "http://127.0.0.1:9"])
def test_the_endpoint_variable_of_another_service_is_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", value)
    assert s3_store("memories", {"region": "eu-central-1"})._trusted


def pages(backend: ObstoreBackend, prefix: str, delimited: bool, limit: int) -> list[str]:
    """All names of a listing, sorted."""

    async def read(run: Run) -> list[str]:
        names: list[str] = []
        after: str | None = None
        for _ in range(20):
            page = await run.call(backend._bucket.store.list, prefix, delimited=delimited, limit=limit, after=after)
            assert len(page.objects) + len(page.prefixes) <= limit
            names += [*(each.name for each in page.objects), *page.prefixes]
            after = page.next
            if after is None:
                return sorted(names)
        raise AssertionError("the listing does not end")

    return run_sync(backend, read)


@pytest.mark.parametrize(
    ("limit", "in_order"),
    [
        pytest.param(limit, in_order, marks=() if (limit, in_order) in ((1, True), (2, False)) else pytest.mark.long)
        for limit, in_order in product([1, 2, 3, 1000], [True, False])
    ],
)
def test_a_folder_marker_of_a_console_does_not_end_a_listing(
    server: S3Server, backend: ObstoreBackend, limit: int, in_order: bool
) -> None:
    assert isinstance(backend._bucket.store, ObstoreStore)
    backend._bucket.store._in_order = in_order  # AWS lists in order; other servers may not
    prefix = server.new_url().removeprefix("s3://memories/") + "/d/"
    with closing(server.client("s3")) as s3:
        for name in ("", "a", "sub/", "sub/b", "z"):
            s3.put_object(Bucket="memories", Key=prefix + name, Body=b"")
    marker = prefix + "sub"  # a documented limit: a marker without its slash looks like a file
    assert pages(backend, prefix, False, limit) == [prefix + "a", marker, prefix + "sub/b", prefix + "z"]
    assert pages(backend, prefix, True, limit) == [prefix + "a", prefix + "sub/", prefix + "z"]


def test_deleting_a_directory_marker_never_deletes_a_file_of_the_same_name(backend: ObstoreBackend) -> None:
    with AgentMemory.open(backend) as memory:
        memory.write("d", "x")
        with pytest.raises(PermanentError):
            run_sync(backend, lambda run: run.call(backend._bucket.store.delete, "d/"))
        assert memory.read("d") == "x"


def test_a_name_that_obstore_cannot_read_raises_a_clear_error(server: S3Server) -> None:
    url = server.new_url()
    with closing(server.client("s3")) as s3:
        s3.put_object(Bucket="memories", Key=f"{url.removeprefix('s3://memories/')}/../planted", Body=b"")
    with AgentMemory.open(url, storage_options=server.options) as memory:
        with pytest.raises(
            ReadError, match=r"a name in the bucket that obstore cannot read .* without engine='obstore'"
        ):
            memory.list()


def test_the_stores_clock_is_learned_from_the_last_write(backend: ObstoreBackend) -> None:
    store = backend._bucket.store
    assert isinstance(store, ObstoreStore)
    with AgentMemory.open(backend) as memory:
        for wrong in (3_600.0, -3_600.0):
            memory.write("own.md", "x")
            store._ahead = wrong
            memory.read("own.md")
            assert abs(store._ahead) < 60, "by its own write"
        memory.write("other.md", "x")
        store._ahead = -3_600.0
        memory.read("own.md")
        assert -60 < store._ahead < 60, "nothing was written later than now"


def test_the_learned_clock_offset_is_dropped_when_the_hosts_clock_is_set(
    backend: ObstoreBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend._bucket.store
    true, wrong = time.time, lambda: true() - 3_600
    with AgentMemory.open(backend) as memory:
        monkeypatch.setattr(time, "time", wrong)
        memory.write("own.md", "x")
        memory.read("own.md")
        assert abs(store.now() - true()) < 60
        monkeypatch.setattr(time, "time", true)
        assert abs(store.now() - true()) < 60
        memory.read("own.md")
        assert abs(store.now() - true()) < 60


def test_setting_the_hosts_clock_back_during_a_write_gives_no_wrong_offset(
    backend: ObstoreBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend._bucket.store
    true, wrong, etag = time.time, lambda: true() + 3_600, _client._etag

    def set_back(reply: Any) -> str:
        monkeypatch.setattr(time, "time", true)
        store.now()  # as another operation would call it
        return etag(reply)

    with AgentMemory.open(backend) as memory:
        memory.write("own.md", "x")
        monkeypatch.setattr(time, "time", wrong)
        with monkeypatch.context() as amid:
            amid.setattr(_client, "_etag", set_back)
            memory.write("own.md", "y")
        memory.read("own.md")
        assert abs(store.now() - true()) < 60


def test_the_same_content_from_another_writer_is_not_taken_as_an_own_write(server: S3Server) -> None:
    one, two = opened(server), opened(server)
    two._bucket.prefix = one._bucket.prefix
    two._writer = Writer()
    store = one._bucket.store
    assert isinstance(store, ObstoreStore)
    with AgentMemory.open(one) as mine, AgentMemory.open(two) as others:
        mine.write("state.md", "x")
        store._own = store._own._replace(sent=store._own.sent - 3_600, answered=store._own.answered - 3_600)
        others.write("state.md", "x")
        mine.read("state.md")
        assert abs(store._ahead) < 60


def test_a_slow_own_write_does_not_give_a_wrong_clock_offset(backend: ObstoreBackend) -> None:
    store = backend._bucket.store
    assert isinstance(store, ObstoreStore)
    with AgentMemory.open(backend) as memory:
        memory.write("own.md", "x")
        store._own = store._own._replace(answered=store._own.answered + 30)
        memory.read("own.md")
        assert abs(store._ahead) < 5


SERVED = """Generic S3 error: Error performing PUT http://host/k - Server returned non-2xx status code: {status}: <E>
                status: 412,
 <Code>NoSuchBucket</Code></E>

Debug source:
Generic {{
    source: RetryError(
        RetryErrorImpl {{
            inner: Status {{
                status: {status},
                body: Some(
                    "<Error><Code>{code}</Code><Message>status: 412,\\n status: 412,</Message></Error>",
                ),
            }},
        }},
    ),
}}"""


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (412, "PreconditionFailed", PreconditionFailed),
        (409, "ConditionalRequestConflict", WriteConflict),
        (409, "OperationAborted", NoResponse),
        (404, "NoSuchKey", NotFound),
        (404, "NoSuchBucket", PermanentError),
        (416, "InvalidRange", NotSatisfiable),
        (403, "AccessDenied", AccessDenied),
        (400, "MetadataTooLarge", PermanentError),
        (501, "NotImplemented", UnsupportedOperationError),
        (500, "InternalError", NoResponse),
        (500, "PreconditionFailed", PreconditionFailed),
        (500, "ConditionalRequestConflict", WriteConflict),
        (500, "NoSuchUpload", NotFound),
        (503, "SlowDown", NoResponse),
        (429, "", NoResponse),
    ],
)
def test_an_answer_is_translated_by_its_status_and_code(status: int, code: str, expected: type[Exception]) -> None:
    answer = translated(
        GenericError(SERVED.format(status=status, code=code)), conditional=True, of_object=True, ranged=True
    )
    assert type(answer) is expected
    if isinstance(answer, NoResponse):
        assert (answer.sent, answer.wait) == ((False, 0.5) if code in ("SlowDown", "") else (True, 0.0))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (NotImplementedError("put_opts"), UnsupportedOperationError),
        (ValueError("a name"), PermanentError),
        (GenericError("moved\n\nDebug source:\nGeneric {\n            inner: BareRedirect,\n}"), PermanentError),
        (GenericError("anything"), NoResponse),
        (TypeError("a mistake"), type(None)),
        (RuntimeError("a mistake"), type(None)),
    ],
)
def test_an_error_without_a_status_is_translated_by_its_type(cause: Exception, expected: type[Exception]) -> None:
    assert type(translated(cause, conditional=True, of_object=True)) is expected


def test_a_request_without_a_reply_counts_as_possibly_done() -> None:
    answer = translated(GenericError("anything"))
    assert isinstance(answer, NoResponse)
    assert answer.sent


class PanicException(BaseException):
    """The error of a panic in Rust, which is no `Exception`."""


@pytest.mark.parametrize("mistake", [TypeError("a host's path"), PanicException("a host's path")])
def test_a_programming_error_is_raised_at_once_without_a_retry(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, mistake: BaseException
) -> None:
    calls = []

    async def broken(*_: object, **__: object) -> None:
        calls.append(1)
        raise mistake

    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.create("a.md", "x")
        monkeypatch.setattr("obstore.get_async", broken)
        monkeypatch.setattr("obstore.put_async", broken)
        with pytest.raises(ReadError, match=r"the storage client failed \(\w+\)$"):
            memory.read("a.md")
        with pytest.raises(OutcomeUnknownError, match=r"the storage client failed \(\w+\); it could not be found out"):
            memory.write("a.md", "y")
    assert len(calls) == 2
