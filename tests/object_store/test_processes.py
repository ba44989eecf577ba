"""S3 in real processes: forked, with several event loops, cancelled, or ended without a close."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AsyncAgentMemory,
    OutcomeUnknownError,
    UnsupportedOperationError,
)
from agent_memory.backend import Key
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core.blocking import BlockingStore
from agent_memory.filesystem import filesystem
from agent_memory.object_store.write_log import WriteLog
from agent_memory_s3 import S3Backend
from tests.object_store.proxy import Proxy, telling
from tests.support.servers import SECRET, S3Server
from tests.support.sizes import also


def test_a_forked_child_works_beside_its_parent(ministack: S3Server) -> None:
    memory = AgentMemory.open(ministack.new_url(), storage_options=ministack.options)
    memory.append("log.md", "parent\n")

    def work(name: str) -> None:
        for number in range(5):
            memory.append("log.md", f"{name} {number}\n")

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=work, args=(f"child {child}",)) for child in range(3)]
    for child in children:
        child.start()
    work("parent")
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    names = ("child 0", "child 1", "child 2", "parent")
    expected = Counter(["parent", *(f"{name} {number}" for name in names for number in range(5))])
    assert Counter(memory.read("log.md").splitlines()) == expected
    memory.close()


def test_a_forked_child_begins_its_own_chains() -> None:
    fork = multiprocessing.get_context("fork")
    begun = fork.SimpleQueue()
    child = fork.Process(target=lambda: begun.put([WriteLog.new(0).chain for _ in range(4)]))
    child.start()
    own = {WriteLog.new(0).chain for _ in range(4)}
    assert own.isdisjoint(begun.get())
    child.join(30)
    begun.close()


def test_a_child_that_closes_does_not_close_its_parents_connections(ministack: S3Server) -> None:
    memory = AgentMemory.open(ministack.new_url(), storage_options=ministack.options, timeout=10)
    memory.append("log.md", "before\n")
    child = multiprocessing.get_context("fork").Process(target=memory.close)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    memory.append("log.md", "after\n")
    assert memory.read("log.md") == "before\nafter\n"
    memory.close()


def test_a_write_without_any_answer_is_sent_again(ministack: S3Server) -> None:
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, connections), daemon=True).start()
        options = {**ministack.options, "endpoint_url": f"http://127.0.0.1:{server.getsockname()[1]}"}
        options["config_kwargs"] = {"read_timeout": 0.5}
        backend = S3Backend("memories", "p", options)
        backend._directories._known.add_children(("", ""), set())  # the write needs no request before it
        memory = AgentMemory.open(backend)
        with pytest.raises(OutcomeUnknownError), deadline_scope(Deadline(60, time.monotonic() + 60)):
            BlockingStore(backend).call(backend.write, Key.tree().join("a.md"), b"x")
        memory.close()
        server.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()
    assert len(connections) >= 3


def _accept(server: socket.socket, connections: list[socket.socket]) -> None:
    with suppress(OSError):
        while True:
            connections.append(server.accept()[0])


@pytest.mark.long
def test_one_process_stays_one_writer_after_many_opens(ministack: S3Server) -> None:
    url = ministack.new_url()
    for number in range(120):
        with AgentMemory.open(url, storage_options=ministack.options) as memory:
            memory.append("log.md", f"{number}\n")
    with AgentMemory.open(url, storage_options=ministack.options) as memory:
        assert memory.read("log.md").split() == [str(number) for number in range(120)]


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", *also(["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])])
def test_a_server_other_than_aws_is_tested_for_every_way_to_configure_it(
    variable: str, stand_in: Callable[[str], S3Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = stand_in("conditions ignored")
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = {server.endpoint}\n")
    monkeypatch.setenv(variable, str(tmp_path / "config") if variable == "AWS_CONFIG_FILE" else server.endpoint)
    options = {name: value for name, value in server.options.items() if name != "endpoint_url"}
    with AgentMemory.open(server.new_url(), storage_options=options) as memory:
        with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
            memory.append("a.md", "x")


def test_an_edit_that_waits_for_an_edit_of_the_same_loop_ends_at_its_own_timeout(ministack: S3Server) -> None:
    async def work(proxy: Proxy, url: str) -> None:
        options = ministack.through(proxy)
        async with AsyncAgentMemory.open(url, storage_options=options) as memory:
            await memory.write("a.md", "x")
            await memory.append("a.md", "x")
            sent = asyncio.Event()
            proxy.choose = telling(sent, "hangs")
            first = asyncio.create_task(memory.with_timeout(60).edit("a.md", str.upper))
            await asyncio.wait_for(sent.wait(), 60)
            brief = memory.with_timeout(1)
            ended = await asyncio.gather(*(brief.edit("a.md", str.upper) for _ in range(2)), return_exceptions=True)
            assert all(isinstance(error, AgentMemoryError) and "1 s" in str(error) for error in ended), ended
            assert not first.done()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            with pytest.raises(AgentMemoryError, match="1 s"):
                await brief.edit("a.md", str.upper)

    with Proxy(ministack.endpoint) as proxy:
        asyncio.run(work(proxy, ministack.new_url()))


@pytest.mark.long
def test_event_loops_in_several_threads_share_a_backend(ministack: S3Server) -> None:
    memory = AsyncAgentMemory.open(ministack.new_backend())
    start = threading.Barrier(4)

    async def work(name: int) -> None:
        await asyncio.gather(*(memory.append("log.md", f"{name}:{line}\n") for line in range(5)))
        for line in range(5):
            await memory.edit("edited.md", lambda text, line=line: f"{text}{name}:{line}\n")  # type: ignore[misc]

    def run(name: int) -> None:
        start.wait()
        asyncio.run(work(name))

    asyncio.run(memory.write("edited.md", ""))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    for name in ("log.md", "edited.md"):
        lines = asyncio.run(memory.read(name)).splitlines()
        assert Counter(lines) == Counter(f"{name}:{line}" for name in range(4) for line in range(5))
    asyncio.run(memory.aclose())


def test_writers_of_one_process_queue_and_cause_no_conflict(ministack: S3Server) -> None:
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            memory.create("log.md", "")
            memory.write("edited.md", "")

            def append(number: int) -> None:
                memory.append("log.md", f"{number}\n")

            def edit(number: int) -> None:
                memory.edit("edited.md", lambda text: f"{text}{number}\n")

            with ThreadPoolExecutor(8) as pool, proxy.counting() as requests:
                list(pool.map(append, range(40)))
            assert requests == {"PUT": 40}
            with ThreadPoolExecutor(8) as pool, proxy.counting() as requests:
                list(pool.map(edit, range(40)))
            assert requests == {"GET": 40, "PUT": 40}
            assert Counter(memory.read("edited.md").split()) == Counter(map(str, range(40)))


def test_a_memory_works_after_a_cancelled_call(ministack: S3Server) -> None:
    async def cancelled(proxy: Proxy, url: str) -> str:
        async with AsyncAgentMemory.open(url, storage_options=ministack.through(proxy)) as memory:
            await memory.append("log.md", "first\n")
            sent = asyncio.Event()
            proxy.choose = telling(sent, "slow")
            for call in (memory.append("log.md", "second\n"), memory.read("log.md"), memory.edit("log.md", str.upper)):
                sent.clear()
                task = asyncio.ensure_future(call)
                await asyncio.wait_for(sent.wait(), 60)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            proxy.choose = lambda _: None
            await memory.append("log.md", "third\n")
            return await memory.read("log.md")

    with Proxy(ministack.endpoint) as proxy:
        lines = asyncio.run(cancelled(proxy, ministack.new_url())).lower().splitlines()
    assert lines in (["first", "third"], ["first", "second", "third"])


@pytest.mark.long
def test_a_process_that_ends_during_requests_prints_no_warning(ministack: S3Server) -> None:
    code = (
        "import asyncio, sys, json, logging\n"
        "from agent_memory import AsyncAgentMemory\n"
        "logging.basicConfig(level=logging.ERROR)\n"  # interrupted appends are logged as warnings
        "async def main():\n"
        "    memory = AsyncAgentMemory.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))\n"
        "    await memory.write('a.md', 'x')\n"
        "    tasks = [asyncio.ensure_future(memory.append('a.md', 'y')) for _ in range(20)]\n"
        "    await asyncio.sleep(0.02)\n"
        "    for task in tasks[10:]: task.cancel()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, ministack.new_url(), json.dumps(ministack.options)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_dropped_backend_closes_its_connections_on_the_io_loop(ministack: S3Server) -> None:
    backend = ministack.new_backend()
    memory = AgentMemory.open(backend)
    memory.write("a.md", "x")
    connections = backend._bucket.store._connection._client._endpoint.http_session

    async def drop() -> set[asyncio.Task[object]]:
        nonlocal backend, memory
        del backend, memory
        gc.collect()
        return asyncio.all_tasks() - {asyncio.current_task()}

    gc.collect()  # collects objects of earlier tests
    assert connections._sessions
    assert asyncio.run(drop()) == set()
    for _ in range(1200):
        if connections._sessions is None:
            return
        time.sleep(0.05)
        gc.collect()  # the I/O loop may hold the last request a moment longer
    pytest.fail("nobody closed the connections")


def test_credentials_are_in_no_pickle_and_no_repr(ministack: S3Server) -> None:
    with AgentMemory.open(ministack.new_url(), storage_options=ministack.options) as memory:
        memory.write("a.md", "x")
        backend = memory._tree.backend
        for held in (memory, backend, filesystem(memory)):
            assert SECRET not in repr(held)
            with pytest.raises((TypeError, pickle.PicklingError)) as refused:
                pickle.dumps(held)
            assert SECRET not in str(refused.value)


def test_s3fs_options_for_every_request_reach_the_server(ministack: S3Server) -> None:
    options = {**ministack.options, "s3_additional_kwargs": {"ServerSideEncryption": "AES256"}, "requester_pays": True}
    url = ministack.new_url()
    with AgentMemory.open(url, storage_options=options) as memory:
        memory.write("a.md", "x")
        memory.append("a.md", "y")
    with closing(ministack.client("s3")) as s3:
        head = s3.head_object(Bucket="memories", Key=f"{url.removeprefix('s3://memories/')}/a.md")
    assert head["ServerSideEncryption"] == "AES256"


def test_a_versioned_bucket_keeps_overwritten_and_deleted_versions(ministack: S3Server) -> None:
    ministack.make_bucket("versioned")
    with (
        closing(ministack.client("s3")) as s3,
        AgentMemory.open("s3://versioned/here", storage_options=ministack.options) as memory,
    ):
        s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
        memory.create("a.md", "one\n")
        memory.append("a.md", "two\n")
        memory.edit("a.md", str.upper)
        memory.delete("a.md")
        assert not memory.exists("a.md")
        memory.create("a.md", "again\n")
        where = {"Bucket": "versioned", "Key": "here/a.md"}
        found = s3.list_object_versions(Bucket="versioned", Prefix="here/a.md")
        ids = [version["VersionId"] for version in found["Versions"]]
        texts = [s3.get_object(**where, VersionId=version)["Body"].read() for version in ids]
        assert sorted(texts) == sorted([b"one\n", b"one\ntwo\n", b"ONE\nTWO\n", b"again\n"])
        assert len(found["DeleteMarkers"]) == 1
