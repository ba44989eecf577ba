"""Python code reads the records of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory import AgentMemoryService, acting_as
from agent_memory.audit import log_at, records
from agent_memory.plugins.audit import AuditPlugin
from tests.support.servers import S3Server


def write_some(service: AgentMemoryService) -> None:
    with service:
        service.write_memory_file("bob", "a.md", "one")
        with acting_as("night-bot", "call-7"):
            service.append_to_memory_file("bob", "a.md", "two")
        service.read_memory_file("bob", "a.md")


def test_the_records_of_a_log_are_read_in_its_order(tmp_path: Path) -> None:
    root = (tmp_path / "root").as_uri()
    write_some(AgentMemoryService(root, plugins=[AuditPlugin(root)], actor="ann"))
    found = [record for record in records(root) if record["event"] == "operation"]
    assert [(record["actor"], record["operation"], record["path"]) for record in found] == [
        ("ann", "write", "a.md"), ("night-bot", "append", "a.md"), ("ann", "read", "a.md"),
    ]  # fmt: skip
    assert found[1]["tool_call_id"] == "call-7"
    location = log_at(root)
    assert list(records(location)) == list(records(location)) == list(records(root))  # it stays open
    location.store.close()


def test_changed_records_and_other_lines_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    write_some(AgentMemoryService("memory://records", plugins=[AuditPlugin(log)]))
    whole = list(records(log))
    lines = log.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"bob"', b'"eve"')
    log.write_bytes(b"".join([*lines, b"not a record\n", b"\xff\n", lines[2][:40]]))
    assert list(records(log)) == [record for record in whole if record["seq"] != 2]


def test_there_are_no_records_without_a_log(tmp_path: Path) -> None:
    assert list(records(tmp_path.as_uri())) == []
    with pytest.raises(ValueError, match="is a directory"):
        list(records(tmp_path))


def test_the_records_of_a_log_on_s3_are_read(ministack: S3Server) -> None:
    root, options = ministack.new_url(), ministack.options
    audit = AuditPlugin(root, storage_options=options, required=True)
    write_some(AgentMemoryService("memory://records-s3", plugins=[audit], actor="ann"))
    location = log_at(root, options)
    assert [record.get("operation") for record in records(location)] == [None, "write", "append", "read"]
    location.store.close()
