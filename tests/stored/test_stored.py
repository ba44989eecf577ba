"""Each store that an earlier release wrote is opened, read and changed by this one, on disk and on S3."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryFileNotFoundError, AgentMemoryService, UnsupportedOperationError
from agent_memory.audit import LogLocation, records, verify
from agent_memory.backend._host_files import ORIGIN_ATTRIBUTE
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.conversation import ConversationMemory
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from tests.stored.contents import AGENT, DIRECTORY, SECONDS, STATES
from tests.support.servers import Root, S3Server

STORES = sorted(path.stem for path in DIRECTORY.glob("*.json"))


def files_of(store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DIRECTORY / f"{store}.json").read_text())
    return found


@pytest.fixture(params=STORES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """A store of an earlier release, as it was written."""
    files = files_of(request.param)
    if request.param.endswith("-disk"):
        for file in files:
            path = tmp_path / file["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b64decode(file["data"]))
            if "origin" in file:
                os.setxattr(path, ORIGIN_ATTRIBUTE, file["origin"].encode())
        return Root(tmp_path.as_uri(), {})
    server: S3Server = request.getfixturevalue("ministack")
    url = server.new_url()
    with closing(server.client("s3")) as s3:
        for file in files:
            key = f"{url.removeprefix('s3://memories/')}/{file['name']}"
            s3.put_object(Bucket="memories", Key=key, Body=b64decode(file["data"]), Metadata=file["metadata"])
    return Root(url, server.options)


@pytest.fixture
def service(stored: Root) -> Iterator[AgentMemoryService]:
    audit = AuditPlugin(stored.url, storage_options=stored.options, required=True)
    with AgentMemoryService(stored.url, storage_options=stored.options, plugins=[audit], actor="later") as opened:
        yield opened


def test_there_is_a_store_of_each_kind() -> None:
    assert {store.rpartition("-")[2] for store in STORES} == {"disk", "s3"}
    assert all(any(file.get("origin") or file.get("metadata") for file in files_of(store)) for store in STORES)


def test_the_files_of_an_earlier_release_are_read_and_changed(service: AgentMemoryService) -> None:
    ann = service.agent(AGENT)
    names = ["log.md", "notes/renamed.md", "redacted.md", "été 🧠.md"]
    assert [name for name in map(str, ann.list()) if "session" not in name and "history" not in name] == names
    assert ann.read("notes/renamed.md") == STATES[2]
    assert ann.read_bytes("été 🧠.md") == b"names and texts in Unicode\r\n"
    ann.append("notes/renamed.md", "a later line\n")
    ann.rename("notes/renamed.md", "again.md")
    assert ann.read("again.md") == STATES[2] + "a later line\n"
    assert service.agent_ids() == (AGENT,)


def test_its_versions_are_listed_read_restored_and_undone(service: AgentMemoryService) -> None:
    ann = service.agent(AGENT)
    found = ann.versions.list("notes/renamed.md")
    assert [ann.versions.read("notes/renamed.md", each) for each in found] == list(STATES[::-1])
    assert [(each.made_by and each.made_by.actor, each.number) for each in found] == [("maker", n) for n in (2, 1, 0)]
    ann.versions.restore("notes/renamed.md", found[-1])
    assert ann.read("notes/renamed.md") == STATES[0]
    ann.versions.restore("deleted.md", ann.versions.list("deleted.md")[0])
    assert ann.read("deleted.md") == "a deleted file\n"
    redacted = ann.versions.list("redacted.md")[1]
    assert (redacted.reason, redacted.redacted_by and redacted.redacted_by.actor) == ("a key", "maker")
    with pytest.raises(AgentMemoryFileNotFoundError, match="redacted"):
        ann.versions.read("redacted.md", redacted)
    assert ann.versions.undo(actor="later").done
    assert ann.read("notes/renamed.md") == STATES[2]


def test_its_idempotency_keys_and_conversations_are_known(service: AgentMemoryService) -> None:
    ann = service.agent(AGENT)
    ann.once("order 7", window=SECONDS).append("log.md", "7\n")  # it was made by the earlier release
    assert ann.read("log.md") == "7\n"
    conversation = ConversationMemory(ann)
    assert [message.content for message in conversation.load_history(10)] == ["hello", "good morning"]


def test_its_audit_log_is_intact_and_goes_on(stored: Root, service: AgentMemoryService) -> None:
    service.agent(AGENT).write("new.md", "x")
    service.close()
    backend = open_backend(stored.url, stored.options)
    location = LogLocation.below(backend)
    with closing(location.store):
        found = list(records(location))
        assert verify(location).is_intact
    assert {record.get("actor") for record in found} >= {"maker", "later"}
    assert {record.get("operation") for record in found} >= {"write", "append", "rename", "delete", "redact", "forget"}


@pytest.mark.parametrize("stored", ["0.1-disk"], indirect=True)
def test_a_store_of_a_later_format_is_refused_and_stays_as_it_is(stored: Root, tmp_path: Path) -> None:
    record = tmp_path / STORE_RECORD.storage
    text = record.read_text()
    record.write_text(text.replace('"format": 1', '"format": 2'))
    assert record.read_text() != text
    with AgentMemoryService(stored.url) as later:
        assert later.agent(AGENT).read("log.md") == "7\n"
        with pytest.raises(UnsupportedOperationError, match="format 2"):
            later.agent(AGENT).once("k").write("new.md", "x")
