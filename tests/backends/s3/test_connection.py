"""The connection to S3: opened again after it was closed, and checked against the names of other packages it uses."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiohttp import ClientSession
from fsspec.asyn import get_loop, sync
from s3fs import S3FileSystem

from agent_memory import AgentMemory, BackendNotAvailableError
from agent_memory_s3 import S3Backend
from agent_memory_s3._connection import can_send_once
from tests.support.servers import S3Server


def test_a_closed_backend_opens_a_new_connection_for_the_next_call(moto: S3Server) -> None:
    backend: Any = moto.new_backend()
    AgentMemory.open(backend).write("a.md", "x")
    first = backend._bucket.store._connection._client
    with AgentMemory.open(backend) as memory:
        assert memory.read("a.md") == "x"
    assert backend._bucket.store._connection._client is None
    with AgentMemory.open(backend) as memory:
        assert memory.read("a.md") == "x"
        assert backend._bucket.store._connection._client not in (None, first)


def test_a_client_that_s3fs_replaces_sends_no_expect_header_either(moto: S3Server) -> None:
    backend: Any = moto.new_backend()
    sent: list[Any] = []

    def record(request: Any, **_: Any) -> None:
        sent.append(request.headers.get("Expect"))

    with AgentMemory.open(backend) as memory:
        memory.write("a.md", "x")
        connection = backend._bucket.store._connection
        first = connection._client
        sync(get_loop(), connection._fs.set_session, True)
        memory.write("a.md", "y")
        assert connection._client is not first
        sync(get_loop(), first.close)
        connection._client.meta.events.register_last("before-send.s3", record)
        memory.write("a.md", "z")
    assert sent
    assert set(sent) == {None}


def test_the_error_for_an_s3fs_without_the_method_names_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(S3FileSystem, "_call_s3")
    with pytest.raises(BackendNotAvailableError, match=r"^s3:// needs s3fs with `_call_s3`, which s3fs \d"):
        AgentMemory.open("s3://bucket", storage_options={"key": "k", "secret": "s"})


def test_an_aiohttp_that_sends_writes_twice_is_told_once_and_works(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ClientSession, "ATTRS", ClientSession.ATTRS - {"_retry_connection"})
    can_send_once.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for number in range(2):
                with AgentMemory.open(moto.new_backend()) as memory:
                    assert isinstance(memory.append(f"{number}.md", "x").size, int)
        told = [each.getMessage() for each in caplog.records if "may send a write twice" in each.getMessage()]
        assert len(told) == 1
        assert "aiobotocore" in told[0]
        assert S3Backend("bucket", "", {"key": "k", "secret": "s"})._bucket.store.resends
    finally:
        can_send_once.cache_clear()
