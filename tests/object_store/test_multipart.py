"""Appends to large files: the server copies the existing bytes, and the client sends only the new ones."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from agent_memory import AgentMemory, AppendError, ConflictError
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.object_store import retry
from agent_memory.registry import open_backend
from agent_memory_s3 import S3Backend
from tests.object_store.proxy import Fault, Proxy
from tests.support import sizes
from tests.support.processes import in_processes
from tests.support.servers import Root, S3Server
from tests.support.sizes import also

pytestmark = pytest.mark.usefixtures("trusted")
LARGE = 6 << 20
on_both = pytest.mark.parametrize(
    "server", ["ministack", pytest.param("seaweedfs", marks=pytest.mark.long)], indirect=True
)
LINE = "x" * 1023 + "\n"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found.for_one_writer() if request.param == "seaweedfs" else found


def put_large(server: S3Server, url: str, path: str = "log.md", size: int = LARGE) -> bytes:
    """Store a large file without this package."""
    data = (b"%063d\n" * (size // 64)) % tuple(range(size // 64))
    with closing(server.client("s3")) as s3:
        s3.put_object(Bucket="memories", Key=f"{url.removeprefix('s3://memories/')}/{path}", Body=data)
    return data


def uploads(server: S3Server, url: str) -> int:
    """The number of multipart uploads that are neither completed nor aborted."""
    with closing(server.client("s3")) as s3:
        found = s3.list_multipart_uploads(Bucket="memories", Prefix=url.removeprefix("s3://memories/"))
    return len(found.get("Uploads", ()))


@on_both
def test_an_append_to_a_large_file_sends_only_the_new_bytes(server: S3Server) -> None:
    url = server.new_url()
    before, appends = put_large(server, url), 20 if sizes.is_long else 5
    with Proxy(server.endpoint) as proxy:
        with AgentMemory.open(url, storage_options=server.through(proxy)) as memory:
            for number in range(appends):
                memory.append("log.md", f"{number:04}{LINE[4:]}")
            assert proxy.sent < 60_000
            expected = before + "".join(f"{number:04}{LINE[4:]}" for number in range(appends)).encode()
            assert memory.read_bytes("log.md") == expected
    assert uploads(server, url) == 0


def test_an_append_to_a_large_file_costs_the_documented_requests(ministack: S3Server) -> None:
    url = ministack.new_url()
    put_large(ministack, url)
    put_large(ministack, url, "other.md")
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(url, storage_options=ministack.through(proxy)) as memory:
            memory.append("other.md", LINE)
            with proxy.counting() as first:
                memory.append("log.md", LINE)
            with proxy.counting() as second:
                memory.append("log.md", LINE)
    assert second == {"BEGIN UPLOAD": 1, "COPY PART": 1, "PUT PART": 1, "COMPLETE UPLOAD": 1}
    assert first == {"GET": 2, **second}


@pytest.mark.parametrize(
    ("operation", "fault", "error", "message"),
    [
        ("COMPLETE UPLOAD", "409", ConflictError, "lost races; nothing was written"),
        pytest.param("PUT PART", "500", AppendError, "S3 answered InternalError", marks=pytest.mark.long),
        pytest.param("COPY PART", "hangs", AppendError, "no answer in time", marks=pytest.mark.long),
    ],
)
def test_a_failed_append_leaves_no_upload(
    ministack: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    fault: Fault,
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr(retry, "_CLEANUP_SECONDS", 60.0)
    url = ministack.new_url()
    before = put_large(ministack, url)
    with Proxy(ministack.endpoint) as proxy:
        backend = open_backend(url, ministack.through(proxy))
        assert isinstance(backend, S3Backend)
        with AgentMemory.open(backend) as memory:
            memory.append("log.md", LINE)  # makes the first-time requests
            before += LINE.encode()
            proxy.choose = lambda name: fault if name == operation else None
            waits = iter((0.0, 0.0, 0.0))
            backend._bucket.jitter = lambda: next(waits, 1e9)  # a wait ends the operation, a request only if it hangs
            with pytest.raises(error, match=message):  # the upload is aborted at the close, at the latest
                memory.with_timeout(5 if fault == "hangs" else 60).append("log.md", LINE)
            proxy.choose = lambda _: None
            assert memory.read_bytes("log.md") == before
    assert uploads(ministack, url) == 0


def test_an_upload_whose_completion_answer_is_lost_is_recognised_as_complete(ministack: S3Server) -> None:
    url = ministack.new_url()
    before = put_large(ministack, url)
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(url, storage_options=ministack.through(proxy)) as memory:
            memory.append("log.md", "first\n")
            faults: list[Fault] = ["reply lost", "500 after it was done", "reset"]
            lost = iter(faults)
            proxy.choose = lambda operation: next(lost, None) if operation == "COMPLETE UPLOAD" else None
            memory.append("log.md", "second\n")
            memory.append("log.md", "third\n")
            assert memory.read_bytes("log.md") == before + b"first\nsecond\nthird\n"
    assert uploads(ministack, url) == 0


@pytest.mark.parametrize("server", ["ministack", *also(["moto"])], indirect=True)
def test_separators_are_correct_while_a_file_grows_large(server: S3Server) -> None:
    url = server.new_url()
    with AgentMemory.open(url, storage_options=server.options) as memory:
        memory.write("log.md", "x" * (5 << 20))
        memory.append("log.md", "second", separator="\n")
        memory.append("log.md", "third\n", separator="\n")
        memory.append("log.md", "fourth\n", separator="\n")
        assert memory.stat("log.md").size == len(memory.read("log.md"))
        assert memory.read("log.md").lstrip("x") == "\nsecond\nthird\nfourth\n"


def append_to_the_large_file(number: int, barrier: Any, root: Root, lines: int) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        for line in range(lines):
            barrier.wait(60)
            memory.append("log.md", f"writer {number} line {line}\n")


@pytest.mark.long
@pytest.mark.parametrize("name", ["ministack", "seaweedfs"])
def test_no_append_of_many_processes_to_a_large_file_is_lost(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(name)
    url, lines = server.new_url(), 10
    before = put_large(server, url).decode()
    in_processes(4, append_to_the_large_file, Root(url, server.options), lines)
    with AgentMemory.open(url, storage_options=server.options) as memory:
        text = memory.read("log.md")
    assert text.startswith(before)
    added = text[len(before) :].splitlines()
    assert sorted(added) == sorted(f"writer {w} line {n}" for w in range(4) for n in range(lines))
    assert uploads(server, url) == 0


_IN_BOUNDED_MEMORY = """
import asyncio, json, sys
from pathlib import Path
import aiobotocore.session, s3fs
from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.tools import MemorySearch

def peak():  # ru_maxrss would begin with the parent's
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024

async def size_of(reader):
    total = 0
    while data := await reader.read(total, total + (4 << 20)):
        total += len(data)
    return total

imported = peak()
url, options, appends = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
with AgentMemory.open(url, storage_options=options) as memory:
    for number in range(appends):
        memory.append("history.jsonl", Message("user", f"number {number}: " + "y" * 900).to_line() + "\\n")
    tail = len(ConversationMemory(memory).load_history(80))
    found = len(MemorySearch(memory, history=True).search("number 0:").matches)
    read = memory.scan("history.jsonl", size_of)
    print(json.dumps([peak() - imported, tail, found, read]))
"""


def put_history(server: S3Server, url: str, megabytes: int) -> int:
    """Store a history of about the given number of megabytes; the server copies most of it."""
    line = (Message("user", "x" * 900).to_line() + "\n").encode()
    block = line * ((16 << 20) // len(line))
    where = {"Bucket": "memories", "Key": f"{url.removeprefix('s3://memories/')}/history.jsonl"}
    source = {"Bucket": "memories", "Key": where["Key"] + ".block"}
    with closing(server.client("s3")) as s3:
        s3.put_object(**source, Body=block)
        upload = s3.create_multipart_upload(**where)["UploadId"]
        parts = []
        for number in range(1, megabytes // 16 + 1):
            copied = s3.upload_part_copy(**where, UploadId=upload, PartNumber=number, CopySource=source)
            parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
        s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
        s3.delete_object(**source)
    return len(block) * len(parts)


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "megabytes", "appends"),
    [("ministack", 64, 20), ("seaweedfs", 1024, 1)],
    indirect=["server"],
    ids=["64 MB", "1 GB"],
)
def test_appends_and_reads_of_large_files_need_bounded_memory(server: S3Server, megabytes: int, appends: int) -> None:
    url = server.new_url()
    size = put_history(server, url, megabytes)
    with Proxy(server.endpoint) as proxy:
        with AgentMemory.open(url, storage_options=server.through(proxy)) as memory:
            assert len(ConversationMemory(memory).load_history(80)) == 80
        assert proxy.received < 1_000_000
        command = [sys.executable, "-c", _IN_BOUNDED_MEMORY, url, json.dumps(server.through(proxy)), str(appends)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        assert proxy.sent < 1_000_000
    peak, tail, found, read = json.loads(done.stdout)
    assert peak < 64
    assert (tail, found) == (80, 1)
    assert read > size + 900 * appends
