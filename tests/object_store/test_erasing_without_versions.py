"""Forgetting on servers that ignore a request for versions, or have none: what is listed afterwards decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent_memory import AgentMemory, AgentMemoryService, FileOperationError, VersionLimits, WriteError
from agent_memory.audit import log_at
from agent_memory.plugins.audit import AuditPlugin
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server
from tests.support.sizes import also, long_except

pytestmark = pytest.mark.usefixtures("trusted")
TEXT = "the password"
Answer = Callable[[web.Request], web.Response | None]


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


class Bucket:
    """A prefix behind the proxy, and its objects as the server has them."""

    def __init__(self, server: S3Server, proxy: Proxy) -> None:
        self.url = server.new_url()
        self.options = server.through(proxy)
        self._client = server.client("s3")

    def names(self) -> list[str]:
        prefix = self.url.removeprefix("s3://memories/")
        found = self._client.list_objects_v2(Bucket="memories", Prefix=f"{prefix}/").get("Contents", ())
        return [each["Key"].removeprefix(f"{prefix}/") for each in found]

    def service(self, **options: Any) -> AgentMemoryService:
        return AgentMemoryService(self.url, storage_options=self.options, **options)


@pytest.fixture
def bucket(ministack: S3Server, proxy: Proxy) -> Bucket:
    return Bucket(ministack, proxy)


def refusing(status: int = 501, code: str = "NotImplemented", *, also: tuple[str, ...] = ("versioning",)) -> Answer:
    """A server that has no versions: it answers requests for them with an error."""

    def answer(request: web.Request) -> web.Response | None:
        if {"versions", *also}.isdisjoint(request.query):
            return None
        return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")

    return answer


def versioning(status: str) -> Answer:
    """A server that cannot list versions, but says whether a bucket keeps some."""
    refuse = refusing(also=())

    def answer(request: web.Request) -> web.Response | None:
        if "versioning" not in request.query:
            return refuse(request)
        text = f"<VersioningConfiguration>{status}</VersioningConfiguration>"
        return web.Response(text=text, content_type="application/xml")

    return answer


HAS_NONE = {
    "501": refusing(),
    "405": refusing(405, "MethodNotAllowed"),
    "405 without a code": refusing(405, ""),
    "400 with a code": refusing(400, "NotImplemented"),
    "no uploads either": refusing(also=("versioning", "uploads")),
    "never versioned": versioning(""),
}


@pytest.mark.parametrize("path", ["", *also(["dir", "notes.md", "dir/a.md"])])
def test_forgetting_fails_where_the_server_ignores_that_versions_are_requested(
    bucket: Bucket, proxy: Proxy, path: str
) -> None:
    proxy.ignores = {"versions"}
    with AgentMemory.open(bucket.url, storage_options=bucket.options) as memory:
        memory.write("notes.md", TEXT)
        memory.write("dir/a.md", TEXT)
        with pytest.raises(FileOperationError, match="the server lists no version of an existing file"):
            memory.forget(path)
        assert bucket.names() == ["dir/a.md", "notes.md"]


@pytest.mark.parametrize("path", ["notes.md", *also([""])])
def test_forgetting_an_agent_fails_where_versions_are_ignored(bucket: Bucket, proxy: Proxy, path: str) -> None:
    proxy.ignores = {"versions"}
    with bucket.service() as service:
        service.write_memory_file("bob", "notes.md", TEXT)
        with pytest.raises(WriteError, match="lists no version"):
            service.forget_memory("bob", path)


def test_forgetting_fails_if_only_some_files_are_listed_with_their_versions(bucket: Bucket, monkeypatch: Any) -> None:
    with bucket.service() as service:
        for name in ("dir/a.md", "dir/b.md"):
            service.write_memory_file("bob", name, TEXT)
        store = service._backend._bucket.store  # type: ignore[union-attr]
        list_versions = store.list_versions

        async def hiding(prefix: str, after: tuple[str, str] | None) -> Any:
            page = await list_versions(prefix, after)
            return page._replace(found=[kept for kept in page.found if not kept.name.endswith("b.md")])

        monkeypatch.setattr(store, "list_versions", hiding)
        for path in ("dir", ""):
            with pytest.raises(FileOperationError, match="lists no version"):
                service.forget_memory("bob", path)
        assert bucket.names() == ["agent_memory/bob/dir/b.md"]


@pytest.mark.parametrize("writes", [2, *also([1_000])])
def test_a_file_that_another_process_writes_meanwhile_is_erased_too(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Written after the versions were listed, and seen by the plain listing; a writer that never stops is told."""
    with bucket.service() as service, bucket.service() as other:
        service.write_memory_file("bob", "notes.md", TEXT)
        store, left = service._backend._bucket.store, iter(range(writes))  # type: ignore[union-attr]
        plain = store.list

        async def listed(prefix: str, **options: Any) -> Any:
            if prefix.endswith("/bob/") and next(left, None) is not None:
                await asyncio.to_thread(other.write_memory_file, "bob", "late.md", TEXT)
            return await plain(prefix, **options)

        monkeypatch.setattr(store, "list", listed)
        if writes > 2:
            with pytest.raises(FileOperationError, match="unless another process has just written it"):
                service.forget_memory("bob")
        else:
            assert service.forget_memory("bob").files == 2
            assert bucket.names() == []


@pytest.mark.parametrize("path", ["", *also(["notes.md"])])
def test_receipts_and_versions_are_not_forgotten_where_versions_are_ignored(
    bucket: Bucket, proxy: Proxy, path: str
) -> None:
    """The files are gone already, so only what this package keeps of them is left."""
    with bucket.service(versions=VersionLimits()) as service:
        memory = service.agent("bob")
        memory.once("key").write("notes.md", TEXT)
        memory.write("notes.md", "x")
        memory.delete("notes.md")
        proxy.ignores = {"versions"}
        with pytest.raises(WriteError, match="lists no version"):
            memory.forget(path)
        proxy.ignores = set()
        memory.forget(path)
        assert bucket.names() == [".agent-memory/store.json"]


def test_a_redaction_fails_where_versions_are_ignored(bucket: Bucket, proxy: Proxy) -> None:
    with bucket.service(versions=VersionLimits()) as service:
        memory = service.agent("bob")
        memory.write("notes.md", TEXT)
        memory.write("notes.md", "x")
        earlier = memory.versions.list("notes.md")[-1].id
        proxy.ignores = {"versions"}
        with pytest.raises(WriteError, match="lists no version"):
            memory.versions.redact("notes.md", earlier, reason="a key")
        assert memory.versions.list("notes.md")[-1].redacted_by is None
        proxy.ignores = set()
        assert memory.versions.redact("notes.md", earlier, reason="a key").versions_searched


@long_except(("never versioned",), "answer", HAS_NONE)
def test_files_are_deleted_where_the_server_has_no_versions(bucket: Bucket, proxy: Proxy, answer: Answer) -> None:
    proxy.instead = answer
    with bucket.service(versions=VersionLimits()) as service:
        memory = service.agent("bob")
        for name in ("dir/a.md", "dir/b.md", "dir.md"):
            memory.once(name).write(name, TEXT)
            memory.write(name, "x")
        result = memory.forget("dir")
        assert (result.files, result.versions_searched) == (2, False)
        assert [entry.path for entry in memory.list()] == ["dir.md"]
        assert memory.forget("dir.md").files == 1
        assert memory.forget("dir.md").files == 0
        memory.write("again.md", TEXT)
        assert service.forget_memory("bob").files == 1
        assert bucket.names() == [".agent-memory/store.json"]


@long_except(("405 without a code",), "answer", HAS_NONE)
def test_a_version_is_redacted_where_the_server_has_none(bucket: Bucket, proxy: Proxy, answer: Answer) -> None:
    proxy.instead = answer
    with bucket.service(versions=VersionLimits()) as service:
        memory = service.agent("bob")
        memory.write("notes.md", TEXT)
        memory.write("notes.md", "x")
        earlier = memory.versions.list("notes.md")[-1].id
        assert not memory.versions.redact("notes.md", earlier, reason="a key").versions_searched
        assert memory.versions.list("notes.md")[-1].redacted_by
        assert memory.read("notes.md") == "x"


@pytest.mark.parametrize("status", ["Suspended", *also(["Enabled"])])
def test_forgetting_fails_if_versions_are_kept_but_not_listed(bucket: Bucket, proxy: Proxy, status: str) -> None:
    proxy.instead = versioning(f"<Status>{status}</Status>")
    with bucket.service() as service:
        service.write_memory_file("bob", "notes.md", TEXT)
        with pytest.raises(WriteError, match="does not support the request"):
            service.forget_memory("bob")
        assert bucket.names() == ["agent_memory/bob/notes.md"]


def test_forgetting_fails_if_uploads_cannot_be_listed_where_there_are_versions(bucket: Bucket, proxy: Proxy) -> None:
    refuse = refusing(also=("uploads",))
    proxy.instead = lambda request: None if "versions" in request.query else refuse(request)
    with bucket.service() as service:
        service.write_memory_file("bob", "notes.md", TEXT)
        with pytest.raises(WriteError, match="does not support the request"):
            service.forget_memory("bob")


@pytest.mark.parametrize("path", ["", *also(["notes.md"])])
def test_forgetting_fails_if_a_deleted_file_is_still_there(bucket: Bucket, proxy: Proxy, path: str) -> None:
    refuse = refusing()

    def pretending(request: web.Request) -> web.Response | None:
        return web.Response(status=204) if request.method == "DELETE" else refuse(request)

    with bucket.service() as service:
        service.write_memory_file("bob", "notes.md", TEXT)
        proxy.instead = pretending
        with pytest.raises(WriteError, match="still"):
            service.forget_memory("bob", path)
        proxy.instead = None


def test_the_log_and_the_audit_log_tell_that_no_versions_were_searched(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.instead = refusing()
    with (
        AuditPlugin(tmp_path / "audit.jsonl") as audit,
        bucket.service(plugins=[audit]) as service,
        caplog.at_level("INFO", "agent_memory"),
    ):
        service.write_memory_file("bob", "notes.md", TEXT)
        service.forget_memory("bob")
        audit.flush()
    log = log_at(tmp_path / "audit.jsonl")
    records = [json.loads(line) for part in log.parts() for line in b"".join(log.blocks(part)).splitlines()]
    told = {record["operation"]: record.get("versions_searched") for record in records if "operation" in record}
    assert told == {"write": None, "forget": False}
    assert [" versions_searched=False " in each.getMessage() for each in caplog.records] == [False, True]


@pytest.mark.ecosystem
def test_rclone_has_no_versions(rclone: S3Server) -> None:
    url, options = rclone.new_url(), rclone.for_one_writer().options
    with AgentMemoryService(url, storage_options=options) as service:
        for name in ("dir/a.md", "b.md"):
            service.write_memory_file("bob", name, TEXT)
        done = service.forget_memory("bob", "dir")
        assert (done.files, done.versions_searched) == (1, False)
        assert service.forget_memory("bob").files == 1
        assert service.agent("bob").list() == ()
