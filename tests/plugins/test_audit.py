"""The audit trail: one line per operation and per refusal, without content."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AppendError,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    InvalidPathError,
    OperationDenied,
    OutcomeUnknownError,
)
from agent_memory.audit import log_at, verify
from agent_memory.audit.salts import Salts
from agent_memory.hookspecs import hookimpl
from agent_memory.plugins import audit as audit_module
from agent_memory.plugins.audit import AuditPlugin
from tests.support.servers import Root, S3Server


def records(path: Path) -> list[dict[str, Any]]:
    """The records without those about the writer itself."""
    return [record for line in path.read_bytes().splitlines() if (record := json.loads(line))["event"] != "begin"]


def digest(log: Path, text: str) -> str:
    """The digest that a log records for a text of bob."""
    names = Salts(log_at(log)).known_names("bob")
    assert names is not None
    return names.content(hashlib.sha256(text.encode()).hexdigest())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.jsonl"


def test_each_operation_is_one_line_with_its_actor_and_its_facts(root: Root, log: Path) -> None:
    audit = AuditPlugin(log, required=True)
    with AgentMemoryService(root.url, storage_options=root.options, plugins=[audit], actor="ops") as service:
        service.write_memory_file("bob", "notes.md", "one\n")
        service.agent("bob").acting_as("model", "call-7").edit("notes.md", lambda text: text + "two\n")
        service.append_to_memory_file("bob", "notes.md", "three\n")
        with pytest.raises(AgentMemoryFileNotFoundError):
            service.read_memory_file("bob", "missing.md")
    write, edit, append, read = records(log)
    assert (write["event"], write["operation"], write["agent"], write["actor"]) == ("operation", "write", "bob", "ops")
    assert (write["path"], write["given"], write["size"], write["digest"]) == ("notes.md", 4, 4, digest(log, "one\n"))
    assert (edit["actor"], edit["tool_call_id"]) == ("model", "call-7")
    assert (edit["digest"], edit["before_digest"]) == (digest(log, "one\ntwo\n"), digest(log, "one\n"))
    assert (append["digest"], append["size"]) == (digest(log, "three\n"), 14)
    assert (read["outcome"], read["error"]) == ("error", "file_not_found")
    assert all(record["duration"] >= 0 and record["time"].endswith("+00:00") for record in records(log))
    assert len({record["id"] for record in records(log)}) == 4


def test_the_trail_records_refused_names_and_denied_operations(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True)], actor="ops") as service:
        with pytest.raises(InvalidPathError):
            service.read_memory_file("bob", "../secret\n.md")
        with pytest.raises(InvalidPathError):
            service.read_memory_file("../bob", "a.md")
        with pytest.raises(OperationDenied):
            service.agent("bob").read_only().write("a.md", "x")
    path, agent, denied = records(log)
    assert (path["event"], path["agent"], path["rule"]) == ("refused", "bob", "control")
    assert path["actor"] == "ops"
    assert path["path"] == "'../secret\\n.md'"
    assert (agent["event"], agent["rule"]) == ("refused", "agent-id")
    assert (denied["outcome"], denied.get("error")) == ("denied", None)


def test_no_line_contains_content_and_every_line_is_ascii(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True)]) as service:
        service.write_memory_file("bob", "日記.md", "the secret is grün")
        service.agent("bob").edit("日記.md", lambda text: text + "er")
    text = log.read_bytes().decode("ascii")
    assert "secret" not in text
    assert [record["path"] for record in records(log)] == ["日記.md", "日記.md"]


def test_intent_writes_a_line_before_the_operation(log: Path) -> None:
    seen: list[list[str]] = []
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True, intent=True)]) as service:
        service.write_memory_file("bob", "a.md", "x")

        def change(_: str) -> str:
            seen.append([record["event"] for record in records(log)])
            return "y"

        service.agent("bob").edit("a.md", change)
    assert seen == [["intent", "operation", "intent"]]
    intent, operation = records(log)[2:]
    assert intent["id"] == operation["id"]


def broken(log: Path) -> Path:
    log.parent.parent.joinpath("audit").write_text("a file where the log's directory should be")
    return log


def test_an_audit_that_is_not_required_never_stops_an_operation(
    log: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "FLUSH_SECONDS", 0.01)
    audit = AuditPlugin(broken(log), intent=True)
    with AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
        assert service.read_memory_file("bob", "a.md") == "x"
        while "they are kept and will be retried" not in caplog.text:
            time.sleep(0.01)
        log.parent.unlink()
        service.read_memory_file("bob", "a.md")
    audit.close()
    assert [record["operation"] for record in records(log)] == ["write", "write", "read", "read", "read", "read"]


def test_optional_records_are_written_when_many_are_pending(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_AT_ONCE", 10)
    with AuditPlugin(log) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        for number in range(25):
            service.write_memory_file("bob", f"{number}.md", "x")
        assert len(records(log)) >= 15
    assert len(records(log)) == 25


def test_a_required_audit_that_cannot_record_raises_an_error(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(broken(log), required=True)]) as service:
        with pytest.raises(OutcomeUnknownError, match="could not report"):
            service.write_memory_file("bob", "a.md", "x")


def test_a_required_intent_that_cannot_be_written_prevents_the_operation(log: Path) -> None:
    plain = AgentMemoryService("memory://required-intent")
    with (
        AgentMemoryService(
            "memory://required-intent", plugins=[AuditPlugin(broken(log), required=True, intent=True)]
        ) as service,
        pytest.raises((OperationDenied, OutcomeUnknownError)),
    ):
        service.write_memory_file("bob", "a.md", "x")
    assert plain.agent_ids() == ()


def test_a_url_target_stores_the_log_where_no_agent_can_name_it(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, plugins=[AuditPlugin(tmp_path.as_uri(), required=True)]) as service:
        service.write_memory_file("bob", "a.md", "x")
        assert service.agent_ids() == ("bob",)
        assert [str(entry) for entry in service.list_memory_files("bob")] == ["a.md"]
    (log,) = (tmp_path / ".agent-memory" / "audit").iterdir()
    assert [record["operation"] for record in records(log)] == ["write", "agent_ids", "list"]


@pytest.mark.long
def test_an_async_service_can_write_the_trail_to_s3(ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FLUSH_SECONDS", 60.0)
    url = ministack.new_url()

    async def use() -> None:
        with AuditPlugin(url, storage_options=ministack.options) as audit:
            async with AsyncAgentMemoryService(url, storage_options=ministack.options, plugins=[audit]) as service:
                await asyncio.gather(*(service.append_to_memory_file("bob", "log.md", f"{n}\n") for n in range(8)))

    asyncio.run(use())
    prefix = url.removeprefix("s3://memories/") + "/.agent-memory/audit/"
    with closing(ministack.client("s3")) as s3:
        (found,) = s3.list_objects_v2(Bucket="memories", Prefix=prefix)["Contents"]
        batch = s3.get_object(Bucket="memories", Key=found["Key"])["Body"].read()
    begin, *lines = map(json.loads, batch.splitlines())
    assert begin["event"] == "begin"
    assert [record["operation"] for record in lines] == ["append"] * 8


def test_a_torn_last_line_loses_no_later_record(log: Path) -> None:
    log.parent.mkdir()
    log.write_bytes(b'{"event": "torn')
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True)]) as service:
        service.write_memory_file("bob", "a.md", "x")
    torn, begin, write = log.read_bytes().splitlines()
    assert torn == b'{"event": "torn'
    assert (json.loads(begin)["event"], json.loads(write)["operation"]) == ("begin", "write")


def test_many_threads_write_exactly_one_line_per_operation(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True)]) as service:
        barrier = threading.Barrier(8)

        def work(number: int) -> None:
            barrier.wait(60)
            for line in range(20):
                service.append_to_memory_file("bob", f"{number}.md", f"{line}\n")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({record["id"] for record in records(log)}) == 160


def test_a_required_audit_does_not_hide_the_error_of_an_operation(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(broken(log), required=True)]) as service:
        with pytest.raises(AgentMemoryFileNotFoundError) as failed:
            service.read_memory_file("bob", "missing.md")
    assert "could not be reported" in failed.value.__notes__[0]


def test_a_long_actor_and_tool_call_id_are_cut(log: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, required=True)], actor="a" * 17_000_000) as service:
        service.agent("bob").acting_as("b" * 300, "c" * 17_000_000).write("a.md", "x")
        with pytest.raises(InvalidPathError):
            service.read_memory_file("bob", "../a")
    write, refused = records(log)
    assert [len(text) for text in (write["actor"], write["tool_call_id"], refused["actor"])] == [256, 256, 256]
    assert write["actor"] == "b" * 255 + "…"
    assert verify(log_at(log)).is_intact


@pytest.mark.parametrize(("intent", "events"), [(False, ["operation"]), (True, ["intent", "operation"])])
def test_an_intent_is_recorded_only_where_it_is_wanted(log: Path, intent: bool, events: list[str]) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(log, intent=intent)]) as service:
        service.write_memory_file("bob", "a.md", "x")
    assert [record["event"] for record in records(log)] == events


@pytest.mark.parametrize("required", [True, False])
def test_an_operation_after_the_close_is_refused_or_logged(
    log: Path, required: bool, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditPlugin(log, required=required)
    with AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
        audit.close()
        if required:
            with pytest.raises(OperationDenied, match="the audit log is closed; nothing was done"):
                service.write_memory_file("bob", "b.md", "x")
        else:
            service.write_memory_file("bob", "b.md", "x")
    assert "the audit log is closed" in caplog.text
    assert [record["path"] for record in records(log)] == ["a.md"]


class Interrupted:
    @hookimpl
    def agent_memory_after_operation(self) -> None:
        raise SystemExit(3)


def test_an_observer_that_raises_system_exit_loses_no_record(log: Path) -> None:
    plugins = [AuditPlugin(log, required=True), Interrupted()]
    with AgentMemoryService("memory://", plugins=plugins) as service:
        with pytest.raises(SystemExit):
            service.write_memory_file("bob", "a.md", "x")
        with pytest.raises(SystemExit):
            service.read_memory_file("bob", "missing.md")
    assert [(record["operation"], record["outcome"]) for record in records(log)] == [("write", "ok"), ("read", "error")]


def test_closing_a_service_writes_its_records(root: Root, log: Path) -> None:
    with AuditPlugin(log) as audit:  # open until the end of the block
        with AgentMemoryService(root.url, storage_options=root.options, plugins=[audit]) as service:
            service.write_memory_file("bob", "notes.md", "one\n")
        assert [record["operation"] for record in records(log)] == ["write"]
        memory = AgentMemory.open(root.url, storage_options=root.options, plugins=[audit])
        memory.write("plan.md", "two\n")
        memory.subtree("deeper").close()
        assert [record["path"] for record in records(log)] == ["notes.md", "plan.md"]


def test_closing_an_async_service_writes_its_records(root: Root, log: Path) -> None:
    async def work() -> None:
        with AuditPlugin(log) as audit:
            async with AsyncAgentMemoryService(root.url, storage_options=root.options, plugins=[audit]) as service:
                await service.write_memory_file("bob", "notes.md", "one\n")
            assert [record["operation"] for record in records(log)] == ["write"]
            memory = AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=[audit])
            await memory.write("plan.md", "two\n")
            await memory.aclose()

    asyncio.run(work())
    assert [record["path"] for record in records(log)] == ["notes.md", "plan.md"]


def test_a_service_closes_its_plugins_and_the_log_then_refuses_records(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditPlugin(log)
    with AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "notes.md", "one\n")
    assert [record["operation"] for record in records(log)] == ["write"]
    with AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "plan.md", "two\n")
    assert "the audit log is closed" in caplog.text


def test_a_plugin_of_two_services_is_closed_by_the_last_one(log: Path) -> None:
    audit = AuditPlugin(log)
    first = AgentMemoryService("memory://", plugins=[audit])
    second = AgentMemoryService("memory://", plugins=[audit])
    first.close()
    first.close()
    second.write_memory_file("bob", "notes.md", "one\n")
    second.close()
    second.close()
    assert [record["operation"] for record in records(log)] == ["write"]
    with pytest.raises(AppendError, match="closed"):
        audit.agent_memory_key_rejected("bob", "'..'", "parent", None)
