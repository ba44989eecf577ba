"""Forgetting leaves no data that would confirm a guessed short secret, and the log still verifies."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from agent_memory import (
    AgentMemoryService,
    Operation,
    Outcome,
    OutcomeUnknownError,
    UnsupportedOperationError,
    hookimpl,
)
from agent_memory.audit import log_at, verify
from agent_memory.audit.salts import Salts
from agent_memory.backend import DeletedTree
from agent_memory.errors import ReadError, WriteError
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory_fsspec import FsspecBackend
from agent_memory_local import LocalBackend
from tests.support.places import Place, guessable

SECRET = "1234567890"


@pytest.mark.parametrize(("path", "renamed"), [("", True), ("", False), ("a.md", False), ("a.md", True)])
def test_after_forget_no_kept_data_confirms_a_guessed_secret(place: Place, path: str, renamed: bool) -> None:
    with (
        AuditPlugin(place.url, required=True, storage_options=place.options) as audit,
        AgentMemoryService(place.url, storage_options=place.options, plugins=[audit]) as service,
    ):
        bob = service.agent("bob")
        bob.write("first.md" if renamed else "a.md", SECRET)
        if renamed:
            bob.rename("first.md", "a.md")
        bob.edit("a.md", lambda text: text + "!")
        service.write_memory_file("eve", "b.md", "eve's own")
        assert guessable(list(place.contents()), SECRET.encode()) != []
        service.forget_memory("bob", path)
        if path and renamed and place.url.startswith("s3:"):  # versions of the old name belong to another file
            service.forget_memory("bob", "first.md")
        found = list(place.contents())
        assert guessable(found, SECRET.encode()) == []
        assert guessable(found, SECRET.encode() + b"!") == []
        assert guessable(found, b"eve's own") != []
        bob.write("a.md", "anew")
    verdict = verify(log_at(place.url, place.options))
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}
    log = log_at(place.url, place.options)
    lines = b"".join(block for part in log.parts() for block in log.blocks(part)).splitlines()
    receipts = [record for line in lines if (record := json.loads(line)).get("operation") == "forget"]
    assert receipts[0]["files"] == 1 + (renamed and not path and place.url.startswith("s3:"))
    assert {(receipt["outcome"], receipt["salt"]) for receipt in receipts} == {("ok", "destroyed")}


class Late:
    """An observer that delays the later observers of the first write until ``go_on`` is set."""

    def __init__(self) -> None:
        self.held, self.go_on = threading.Event(), threading.Event()

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        if operation.kind == "write" and not self.held.is_set():
            self.held.set()
            assert self.go_on.wait(60)


def test_a_write_reported_after_the_forget_does_not_restore_the_salt(tmp_path: Path) -> None:
    late = Late()
    with (
        AuditPlugin(tmp_path / "audit.jsonl", required=True) as audit,
        AgentMemoryService(tmp_path / "root", plugins=[audit, late]) as service,
    ):
        write = threading.Thread(target=service.write_memory_file, args=("bob", "a.md", SECRET))
        write.start()
        assert late.held.wait(60)
        service.forget_memory("bob")
        late.go_on.set()
        write.join(60)
        found = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert guessable(found, SECRET.encode()) == []
        service.write_memory_file("bob", "a.md", "anew")
    written = [record for record in records(tmp_path / "audit.jsonl") if record["operation"] == "write"]
    assert ["digest" in record for record in written] == [False, True]


def test_a_receipt_shows_that_the_salt_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "audit.jsonl"
    with (
        AuditPlugin(log, required=True) as audit,
        AgentMemoryService("memory://receipt", plugins=[audit]) as service,
    ):
        service.write_memory_file("bob", "a.md", SECRET)
        monkeypatch.setattr(LocalBackend, "erase", lambda *_: (_ for _ in ()).throw(WriteError("no")))
        with pytest.raises(OutcomeUnknownError):
            service.forget_memory("bob")
    assert [record.get("salt") for record in records(log)] == [None, "kept"]


def test_forgetting_removes_the_temporary_files_of_dead_writers(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with AgentMemoryService(root) as service:
        service.write_memory_file("bob", "dir/a.md", "x")
        service.write_memory_file("bob", "dir/b.md", "x")
        tree = root / "agent_memory" / "bob"
        (tree / "empty").mkdir()
        left = [tree / name / f".{16 * 'a'}.agent-memory-tmp" for name in ("dir", "empty", ".")]

        def leave() -> None:
            for file in left:
                file.write_text(SECRET)

        leave()
        service.forget_memory("bob", "dir/a.md")
        assert not left[0].exists()
        leave()
        service.forget_memory("bob")
        assert not any(file.exists() for file in left)


def records(log: Path) -> list[dict[str, Any]]:
    return [record for line in log.read_bytes().splitlines() if (record := json.loads(line))["event"] == "operation"]


def test_digests_are_comparable_for_one_agent_but_not_between_agents(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    with ExitStack() as stack:
        for _ in range(2):  # two processes share the salts
            audit = stack.enter_context(AuditPlugin(log, required=True))
            service = stack.enter_context(AgentMemoryService("memory://digests", plugins=[audit]))
            for agent in ("bob", "eve"):
                service.write_memory_file(agent, "a.md", "same")
                service.write_memory_file(agent, "b.md", "same")
    by_agent = {
        agent: {record["digest"] for record in records(log) if record["agent"] == agent} for agent in ["bob", "eve"]
    }
    assert [len(digests) for digests in by_agent.values()] == [1, 1]
    assert by_agent["bob"] != by_agent["eve"]
    digest = Salts(log_at(log)).digest("bob", hashlib.sha256(b"same").hexdigest(), math.inf)
    assert by_agent["bob"] == {digest}
    assert hashlib.sha256(b"same").hexdigest() not in log.read_text()


def test_an_invalid_salt_raises_an_error_and_every_operation_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    (tmp_path / "audit.jsonl.salts").mkdir()
    (tmp_path / "audit.jsonl.salts" / "bob.salt").write_text("x")
    with AuditPlugin(log, required=True) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        with pytest.raises(OutcomeUnknownError) as unreported:
            service.write_memory_file("bob", "a.md", "x")
        assert isinstance(unreported.value.__cause__, ReadError)
        service.read_memory_file("bob", "a.md")
    assert [(record["operation"], "digest" in record) for record in records(log)] == [("write", False), ("read", False)]


def test_forget_is_refused_by_a_backend_that_may_keep_earlier_content(tmp_path: Path) -> None:
    backend = FsspecBackend(LocalFileSystem(), str(tmp_path))
    with AgentMemoryService(backend) as service:
        service.write_memory_file("bob", "a.md", "x")
        with pytest.raises(UnsupportedOperationError, match="keeps nothing of a deleted file"):
            service.forget_memory("bob")
        assert service.read_memory_file("bob", "a.md") == "x"


def test_a_salt_is_not_read_again_while_it_is_destroyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    salts = Salts(log_at(tmp_path / "audit.jsonl"))
    content = hashlib.sha256(b"x").hexdigest()
    before = salts.digest("bob", content, math.inf)
    erase, asked = LocalBackend.erase, []

    def erase_and_ask(self: LocalBackend, prefix: Key) -> DeletedTree:
        thread = threading.Thread(target=lambda: asked.append(salts.digest("bob", content, math.inf)))
        thread.start()
        thread.join(0.2)
        try:
            return erase(self, prefix)
        finally:
            threads.append(thread)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(LocalBackend, "erase", erase_and_ask)
    salts.destroy("bob")
    for thread in threads:
        thread.join(60)
    after = salts.digest("bob", content, math.inf)
    assert after != before
    assert Salts(log_at(tmp_path / "audit.jsonl")).digest("bob", content, math.inf) == after
