"""The chain of one writer: in order for any thread, never written twice, and a new chain after a fork."""

from __future__ import annotations

import json
import logging
import multiprocessing
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryService, AsyncAgentMemoryService, OutcomeUnknownError
from agent_memory.audit import Verdict, log_at, verify
from agent_memory.audit import journal as journal_module
from agent_memory.audit.journal import Journal, JournalEntry
from agent_memory.audit.log import MAX_BYTES, LogBatch
from agent_memory.errors import AppendError, FileAlreadyExistsError
from agent_memory.plugins import audit as audit_module
from agent_memory.plugins.audit import AuditPlugin, Receiver
from agent_memory.plugins.checkpoints import AuditCheckpoint, CheckpointFile, checkpoints_in, log_checkpoint
from tests.support.servers import S3Server


class Lines:
    """A log in a list, which raises ``fail`` if it is set."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.fail: Exception | None = None
        self.doubtful: list[bool] = []
        self.seconds: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def identity(self) -> str:
        return "e" * 32

    def turned(self) -> bool:
        return False

    def last(self) -> bytes | None:
        return None

    def append(self, batch: LogBatch) -> None:
        self.meanwhile()
        if self.fail:
            raise self.fail
        self.doubtful.append(batch.doubtful)
        self.seconds.append(batch.seconds)
        self.batches.append(batch.data)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for data in self.batches for line in data.splitlines()]


def added(journal: Journal, number: object = None) -> JournalEntry:
    """Add a pending record."""
    entry = JournalEntry("operation", 0, lambda: {"n": number})
    journal.add(entry)
    return entry


def test_records_added_during_a_write_share_the_next_write() -> None:
    log = Lines()
    journal = Journal(log)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    log.meanwhile = wait
    first = threading.Thread(target=lambda: journal.settle(added(journal)))
    first.start()
    assert begun.wait(60)
    entries = [added(journal, n) for n in range(5)]
    others = [threading.Thread(target=journal.settle, args=(entry,)) for entry in entries]
    for thread in others:
        thread.start()
    go_on.set()
    for thread in (first, *others):
        thread.join(60)
    assert [len(data.splitlines()) for data in log.batches] == [2, 5]  # the first has the "begin" record
    assert [record["seq"] for record in log.records] == list(range(1, 8))


@pytest.mark.parametrize(("failure", "doubtful"), [(AppendError("no space"), False), (OutcomeUnknownError("?"), True)])
def test_a_record_whose_write_failed_is_written_before_later_records(failure: Exception, doubtful: bool) -> None:
    log = Lines()
    journal = Journal(log)
    log.fail = failure
    with pytest.raises(type(failure)):
        journal.settle(added(journal, 1))
    log.fail = None
    journal.settle(added(journal, 2))
    assert [record.get("n") for record in log.records] == [None, 1, 2]
    assert [record["seq"] for record in log.records] == [1, 2, 3]
    assert log.doubtful == [doubtful, False]


def test_the_times_of_batches_never_decrease(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Lines()
    journal = Journal(log)
    for now in (100.0, 50.0, 70.0, 200.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        journal.settle(added(journal))
    assert log.seconds == [100.0, 100.0, 100.0, 200.0]


@pytest.mark.parametrize(("segment", "records"), [(MAX_BYTES, 3), (1, 4)], ids=["one segment", "the next segment"])
def test_a_batch_with_an_unknown_outcome_is_not_appended_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int, records: int
) -> None:
    with AuditPlugin(tmp_path / "audit.jsonl", required=True, max_segment_bytes=segment) as audit:
        log = audit._journal._log
        append = log.append

        def append_and_lose_the_answer(batch: LogBatch) -> None:
            append(batch)
            monkeypatch.undo()
            raise OutcomeUnknownError("no answer")

        monkeypatch.setattr(log, "append", append_and_lose_the_answer)
        with AgentMemoryService("memory://", plugins=[audit]) as service:
            with pytest.raises(OutcomeUnknownError):
                service.write_memory_file("bob", "a.md", "x")
            service.write_memory_file("bob", "b.md", "x")
    verdict = verify(log_at(tmp_path / "audit.jsonl"))
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}, verdict
    assert (verdict.is_intact, verdict.records) == (True, records)


def test_records_lost_because_too_many_are_pending_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MOST_WAITING", 3)
    log = Lines()
    journal = Journal(log)
    for number in range(3):
        added(journal, number)
    for _ in range(4):
        with pytest.raises(AppendError, match="3 unwritten records"):
            added(journal)
    journal.flush()
    journal.settle(added(journal, "after"))
    begin, zero, one, two, lost, after = log.records
    assert (begin["event"], zero["n"], one["n"], two["n"], after["n"]) == ("begin", 0, 1, 2, "after")
    assert (lost["event"], lost["records"]) == ("lost", 4)


def _append_in_child(service: AgentMemoryService) -> None:
    service.append_to_memory_file("bob", "log.md", "child\n")


def _fork(directory: Path, required: bool, later: int) -> None:
    """Write records, and let a forked child write one; with a thread of the log if it is not required."""
    with (
        AuditPlugin(directory / "audit.jsonl", required=required) as audit,
        AgentMemoryService(directory / "root", plugins=[audit]) as service,
    ):
        service.append_to_memory_file("bob", "log.md", "parent\n")
        audit.flush()
        child = multiprocessing.get_context("fork").Process(target=_append_in_child, args=(service,))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        for _ in range(later):
            service.append_to_memory_file("bob", "log.md", "parent\n")


@pytest.mark.parametrize(("required", "later"), [(True, 1), (False, 0)], ids=["at once", "pending at its exit"])
def test_a_forked_child_is_another_writer(tmp_path: Path, required: bool, later: int) -> None:
    """Forked from a process of its own: threads of other tests may hold locks, which a child keeps for ever."""
    process = multiprocessing.get_context("spawn").Process(target=_fork, args=(tmp_path, required, later))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    verdict = verify(log_at(tmp_path / "audit.jsonl"))
    assert (verdict.is_intact, verdict.writers, verdict.records) == (True, 2, 4 + later)


def intact(url: str, server: S3Server) -> Verdict:
    verdict = verify(log_at(url, server.options))
    assert verdict.is_intact, verdict
    return verdict


def objects(url: str, server: S3Server) -> list[str]:
    client = server.client("s3")
    found = client.list_objects_v2(
        Bucket="memories", Prefix=url.removeprefix("s3://memories/") + "/.agent-memory/audit/"
    )
    return [each["Key"] for each in found.get("Contents", [])]


def test_records_on_s3_are_batched_until_the_service_is_closed(
    ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "FLUSH_SECONDS", 60.0)
    url = ministack.new_url()
    with AuditPlugin(url, storage_options=ministack.options) as audit:
        with AgentMemoryService("memory://", plugins=[audit]) as service:
            for turn in range(20):
                service.append_to_memory_file("bob", "log.md", f"{turn}\n")
            assert objects(url, ministack) == []
        assert len(objects(url, ministack)) == 1
    assert len(objects(url, ministack)) == 1
    assert intact(url, ministack).records == 21


@pytest.mark.long
def test_a_log_on_s3_has_records_also_if_the_first_name_beside_them_is_no_key(ministack: S3Server) -> None:
    url = ministack.new_url()
    assert log_at(url, ministack.options).is_keyed() is None
    with AuditPlugin(url, storage_options=ministack.options) as audit:
        with AgentMemoryService("memory://", plugins=[audit]) as service:
            service.append_to_memory_file("bob", "log.md", "x\n")
    directory = objects(url, ministack)[0].rpartition("/")[0]
    ministack.client("s3").put_object(Bucket="memories", Key=f"{directory}/.0.agent-memory-tmp", Body=b"")
    assert log_at(url, ministack.options).is_keyed() is False


@pytest.mark.long
def test_records_on_s3_are_written_by_a_timer(ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FLUSH_SECONDS", 0.05)
    url, flushed = ministack.new_url(), threading.Event()
    with AuditPlugin(url, storage_options=ministack.options) as audit:
        log = audit._journal._log
        append = log.append

        def append_and_tell(batch: LogBatch) -> None:
            append(batch)
            flushed.set()

        monkeypatch.setattr(log, "append", append_and_tell)
        with AgentMemoryService("memory://", plugins=[audit]) as service:
            service.append_to_memory_file("bob", "log.md", "x\n")
            assert flushed.wait(60)
            assert len(objects(url, ministack)) == 1


def test_a_required_record_on_s3_is_stored_before_the_call_returns(ministack: S3Server) -> None:
    url = ministack.new_url()
    with (
        AuditPlugin(url, storage_options=ministack.options, required=True) as audit,
        AgentMemoryService("memory://", plugins=[audit]) as service,
    ):
        for turn in range(3):
            service.append_to_memory_file("bob", "log.md", f"{turn}\n")
            assert intact(url, ministack).records == 2 + turn


@pytest.mark.asyncio
async def test_async_services_are_audited_on_s3(ministack: S3Server) -> None:
    url = ministack.new_url()
    with AuditPlugin(url, storage_options=ministack.options, required=True) as audit:
        async with AsyncAgentMemoryService(url, storage_options=ministack.options, plugins=[audit]) as service:
            await service.append_to_memory_file("bob", "log.md", "x\n")
    assert intact(url, ministack).records == 2


def test_checkpoints_are_sent_after_the_first_record_after_a_number_of_records_and_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent_memory.audit")
    heads, log = tmp_path / "elsewhere" / "heads.jsonl", tmp_path / "audit.jsonl"
    with (
        AuditPlugin(log, required=True, checkpoints=heads, checkpoint_every=4) as audit,
        AuditPlugin(tmp_path / "other.jsonl", required=True, checkpoints=log_checkpoint, checkpoint_every=4) as logged,
        AgentMemoryService("memory://", plugins=[audit, logged]) as service,
    ):
        for turn in range(9):
            service.append_to_memory_file("bob", "log.md", f"{turn}\n")
    found = list(checkpoints_in((tmp_path / "elsewhere" / "heads.jsonl").read_bytes()))
    assert [checkpoint.seq for checkpoint in found] == [2, 6, 10]
    assert [int(found) for found in re.findall(r"checkpoint writer=\w+ seq=(\d+) hash=", caplog.text)] == [2, 6, 10]


def test_a_checkpoint_is_sent_after_an_hour_without_further_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "CHECKPOINT_SECONDS", 0.05)
    sent: queue.Queue[int] = queue.Queue()
    with (
        AuditPlugin(
            tmp_path / "audit.jsonl", required=True, checkpoints=lambda checkpoint: sent.put(checkpoint.seq)
        ) as audit,
        AgentMemoryService("memory://", plugins=[audit]) as service,
    ):
        for expected in (2, 3, 4):
            service.append_to_memory_file("bob", "log.md", "x\n")
            assert sent.get(timeout=60) == expected


@contextmanager
def audited(directory: Path, receiver: Receiver | Path, every: int) -> Iterator[AgentMemoryService]:
    """A service with a required audit, and a receiver of its checkpoints."""
    with (
        AuditPlugin(directory / "audit.jsonl", required=True, checkpoints=receiver, checkpoint_every=every) as audit,
        AgentMemoryService("memory://", plugins=[audit]) as service,
    ):
        yield service


class Busy:
    """A receiver that makes an audited call for each checkpoint."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.service: AgentMemoryService | None = None

    def __call__(self, checkpoint: AuditCheckpoint) -> None:
        assert self.service
        self.service.append_to_memory_file("bob", "checkpoints.md", f"{checkpoint.seq}\n")
        self.found.append(checkpoint.seq)


def test_a_receiver_of_checkpoints_may_make_audited_calls(tmp_path: Path) -> None:
    busy = Busy()
    with audited(tmp_path, busy, every=1) as service:
        busy.service = service
        for _ in range(2):
            service.append_to_memory_file("bob", "log.md", "x\n")
        busy.service = AgentMemoryService("memory://")
    assert busy.found == [2, 4, 5]  # "begin", then one record of each side per turn, the last at the end
    assert verify(log_at(tmp_path / "audit.jsonl")).records == 5


def test_a_checkpoint_covers_every_record_when_its_call_returns(tmp_path: Path) -> None:
    unanchored: list[object] = []
    with audited(tmp_path, tmp_path / "heads.jsonl", every=1) as service:
        barrier = threading.Barrier(4)

        def work(number: int) -> None:
            barrier.wait(60)
            for turn in range(20):
                service.write_memory_file("bob", f"{number}.md", f"{turn}")
                latest = list(checkpoints_in((tmp_path / "heads.jsonl").read_bytes()))[-1].seq
                lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
                mine = max(json.loads(line)["seq"] for line in lines if f'"{number}.md"'.encode() in line)
                if latest < mine:
                    unanchored.append((number, turn, mine, latest))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = [each.seq for each in checkpoints_in((tmp_path / "heads.jsonl").read_bytes())]
    assert unanchored == []
    assert found == sorted(set(found))


class FailsOnce:
    def __init__(self) -> None:
        self.found: list[int] = []
        self.failed = False

    def __call__(self, checkpoint: AuditCheckpoint) -> None:
        if not self.failed:
            self.failed = True
            raise OSError("not reachable")
        self.found.append(checkpoint.seq)


def test_a_checkpoint_whose_receiver_failed_is_sent_again(tmp_path: Path) -> None:
    receiver = FailsOnce()
    with audited(tmp_path, receiver, every=2) as service:
        with pytest.raises(OutcomeUnknownError):
            service.append_to_memory_file("bob", "log.md", "x\n")
    assert receiver.found == [2]


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_a_required_log_and_logged_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "heads" / "file").mkdir(parents=True)  # a directory in the place of the file
    (tmp_path / "heads" / "file" / "x").write_text("")
    for number, required in enumerate((True, False)):
        receiver = CheckpointFile(tmp_path / "heads" / "file", required=required)
        with (
            pytest.raises(FileAlreadyExistsError) if required else nullcontext(),
            AuditPlugin(tmp_path / f"{number}.jsonl", required=True, checkpoints=receiver, checkpoint_every=2) as audit,
            AgentMemoryService("memory://", plugins=[audit]) as service,
            pytest.raises(OutcomeUnknownError) if required else nullcontext(),
        ):
            service.append_to_memory_file("bob", "log.md", "x\n")
    assert "a checkpoint could not be written" in caplog.text
    assert verify(log_at(tmp_path / "1.jsonl")).records == 2


@pytest.mark.parametrize("receiver", [1, b"heads.jsonl", ["heads.jsonl"]])
def test_a_receiver_that_is_no_file_and_no_function_is_refused(tmp_path: Path, receiver: Any) -> None:
    with pytest.raises(TypeError, match="the name of a file or a function"):
        AuditPlugin(tmp_path / "audit.jsonl", checkpoints=receiver)


@pytest.mark.parametrize(
    "options", [{"key": b"short"}, {"key": "text" * 9}, {"max_segment_bytes": 0}, {"checkpoint_every": 0}]
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"key|at least 1"):
        AuditPlugin(tmp_path / "audit.jsonl", **options)
