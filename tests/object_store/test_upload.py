"""Files written in parts: their requests, remaining uploads, and lost answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from agent_memory import (
    ABSENT,
    ANY,
    AgentMemory,
    AsyncAgentMemory,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.object_store import retry
from agent_memory.registry import open_backend
from tests.object_store.proxy import Fault, Proxy
from tests.support.servers import S3Server

PART = 5 << 20
DATA = b"".join(b"%015d\n" % number for number in range(PART // 16)) + b"a second part\n"


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


def uploads(server: S3Server, url: str) -> int:
    """The number of multipart uploads that are neither completed nor aborted."""
    with closing(server.client("s3")) as s3:
        found = s3.list_multipart_uploads(Bucket="memories", Prefix=url.removeprefix("s3://memories/"))
    return len(found.get("Uploads", ()))


def opened(server: S3Server, proxy: Proxy, url: str, **options: float) -> AgentMemory:
    """A memory whose calls carry at most 1,000,000 bytes."""
    backend = open_backend(url, server.through(proxy))
    backend.max_bytes = 1_000_000
    memory = AgentMemory.open(backend, **options)  # type: ignore[arg-type]
    memory.write("ready.md", "")
    return memory


def write(memory: AgentMemory, path: str, data: bytes = DATA, *, create: bool = True) -> None:
    memory.write_blocks(path, [data], len(data), when=ABSENT if create else ANY)


@pytest.mark.parametrize("create", [True, False], ids=["create", "write"])
def test_an_upload_does_not_take_a_name_that_became_a_directory_meanwhile(
    ministack: S3Server, proxy: Proxy, create: bool
) -> None:
    with opened(ministack, proxy, ministack.new_url()) as memory:

        def blocks() -> Iterator[bytes]:
            yield DATA[:PART]
            memory.write("large.bin/below.md", "x")
            yield DATA[PART:]

        with pytest.raises(FileAlreadyExistsError):
            memory.write_blocks("large.bin", blocks(), len(DATA), when=ABSENT if create else ANY)
        assert [entry.path for entry in memory.list()] == ["large.bin/below.md", "ready.md"]


def content(server: S3Server, url: str, path: str) -> bytes:
    with AgentMemory.open(url, storage_options=server.options) as memory:
        return memory.read_bytes(path)


@pytest.mark.long
def test_operations_on_large_files_cost_the_documented_requests(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()
    new = {"BEGIN UPLOAD": 1, "PUT PART": 2, "COMPLETE UPLOAD": 1}
    with opened(ministack, proxy, url) as memory:
        write(memory, "first.bin")
        with proxy.counting() as created:
            write(memory, "large.bin")
        with proxy.counting() as replaced:
            write(memory, "large.bin", create=False)
        memory.copy("large.bin", "ready.bin")
        with proxy.counting() as copied:
            memory.copy("large.bin", "copied.bin")
        with proxy.counting() as renamed:
            memory.rename("large.bin", "moved.bin")
    on_the_server = {"BEGIN UPLOAD": 1, "COPY PART": 1, "COMPLETE UPLOAD": 1}
    assert created == {"HEAD": 1, **new}
    assert replaced == new
    assert copied == {"GET": 2, "HEAD": 3, **on_the_server}
    assert renamed == Counter(copied) + Counter({"DELETE": 1})
    assert content(ministack, url, "copied.bin") == content(ministack, url, "moved.bin") == DATA


@pytest.mark.long
@pytest.mark.parametrize("fault", ["reply lost", "reset", "500", "500 after it was done"])
@pytest.mark.parametrize("create", [True, False], ids=["create", "write"])
def test_an_answer_that_is_lost_once_does_not_reach_the_caller(
    ministack: S3Server, proxy: Proxy, fault: Fault, create: bool
) -> None:
    url = ministack.new_url()
    with opened(ministack, proxy, url) as memory:
        write(memory, "ready.bin")
        met: set[str] = set()

        def choose(operation: str) -> Fault | None:
            first = operation not in met
            met.add(operation)
            return fault if first else None

        proxy.choose = choose
        write(memory, "large.bin", create=create)
        met.clear()
        memory.copy("large.bin", "copied.bin")
        proxy.choose = lambda _: None
    assert content(ministack, url, "large.bin") == content(ministack, url, "copied.bin") == DATA


@pytest.mark.long
def test_a_failed_write_leaves_no_file_and_no_upload(
    ministack: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_CLEANUP_SECONDS", 60.0)
    url = ministack.new_url()
    with opened(ministack, proxy, url) as memory:
        write(memory, "ready.bin")
        bucket = memory._tree.backend._bucket  # type: ignore[union-attr]
        for operation in ("PUT PART", "COMPLETE UPLOAD"):
            proxy.choose = lambda name, failing=operation: "503" if name == failing else None  # type: ignore[misc]
            waits = iter((0.0, 0.0, 0.0))
            bucket.jitter = lambda waits=waits: next(waits, 1e9)  # a wait ends the operation, never a request
            with pytest.raises((WriteError, OutcomeUnknownError)):
                write(memory, "large.bin")
        proxy.choose = lambda _: None
        with pytest.raises(OSError, match="the source is gone"):
            memory.write_blocks("large.bin", fails(), len(DATA))
        assert [entry.path for entry in memory.list()] == ["ready.bin", "ready.md"]
    assert uploads(ministack, url) == 0


def fails() -> Iterator[bytes]:
    yield DATA[:PART]
    raise OSError("the source is gone")


def test_a_cancelled_write_leaves_no_upload(ministack: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_CLEANUP_SECONDS", 60.0)
    url = ministack.new_url()

    async def work() -> None:
        backend = open_backend(url, ministack.through(proxy))
        async with AsyncAgentMemory.open(backend) as memory:
            await memory.write("ready.md", "")
            sending = asyncio.Event()
            loop = asyncio.get_running_loop()

            def choose(operation: str) -> Fault | None:
                if operation == "PUT PART":
                    loop.call_soon_threadsafe(sending.set)
                    return "hangs"
                return None

            proxy.choose = choose
            task = asyncio.ensure_future(memory.write_blocks("large.bin", [DATA], len(DATA)))
            await sending.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.choose = lambda _: None
            assert not await memory.exists("large.bin")

    asyncio.run(work())
    assert uploads(ministack, url) == 0


def test_a_create_that_loses_a_race_during_its_upload_raises_already_exists(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()

    def overtaken(memory: AgentMemory, path: str) -> Iterator[bytes]:
        yield DATA[:PART]
        memory.write(path, "theirs")
        yield DATA[PART:]

    with opened(ministack, proxy, url) as memory:
        with pytest.raises(FileAlreadyExistsError):
            memory.write_blocks("large.bin", overtaken(memory, "large.bin"), len(DATA), when=ABSENT)
        assert memory.read("large.bin") == "theirs"
        memory.write_blocks("large.bin", overtaken(memory, "large.bin"), len(DATA))  # the last write wins
    assert content(ministack, url, "large.bin") == DATA
    assert uploads(ministack, url) == 0


def test_a_file_that_changes_during_its_rename_is_not_renamed(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()
    with opened(ministack, proxy, url) as memory, AgentMemory.open(url, storage_options=ministack.options) as other:
        write(memory, "large.bin")
        write(memory, "ready.bin")
        memory.copy("ready.bin", "tried.bin")

        def choose(operation: str) -> Fault | None:
            if operation == "COMPLETE UPLOAD":
                proxy.choose = lambda _: None
                other.append("large.bin", b"more\n")
            return None

        proxy.choose = choose
        with pytest.raises(ConflictError, match="it stays at its old name"):
            memory.rename("large.bin", "moved.bin")
        assert not memory.exists("moved.bin")
    assert content(ministack, url, "large.bin") == DATA + b"more\n"


@pytest.mark.long
def test_a_copy_of_a_growing_file_holds_its_state_at_the_start(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()
    with opened(ministack, proxy, url) as memory, AgentMemory.open(url, storage_options=ministack.options) as other:
        write(memory, "log.bin")
        memory.copy("log.bin", "tried.bin")

        def choose(operation: str) -> Fault | None:
            if operation == "BEGIN UPLOAD":
                proxy.choose = lambda _: None
                other.append("log.bin", b"more\n")
            return None

        proxy.choose = choose
        memory.copy("log.bin", "copied.bin")
    assert content(ministack, url, "copied.bin") == DATA
    assert content(ministack, url, "log.bin") == DATA + b"more\n"


def test_a_server_that_ignores_the_condition_of_an_upload_is_refused(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()
    proxy.treatments = {"complete": "ignored"}
    with opened(ministack, proxy, url) as memory:
        with pytest.raises(UnsupportedOperationError, match="If-None-Match of a completed upload"):
            write(memory, "large.bin")
        write(memory, "large.bin", create=False)  # unconditional
        with pytest.raises(UnsupportedOperationError):
            memory.copy("large.bin", "copied.bin")
        memory._tree.backend.max_bytes = 10_000_000
        write(memory, "one put.bin")
        assert [entry.path for entry in memory.list()] == ["large.bin", "one put.bin", "ready.md"]
    assert uploads(ministack, url) == 0


@pytest.mark.long
def test_the_bytes_are_sent_if_the_server_ignores_the_condition_of_a_copy(ministack: S3Server, proxy: Proxy) -> None:
    url = ministack.new_url()
    proxy.treatments = {"copy": "ignored"}
    with opened(ministack, proxy, url) as memory:
        write(memory, "large.bin")
        memory.copy("large.bin", "copied.bin")
        with proxy.counting() as requests:
            memory.copy("large.bin", "again.bin")
    assert requests["PUT PART"] == 2
    assert content(ministack, url, "again.bin") == DATA


def test_the_refusal_of_obstore_says_how_large_files_work(ministack: S3Server) -> None:
    url, server = ministack.new_url(), ministack.by("obstore")
    with AgentMemory.open(url, storage_options=ministack.options) as memory:
        write(memory, "large.bin")
    backend = open_backend(url, server.options)
    backend.max_bytes = 1_000_000
    with AgentMemory.open(backend) as memory:
        for act in (lambda: write(memory, "new.bin"), lambda: memory.copy("large.bin", "new.bin")):
            with pytest.raises(UnsupportedOperationError, match="without the storage option engine=obstore it works"):
                act()
        backend.max_bytes = 10_000_000
        write(memory, "one put.bin")
        assert [entry.path for entry in memory.list()] == ["large.bin", "one put.bin"]
