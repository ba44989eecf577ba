"""A store's record comes before its other internal files, and a release that does not know it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agent_memory
from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    AppendError,
    AsyncAgentMemory,
    Limits,
    ReadError,
    UnsupportedOperationError,
    VersionLimits,
)
from agent_memory.audit import LogLocation
from agent_memory.backend import ANY, ETag, Key, NewOrigin, ReadWhen, Snapshot, WriteWhen
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.store_record import FOLLOW_SECONDS, LEAST_RELEASES, KnownStore, StoreRecord, release
from agent_memory.filesystem import filesystem
from agent_memory.integrations.toolkit import record_segment, step, sync_facade
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from agent_memory.tools import MemoryTool
from agent_memory.tools._protected import take_back_marks
from agent_memory_memory import MemoryBackend
from tests.support.servers import Root

INTERNAL = STORE_RECORD.parent


class Recorded(MemoryBackend):
    """A store that records the names of its internal files in the order of their writes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        etag = super().write(key, data, when, origin)
        if key.is_internal and key.storage not in self.names:
            self.names.append(key.storage)
        return etag


def facts(backend: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BlockingStore(backend).read(STORE_RECORD).data)
    return found


def audited(backend: Any) -> AgentMemory:
    return AgentMemory.open(backend, plugins=[AuditPlugin(LogLocation.below(backend), required=True)])


def marked(memory: AgentMemory) -> None:
    """Let a tool without a conversation write a file, and with it a mark."""
    answer = MemoryTool(memory, conversation=False).call(
        {"command": "create", "path": "/memories/n.md", "file_text": "x"}
    )
    if answer.is_error:
        raise UnsupportedOperationError(answer.output)


FIRST_USES: dict[str, Callable[[Any], object]] = {
    "receipts": lambda backend: AgentMemory.open(backend).once("k").append("a.md", "x"),
    "versions": lambda backend: AgentMemory.open(backend, versions=VersionLimits()).write("a.md", "x"),
    "audit": lambda backend: audited(backend).write("a.md", "x"),
    "limits": lambda backend: AgentMemory.open(backend, limits=Limits(agent_files=9)).write("a.md", "x"),
    "no-conversation": lambda backend: marked(AgentMemory.open(backend)),
}
FROM_THE_BEGINNING = {"no-conversation", "receipts"}


@pytest.mark.parametrize("feature", FIRST_USES)
def test_the_record_is_the_first_internal_file_and_names_the_feature(feature: str) -> None:
    backend = Recorded()
    FIRST_USES[feature](backend)
    assert backend.names[0] == STORE_RECORD.storage
    found = facts(backend)
    assert found["format"] == 1
    assert re.fullmatch(r"[0-9a-f]{24}", found["id"])
    assert found["features"] == sorted(FROM_THE_BEGINNING | {feature})
    assert found["least_release"] == LEAST_RELEASES["audit"]


def test_every_feature_has_its_first_use_here() -> None:
    assert FIRST_USES.keys() == LEAST_RELEASES.keys()


def test_a_store_without_internal_files_has_no_record(root: Root) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.write("a.md", "x")
        memory.edit("a.md", str.upper)
        memory.rename("a.md", "b.md")
        memory.forget("b.md")
        memory.versions.set_limits(None)
        assert BlockingStore(memory._tree.backend).list(INTERNAL).entries == ()


def test_features_are_added_and_stay_and_the_id_stays(root: Root) -> None:
    backend = open_backend(root.url, root.options)
    for use in FIRST_USES.values():
        use(backend)
    found = facts(backend)
    assert found["features"] == sorted(LEAST_RELEASES)
    AgentMemory.open(backend).versions.set_limits(None)
    after = facts(backend)
    assert (after["id"], after["features"]) == (found["id"], found["features"])
    assert after["versions"] == {"limits": None}


def test_of_racing_creators_all_find_one_record(root: Root) -> None:
    uses = list(FIRST_USES.values()) * 2
    backends = [open_backend(root.url, root.options) for _ in uses]
    for _ in range(2):
        start = threading.Barrier(len(backends))

        def use(number: int, start: threading.Barrier = start) -> str:
            start.wait()
            known = KnownStore()
            feature: Any = sorted(LEAST_RELEASES)[number % len(LEAST_RELEASES)]
            store = BlockingStore(backends[number])
            store.run(known.use, feature)
            record = store.run(known.read, 0.0)
            assert record
            return record.id

        with ThreadPoolExecutor(len(uses)) as pool:
            assert len(set(pool.map(use, range(len(uses))))) == 1
        assert facts(backends[0])["features"] == sorted(LEAST_RELEASES)
        BlockingStore(backends[0]).delete(STORE_RECORD)


def test_a_record_that_another_thread_creates_during_a_reading_is_not_gone() -> None:
    """A thread finds no record, another one creates it, and only then the first one goes on."""
    creator, has_looked, is_created = threading.get_ident(), threading.Event(), threading.Event()

    class Paused(MemoryBackend):
        def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
            try:
                return super().read(key, start, end, when)
            finally:
                if key == STORE_RECORD and threading.get_ident() != creator:
                    has_looked.set()
                    assert is_created.wait(30)

    memory = AgentMemory.open(Paused())
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(memory.once("second").append, "b", "x")
        assert has_looked.wait(30)
        memory.once("first").append("a", "x")
        is_created.set()
        second.result()
    assert [entry.path for entry in memory.list()] == ["a", "b"]


def test_fields_that_this_release_does_not_know_are_kept() -> None:
    backend = MemoryBackend()
    FIRST_USES["receipts"](backend)
    changed = {**facts(backend), "servers": {"b": {"kept": [1, None]}}, "a": "ü"}
    backend.write(STORE_RECORD, json.dumps(changed).encode())
    FIRST_USES["versions"](backend)
    found = facts(backend)
    assert (found["servers"], found["a"]) == ({"b": {"kept": [1, None]}}, "ü")
    assert "versions" in found["features"]
    found["versions"]["newer"] = found["versions"]["limits"]["newer"] = 5
    backend.write(STORE_RECORD, json.dumps(found).encode())
    memory = AgentMemory.open(backend)
    assert memory.versions.limits() == VersionLimits()
    memory.once("k2").write("a.md", "two")
    memory.versions.set_limits(None)
    assert facts(backend)["versions"] == {"limits": None, "newer": 5}


# The release before


def seed(backend: Any) -> tuple[str, str]:
    """Fill a store with every feature; return the id of an earlier version and the id of the store."""
    with AgentMemory.open(backend, versions=VersionLimits()) as memory:
        memory.write("a.md", "one")
        memory.once("k").write("a.md", "two")
        memory.write("d/b.md", "b")
        memory.write("agent_memory/bob/c.md", "of bob")
        version = memory.versions.list("a.md")[1].id
    with audited(backend) as memory:
        memory.append("d/log.md", "x")
        marked(memory.subtree("marked"))
        marked(memory)
    return version, facts(backend)["id"]


def stored(backend: Any) -> dict[str, bytes]:
    store = BlockingStore(backend)
    keys = [entry.key for top in (Key.tree(), INTERNAL) for entry in store.list(top).entries]
    return {key.storage: store.read(key).data for key in keys}


def changes(version: str) -> dict[str, Callable[[AgentMemory], object]]:
    return {
        "write": lambda memory: memory.write("a.md", "x"),
        "write bytes": lambda memory: memory.write("n.md", b"x"),
        "create": lambda memory: memory.create("n.md", "x"),
        "append": lambda memory: memory.append("a.md", "x"),
        "append once": lambda memory: memory.once("new").append("a.md", "x"),
        "repeat a call": lambda memory: memory.once("k").write("a.md", "two"),
        "edit": lambda memory: memory.edit("a.md", str.upper),
        "delete": lambda memory: memory.delete("a.md"),
        "delete once": lambda memory: memory.once("new").delete("a.md"),
        "delete a tree": lambda memory: memory.delete_tree("d"),
        "rename": lambda memory: memory.rename("a.md", "n.md"),
        "rename a directory": lambda memory: memory.rename("d", "n"),
        "copy": lambda memory: memory.copy("a.md", "n.md"),
        "forget a file": lambda memory: memory.forget("a.md"),
        "forget all": lambda memory: memory.forget(""),
        "restore": lambda memory: memory.versions.restore("a.md", version),
        "redact": lambda memory: memory.versions.redact("a.md", version, reason="r"),
        "prune": lambda memory: memory.versions.prune(),
        "versions on": lambda memory: memory.versions.set_limits(VersionLimits(keep=1)),
        "versions off": lambda memory: memory.versions.set_limits(None),
        "write blocks": lambda memory: memory.write_blocks("n.md", [b"x"], size=1),
        "record a segment": lambda memory: step(record_segment(sync_facade(memory), "x" * 999)),
        "a view": lambda memory: memory.subtree("d").write("b.md", "x"),
        "a filesystem": lambda memory: filesystem(memory).pipe_file("n.md", b"x"),
        "a mark": marked,
        "a mark that is taken back": lambda memory: take_back_marks(memory, [""]),
        "a conversation": lambda memory: ConversationMemory(memory).append_message(Message("user", "x")),
    }


CHANGES = list(changes(""))


def future(backend: Any, **fields: object) -> None:
    """Make the record one of a release that does not exist yet."""
    found = facts(backend)
    changed = {**found, "features": sorted([*found["features"], "dreams"]), "least_release": "99.1", **fields}
    BlockingStore(backend).write(STORE_RECORD, json.dumps(changed).encode())


def test_a_release_that_does_not_know_a_feature_changes_nothing(root: Root) -> None:
    backend = open_backend(root.url, root.options)
    version, _ = seed(backend)
    future(backend)
    before = stored(backend)
    for name, change in changes(version).items():
        with (
            AgentMemory.open(root.url, storage_options=root.options, versions=VersionLimits()) as memory,
            pytest.raises(UnsupportedOperationError, match=r"uses 'dreams'.* 99\.1 or later"),
        ):
            change(memory)
        assert stored(backend) == before, name


def test_what_else_changes_a_store_refuses_too(root: Root) -> None:
    backend = open_backend(root.url, root.options)
    seed(backend)
    future(backend)
    before = stored(backend)
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        for refused in (
            lambda: service.write_memory_file("bob", "c.md", "x"),
            lambda: service.append_to_memory_file("new", "c.md", "x"),
            lambda: service.forget_memory("bob"),
        ):
            with pytest.raises(UnsupportedOperationError, match="dreams"):
                refused()
        assert service.read_memory_file("bob", "c.md") == "of bob"
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        answer = MemoryTool(memory).call({"command": "create", "path": "/memories/n.md", "file_text": "x"})
        assert answer.is_error
        left = memory.versions.undo(since=0.0)
        assert left.done == ()
        with pytest.raises(UnsupportedOperationError):
            asyncio.run(_written_async(memory))
    assert stored(backend) == before


async def _written_async(memory: AgentMemory) -> None:
    await memory.as_async().write("n.md", "x")


def test_reading_still_works(root: Root) -> None:
    backend = open_backend(root.url, root.options)
    version, _ = seed(backend)
    future(backend)
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        assert memory.read("a.md") == "two"
        assert memory.versions.read("a.md", version) == "one"
        assert len(memory.versions.list("a.md")) == 2
        assert {"a.md", "d/b.md"} <= {entry.path for entry in memory.list()}
        assert memory.versions.limits() == VersionLimits()


@pytest.mark.parametrize("required", [True, False])
def test_the_audit_log_of_a_store_that_needs_a_newer_release_is_not_written(
    required: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemoryBackend()
    seed(backend)
    future(backend)
    before = stored(backend)
    plugin = AuditPlugin(LogLocation.below(backend), required=required)
    with (
        AgentMemory.open(backend, plugins=[plugin]) as memory,
        pytest.raises(UnsupportedOperationError, match="dreams"),
    ):
        memory.write("a.md", "x")
    assert "dreams" in caplog.text
    assert stored(backend) == before


def test_an_audit_log_in_a_file_belongs_to_no_store(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path / "root", plugins=[AuditPlugin(tmp_path / "audit.jsonl", required=True)]) as memory:
        memory.write("a.md", "x")
    assert not list(tmp_path.rglob("store.json"))


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"features": ["receipts"]}, r"was changed by a newer release: only agent-memory 99\.1"),
        ({"format": 2, "least_release": "7"}, r"has format 2: only agent-memory 7 "),
        ({"format": 2, "id": None, "features": {}, "versions": 3}, "has format 2"),
        ({"least_release": "0.0.1"}, "uses 'dreams'"),
    ],
)
def test_the_error_names_what_the_store_needs(fields: dict[str, object], needs: str) -> None:
    backend = MemoryBackend()
    seed(backend)
    future(backend, **fields)
    before = stored(backend)
    with pytest.raises(UnsupportedOperationError, match=needs) as refused:
        AgentMemory.open(backend).write("a.md", "x")
    assert f"this is {agent_memory.__version__}; upgrade agent-memory-files" in str(refused.value)
    assert stored(backend) == before
    assert AgentMemory.open(backend).read("a.md") == "two"


def test_a_newer_release_that_changed_nothing_else_is_followed() -> None:
    backend = MemoryBackend()
    FIRST_USES["receipts"](backend)
    for least in ("0", "0.0.9", release(), f"{release()}.0"):
        backend.write(STORE_RECORD, json.dumps({**facts(backend), "least_release": least}).encode())
        AgentMemory.open(backend).write("a.md", "x")


def test_a_process_notices_a_feature_within_a_minute(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(root.url, root.options)
    seed(backend)
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.write("a.md", "three")
        future(backend)
        now = time.monotonic
        monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
        with pytest.raises(UnsupportedOperationError, match="dreams"):
            memory.write("a.md", "four")
        assert memory.read("a.md") == "three"


# Damaged records


GOOD = replace(StoreRecord.new(), id="0123456789abcdef01234567").to_bytes()
WRONG: list[dict[str, object]] = [
    {"format": 0}, {"format": True}, {"format": "1"}, {"format": 1.0}, {"format": None},
    {"id": ""}, {"id": 5}, {"id": "A" * 24}, {"id": "a" * 25}, {"id": None}, {"id": ["a" * 24]},
    {"features": "receipts"}, {"features": [1]}, {"features": ["a b"]}, {"features": {"receipts": 1}},
    {"features": [""]}, {"features": ["a" * 41]}, {"features": ["a"] * 101}, {"features": ["x\n"]},
    {"least_release": 1}, {"least_release": "new"}, {"least_release": "1."}, {"least_release": None},
    {"least_release": "9" * 10}, {"least_release": "1.1.1.1.1"}, {"least_release": "1\n"},
    {"versions": 1}, {"versions": []}, {"versions": {}}, {"versions": {"limits": {"keep": 0}}},
    {"versions": {"limits": {"keep": "1"}}}, {"versions": {"limits": [1]}}, {"versions": {"limits": {"keep": 1}}},
    {"features": ["versions"]}, {"padding": "x" * (64 << 10)},
]  # fmt: skip
DAMAGED = [
    b"", b"null", b"[]", b"{}", b"7", b"\xff", b"[" * 100_000, b'{"format": 1}', GOOD[:-9],
    *(json.dumps({**json.loads(GOOD), **fields}).encode() for fields in WRONG),
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: data[-60:].decode(errors="replace"))
def test_a_damaged_record_refuses_every_change_and_stays(data: bytes) -> None:
    backend = MemoryBackend()
    backend.write(Key.tree().join("a.md"), b"x")
    backend.write(STORE_RECORD, data)
    memory = AgentMemory.open(backend, versions=VersionLimits())
    with pytest.raises(ReadError, match=r"the record of the store is damaged; .*'agent-memory doctor'") as refused:
        memory.write("a.md", "y")
    assert refused.value.path == "a.md"
    with pytest.raises(AppendError, match="is damaged"):
        memory.append("a.md", "y")
    for change in (lambda: memory.forget(""), lambda: memory.versions.set_limits(None)):
        with pytest.raises(ReadError, match="is damaged"):
            change()
    assert memory.read("a.md") == "x"
    assert backend.read(STORE_RECORD).data == data


def test_a_name_that_is_taken_is_told() -> None:
    backend = MemoryBackend()
    backend.write(Key.internal("store.json/x"), b"x")
    with pytest.raises(AgentMemoryError, match="the record of the store: its name is taken"):
        AgentMemory.open(backend).once("k").append("a.md", "x")
    assert [entry.path for entry in backend.list(Key.tree()).entries] == []


# Another store in the place of the one that was opened


def replaced(backend: MemoryBackend) -> None:
    backend.write(STORE_RECORD, StoreRecord.new().to_bytes())


@pytest.mark.parametrize("lose", [lambda backend: backend.delete(STORE_RECORD), replaced], ids=["gone", "another"])
def test_a_store_whose_id_is_another_is_not_changed(
    lose: Callable[[MemoryBackend], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MemoryBackend()
    seed(backend)
    memory = AgentMemory.open(backend)
    memory.write("a.md", "three")
    lose(backend)
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
    before = stored(backend)
    with pytest.raises(ReadError, match="open the store again"):
        memory.write("a.md", "four")
    with pytest.raises(AppendError, match="open the store again"):
        memory.once("k2").append("a.md", "four")
    assert stored(backend) == before
    AgentMemory.open(backend).write("a.md", "five")


def test_a_store_that_a_newer_release_changed_is_not_taken_for_another_store(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()
    seed(backend)
    memory = AgentMemory.open(backend)
    memory.write("a.md", "three")
    future(backend, format=2)
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
    with pytest.raises(UnsupportedOperationError, match="has format 2"):
        memory.write("a.md", "four")


def test_an_async_memory_refuses_as_well() -> None:
    backend = MemoryBackend()
    seed(backend)
    future(backend)

    async def tried() -> None:
        async with AsyncAgentMemory.open(backend) as memory:
            with pytest.raises(UnsupportedOperationError, match="dreams"):
                await memory.once("k3").append("a.md", "x")

    asyncio.run(tried())
