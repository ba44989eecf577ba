"""Behaviour specific to S3: prefixes, credentials, names without directories, and requests."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import fsspec.asyn
import pytest
from botocore.exceptions import (
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AppendError,
    AsyncAgentMemory,
    FileAlreadyExistsError,
    FileOperationError,
    InvalidPathError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
)
from agent_memory.backend import Snapshot
from agent_memory.key import Key
from agent_memory.object_store.engine import NoResponse
from agent_memory.object_store.responses import refusal_of
from agent_memory.object_store.trial import results
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import run_sync
from agent_memory_s3 import S3Backend
from agent_memory_s3._answers import translated
from agent_memory_s3._client import _require_conditions
from tests.support import sizes
from tests.support.loops import looped
from tests.support.servers import S3Server
from tests.support.sizes import long_except


async def _read(backend: S3Backend, key: Key, start: int | None, end: int | None, run: Run) -> Snapshot:
    return await run.call(backend.read, key, start, end)


def counting(backend: Any) -> Counter[str]:
    """Count the requests of a backend by S3 operation."""
    counts: Counter[str] = Counter()
    connection = backend._bucket.store._connection
    real = connection.call

    async def call(method: str, **options: Any) -> Any:
        counts[method] += 1
        return await real(method, **options)

    connection.call = call
    return counts


@pytest.mark.long  # tests/object_store/test_bill.py has the short run
def test_each_operation_costs_the_promised_requests(moto: S3Server) -> None:
    results._tried.clear()
    backend = moto.new_backend()
    counts = counting(backend)
    with AgentMemory.open(backend) as memory:
        memory.write("d/first.md", "x")
        first = {"get_object": 1, "head_object": 1, "list_objects_v2": 1, "put_object": 1}
        assert counts == first, "once per directory, and once a minute whether versions are kept"

        def cost(action: Any) -> dict[str, int]:
            counts.clear()
            action()
            return dict(counts)

        assert cost(lambda: memory.write("d/second.md", "x")) == {"put_object": 1}
        tried = cost(lambda: memory.create("d/third.md", "x"))
        assert 8 <= tried.pop("delete_object") <= 14, "an object of a race is deleted again if its deletion was refused"
        assert tried == {"put_object": 72, "get_object": 1}, "preconditions tried, once"
        assert cost(lambda: memory.create("d/fourth.md", "x")) == {"put_object": 1}
        assert cost(lambda: memory.read("d/first.md")) == {"get_object": 1}
        assert cost(lambda: memory.stat("d/first.md")) == {"head_object": 1}
        assert cost(lambda: memory.append("d/first.md", "y")) == {"put_object": 1}, "the last version is its own"
        assert cost(lambda: memory.edit("d/first.md", str.upper)) == {"get_object": 1, "put_object": 1}
        assert cost(lambda: memory.edit("d/first.md", str.upper)) == {"get_object": 1}, "equal text writes nothing"
        assert cost(lambda: memory.list("d")) == {"list_objects_v2": 1}
        assert cost(lambda: memory.list(recursive=False)) == {"list_objects_v2": 1}
        assert cost(lambda: memory.delete("d/first.md")) == {"head_object": 1, "delete_object": 1}


def test_a_name_is_never_both_a_file_and_a_directory_for_several_writers(moto: S3Server) -> None:
    url = moto.new_url()
    with (
        AgentMemory.open(url, storage_options=moto.options) as one,
        AgentMemory.open(url, storage_options=moto.options) as two,
    ):
        one.write("a/b.md", "x")
        one.write("file", "x")
        for taken in ("a", "a/b.md/c", "file/below"):
            with pytest.raises(FileAlreadyExistsError):
                two.write(taken, "y")
        two.delete("a/b.md")
        one.write("a", "now a file")
        with pytest.raises(FileAlreadyExistsError):
            one.write("a/b.md", "x")


def test_a_file_of_the_whole_tree_cannot_take_the_name_of_an_agents_directory(moto: S3Server) -> None:
    backend = moto.new_backend()
    with AgentMemory.open(backend) as tree:
        tree.write("top.md", "x")
        AgentMemoryService(backend).agent("bob").write("a/b.md", "x")
        within = Key.agent("bob").storage
        tree.write(f"{within}/a/c.md", "x")
        for taken in (within.partition("/")[0], within, f"{within}/a"):
            with pytest.raises(FileAlreadyExistsError):
                tree.write(taken, "y")


def test_a_directory_dropped_from_the_cache_during_a_look_up_is_cached_again(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, key = moto.new_backend(), Key.tree().join
    asked, answered, is_file = asyncio.Event(), asyncio.Event(), backend._bucket.is_file

    async def slow(directory: Key) -> Any:
        if directory == key("d/e"):
            asked.set()
            await answered.wait()
        return await is_file(directory)

    monkeypatch.setattr(backend._bucket, "is_file", slow)

    async def meanwhile() -> None:
        await backend.write(key("top.md"), b"x")
        await backend._directories.claim(key("d/a"))  # without a write there
        below = asyncio.create_task(backend.write(key("d/e/x"), b"x"))
        await asyncio.wait_for(asked.wait(), 10)
        await backend._directories.claim(key("d"))
        answered.set()
        await below

    with AgentMemory.open(backend) as memory:
        fsspec.asyn.sync(fsspec.asyn.get_loop(), meanwhile)
        with pytest.raises(FileAlreadyExistsError):
            memory.write("d", "y")


def test_a_prefix_may_have_at_most_100_bytes(moto: S3Server) -> None:
    with AgentMemory.open(f"s3://memories/{'p' * 100}", storage_options=moto.options) as memory:
        longest = "/".join(["d" * 239, "e" * 239, "f" * 239, "g" * 48])
        assert len(longest) == 768
        memory.write(longest, "x")
        assert memory.read(longest) == "x"
    with pytest.raises(InvalidPathError) as refused:
        AgentMemory.open(f"s3://memories/{'p' * 101}", storage_options=moto.options)
    assert refused.value.rule == "root-too-long"


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://bucket/x?versionId=1", "s3://bucket/x#y"])
def test_an_invalid_s3_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="an S3 URL"):
        AgentMemory.open(url)


def test_an_option_that_s3fs_does_not_take_is_refused_before_any_request(moto: S3Server) -> None:
    with pytest.raises(TypeError, match="endpoint_ur"):
        AgentMemory.open(moto.new_url(), storage_options={**moto.options, "endpoint_ur": "http://127.0.0.1:1"})


def test_a_missing_bucket_is_not_reported_as_a_missing_file(moto: S3Server) -> None:
    with AgentMemory.open("s3://no-such-bucket", storage_options=moto.options) as memory:
        with pytest.raises(ReadError, match="the bucket does not exist"):
            memory.read("a.md")
        with pytest.raises(FileOperationError, match="the bucket does not exist"):
            memory.write("a.md", "x")


@pytest.mark.long
def test_the_error_for_wrong_credentials_shows_no_credentials(seaweedfs: S3Server) -> None:
    options = {**seaweedfs.options, "secret": "a-wrong-secret-key"}
    with AgentMemory.open(seaweedfs.new_url(), storage_options=options) as memory:
        for action in (memory.read, lambda path: memory.write(path, "x")):
            with pytest.raises(FileOperationError, match="access denied") as denied:
                action("a.md")
            assert "wrong-secret" not in f"{denied.value} {denied.value!r} {memory!r}"


@pytest.mark.long  # tests/object_store/test_wrong_endpoints.py has one case in the short run
def test_an_unreachable_server_raises_a_clear_error(moto: S3Server) -> None:
    options = {**moto.options, "endpoint_url": "http://127.0.0.1:9", "config_kwargs": {"connect_timeout": 1}}
    with AgentMemory.open("s3://memories", storage_options=options) as memory:
        with pytest.raises(ReadError, match="no reply from S3"):
            memory.read("a.md")
        with pytest.raises(FileOperationError, match="no reply from S3") as failed:
            memory.write("a.md", "x")
        assert not isinstance(failed.value, OutcomeUnknownError), "nothing was sent"


def test_a_request_without_a_reply_counts_as_possibly_done() -> None:
    answer = translated(TimeoutError(), {})
    assert isinstance(answer, NoResponse)
    assert answer.sent


def test_a_client_that_does_not_send_preconditions_is_refused() -> None:
    class Members:
        def __init__(self, *names: str) -> None:
            self.input_shape = self
            self.members = dict.fromkeys(names)
            self.meta = self.service_model = self

        def operation_model(self, _: str) -> Members:
            return self

    _require_conditions(Members("IfMatch", "IfNoneMatch", "CopySourceIfMatch"))
    with pytest.raises(UnsupportedOperationError, match="IfNoneMatch for PutObject"):
        _require_conditions(Members("IfMatch", "CopySourceIfMatch"))


def test_a_folder_marker_of_a_console_is_not_listed(moto: S3Server) -> None:
    backend = moto.new_backend()
    with closing(moto.client("s3")) as s3:
        s3.put_object(Bucket="memories", Key=backend._bucket.prefix + "folder/")
        s3.put_object(Bucket="memories", Key=backend._bucket.prefix + "a:b")
    with AgentMemory.open(backend) as memory:
        memory.write("folder/a.md", "x")
        assert [str(entry) for entry in memory.list()] == ["folder/a.md"]
        assert memory.delete_tree("").skipped == 1


@pytest.mark.long
def test_listings_longer_than_a_page_are_complete_and_in_order(moto: S3Server) -> None:
    names = [f"{number:04}.md" for number in range(1005)]

    async def write_all() -> None:
        async with AsyncAgentMemory.open(moto.new_backend()) as memory:
            await memory.write(names[0], "x")
            await asyncio.gather(*(memory.write(name, "x") for name in names[1:]))
            assert [str(entry) for entry in await memory.list()] == names
            assert (await memory.delete_tree("")).files == len(names)
            assert await memory.list() == ()

    asyncio.run(write_all())


def test_reading_a_range_at_or_past_the_end_is_empty(moto: S3Server) -> None:
    backend = moto.new_backend()
    key = Key.tree().join("a.md")
    with AgentMemory.open(backend) as memory:
        memory.write("a.md", "0123456789")
        for start, end, expected in [(10, None, b""), (50, 60, b""), (3, 3, b""), (-4, None, b"6789"), (2, 5, b"234")]:
            snapshot = run_sync(backend, partial(_read, backend, key, start, end))
            assert (snapshot.data, snapshot.size) == (expected, 10)


def test_successive_event_loops_share_a_backend(moto: S3Server) -> None:
    backend = moto.new_backend()
    memory = AsyncAgentMemory.open(backend)
    for turn in range(3):
        asyncio.run(memory.append("log.md", f"{turn}"))
    assert asyncio.run(memory.read("log.md")) == "012"
    AgentMemory.open(backend).close()


@pytest.mark.long
def test_a_process_that_never_closes_the_memory_prints_no_warning(moto: S3Server) -> None:
    code = (
        "import sys, json\n"
        "from agent_memory import AgentMemory\n"
        "memory = AgentMemory.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))\n"
        "memory.write('a.md', 'x')\n"
    )

    command = [sys.executable, "-W", "error", "-c", code, moto.new_url(), json.dumps(moto.options)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_closing_leaves_no_open_connection(moto: S3Server) -> None:
    memory = AgentMemory.open(moto.new_url(), storage_options=moto.options)
    memory.write("a.md", "x")
    memory.close()
    del memory
    gc.collect()  # an unclosed session would warn here, and warnings are errors


def test_deleting_a_file_that_another_client_deleted_raises_not_found(moto: S3Server) -> None:
    url = moto.new_url()
    with (
        AgentMemory.open(url, storage_options=moto.options) as one,
        AgentMemory.open(url, storage_options=moto.options) as two,
    ):
        one.write("a.md", "x")
        two.delete("a.md")
        with pytest.raises(AgentMemoryFileNotFoundError):
            one.delete("a.md")


@looped(
    ("status", "verb"),
    [*product([400, 403, 404, 409, 412, 416, 500, 501], ["read", "stat", "write", "create", "delete", "list"])][
        :: 1 if sizes.is_long else 5
    ],
)
def test_every_error_reply_of_a_server_raises_an_agent_memory_error(status: int, verb: str) -> None:
    from botocore.exceptions import ClientError

    backend: Any = S3Backend("memories", "p", {"key": "k", "secret": "s"})

    async def call(method: str, **_: Any) -> Any:
        raise OSError(22, "hidden") from ClientError(
            {"Error": {"Code": "Some"}, "ResponseMetadata": {"HTTPStatusCode": status}}, method
        )

    backend._bucket.store._connection.call = call
    memory = AgentMemory.open(backend, timeout=0.1)
    calls: dict[str, Any] = {
        "read": lambda: memory.read("a"),
        "stat": lambda: memory.stat("a"),
        "write": lambda: memory.write("a", "x"),
        "create": lambda: memory.create("a", "x"),
        "delete": lambda: memory.delete("a"),
        "list": lambda: memory.list(),
    }
    with pytest.raises(AgentMemoryError):
        calls[verb]()


@pytest.mark.parametrize(("status", "code"), [(503, "ServiceUnavailable"), (500, ""), (503, "SlowDown"), (429, "")])
def test_retry_after_sets_the_wait_of_the_next_attempt(status: int, code: str) -> None:
    answer = refusal_of(status, code, retry_after=7.0)
    assert isinstance(answer, NoResponse)
    assert answer.wait == 7.0


def test_the_error_for_denied_access_names_a_cause_other_than_permissions() -> None:
    assert str(refusal_of(403, "AccessDenied")) == str(refusal_of(401, "")) == "access denied by S3"
    assert str(refusal_of(403, "RequestTimeTooSkewed")) == "access denied by S3 (RequestTimeTooSkewed)"


def test_a_missing_profile_raises_a_clear_error() -> None:
    with pytest.raises(ValueError, match="no profile 'no-such-profile'"):
        AgentMemory.open("s3://memories", storage_options={"profile": "no-such-profile"})


EVERY_CALL: dict[str, Any] = {
    "read": lambda memory: memory.read("a.md"),
    "stat": lambda memory: memory.stat("a.md"),
    "write": lambda memory: memory.write("a.md", "x"),
    "create": lambda memory: memory.create("a.md", "x"),
    "append": lambda memory: memory.append("a.md", "x"),
    "edit": lambda memory: memory.edit("a.md", str.upper),
    "delete": lambda memory: memory.delete("a.md"),
    "list": lambda memory: memory.list(),
}
every_call = long_except(("read", "append", "list"), "call", EVERY_CALL)


@every_call
def test_a_failing_credential_process_is_named_and_no_request_is_sent(
    moto: S3Server, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[profile failing]\ncredential_process = false\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable, raising=False)
    options = {"endpoint_url": moto.endpoint, "profile": "failing"}
    with (
        AgentMemory.open(moto.new_url(), storage_options=options) as memory,
        pytest.raises(FileOperationError, match=r"credentials could not be obtained: their provider") as failed,
    ):
        call(memory)
    assert not isinstance(failed.value, OutcomeUnknownError)


@every_call
@pytest.mark.parametrize("mistake", [TypeError("a host's path"), HTTPClientError(error=TypeError("a host's path"))])
def test_a_programming_error_is_raised_at_once_without_a_retry(moto: S3Server, call: Any, mistake: Exception) -> None:
    backend = moto.new_backend()
    calls: Counter[str] = Counter()

    async def broken(method: str, **_: Any) -> Any:
        calls[method] += 1
        raise mistake

    backend._bucket.store._connection.call = broken
    with (
        AgentMemory.open(backend) as memory,
        pytest.raises(FileOperationError, match=rf"the storage client failed \({type(mistake).__name__}\)$") as failed,
    ):
        call(memory)
    assert calls.pop("delete_object", 0) <= 1, "the trial's scratch object is removed, in case it is there"
    assert sum(calls.values()) <= 1
    assert failed.value.__cause__
    assert failed.value.__cause__.__cause__ is mistake


def test_a_programming_error_before_the_first_request_is_raised_too(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = moto.new_backend()

    async def broken() -> Any:
        raise ImportError

    monkeypatch.setattr(backend._bucket.store._connection, "client", broken)
    with (
        AgentMemory.open(backend) as memory,
        pytest.raises(AppendError, match=r"no request could be made \(ImportError\)"),
    ):
        memory.append("a.md", "x")


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (CredentialRetrievalError(provider="p", error_msg="m"), False),
        (EndpointConnectionError(endpoint_url="u"), False),
        (HTTPClientError(error=RuntimeError("Session is closed")), True),
        (ReadTimeoutError(endpoint_url="u"), True),
        (ConnectionResetError(), True),
        (aiohttp.ClientPayloadError(), True),
        (ResponseParserError(), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_network_failure_is_translated_as_a_missing_response(error: Exception, sent: bool) -> None:
    answer = translated(error, {})
    assert isinstance(answer, NoResponse)
    assert answer.sent is sent
