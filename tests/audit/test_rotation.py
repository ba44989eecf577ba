"""Segments and days: no writer returns to an earlier one, and none claims to have seen a later record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import LogLocation, log_at, verify
from agent_memory.audit import log as log_module
from agent_memory.audit.location import LogPosition
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from tests.support.servers import S3Server

Write = Callable[[], object]


def writer(target: str | Path, segment: int = 1500) -> tuple[AuditPlugin, Write]:
    """A new writer of a log, and a function that makes it write a record."""
    audit = AuditPlugin(target, required=True, max_segment_bytes=segment)
    service = AgentMemoryService("memory://rotation", plugins=[audit])
    return audit, lambda: service.append_to_memory_file("bob", "log.md", "x\n")


def test_a_slow_writer_continues_in_the_current_segment(tmp_path: Path) -> None:
    target = tmp_path / "audit.jsonl"
    (slow, write_slowly), (fast, write_fast) = writer(target), writer(target)
    with slow, fast:
        write_slowly()
        for _ in range(12):
            write_fast()
        assert (tmp_path / "audit.2.jsonl").exists()
        for _ in range(6):
            write_slowly()
    verdict = verify(log_at(target))
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}
    assert verdict.writers == 2


def test_a_clock_set_back_over_midnight_does_not_move_a_chain_to_an_earlier_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    day = "2026-11-23"
    monkeypatch.setattr(log_module, "_day", lambda: day)
    target = f"file://{tmp_path}/root"
    audit, write = writer(target)
    with audit:
        write()
        day = "2026-11-22"
        write()
        other, write_otherwise = writer(target)
        with other:
            write_otherwise()
        write()
    verdict = verify(log_at(target))
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}, verdict


def test_writers_that_end_after_one_record_go_on_to_the_next_segment_too(tmp_path: Path) -> None:
    for _ in range(12):
        audit, write = writer(tmp_path / "audit.jsonl")
        with audit:
            write()
    sizes = [path.stat().st_size for path in tmp_path.glob("audit*.jsonl")]
    assert len(sizes) > 3
    assert max(sizes) < 1500 + 2000  # the last writer of a segment found it not full
    assert verify(log_at(tmp_path / "audit.jsonl")).is_intact


def test_a_log_written_during_its_verification_is_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "audit.jsonl"
    (slow, write_slowly), (fast, write_fast) = writer(target, 2500), writer(target)
    blocks, rounds = LogLocation.blocks, 0

    def blocks_and_write(self: LogLocation, *part: object) -> Iterator[bytes]:
        nonlocal rounds
        yield from blocks(self, *part)  # type: ignore[arg-type]
        if rounds < 3:
            rounds += 1
            for _ in range(4):
                write_slowly()  # first to the part already read, then to the next
                write_fast()

    with slow, fast:
        write_slowly()
        for _ in range(10):
            write_fast()
        monkeypatch.setattr(LogLocation, "blocks", blocks_and_write)
        verdict = verify(log_at(target))
    assert rounds > 1
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}, verdict


def test_batches_written_during_the_listing_are_not_missed(
    ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ministack.new_url()
    with (
        AuditPlugin(url, storage_options=ministack.options, required=True) as audit,
        AgentMemoryService("memory://", plugins=[audit]) as service,
    ):
        for turn in range(4):
            service.append_to_memory_file("bob", "log.md", f"{turn}\n")
    listed = LogLocation._listed
    hidden = [1]

    def listed_behind_the_back(self: LogLocation) -> dict[Key, LogPosition]:
        found = listed(self)
        if hidden:
            del found[sorted(found, key=str)[hidden.pop()]]
        return found

    monkeypatch.setattr(LogLocation, "_listed", listed_behind_the_back)
    verdict = verify(log_at(url, ministack.options))
    assert hidden == []
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}, verdict
    assert verdict.records == 5
