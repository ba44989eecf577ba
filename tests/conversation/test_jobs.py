"""The cron jobs: a file that is no list is never replaced, malformed jobs stay, and fields of other writers survive."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidContentError, ReadError
from agent_memory.conversation import ConversationMemory, CronJob
from agent_memory.hookspecs import Operation, hookimpl
from agent_memory_memory import MemoryBackend
from tests.conversation.histories import JOBS, KINDS, Kind, opened, root_on, warnings
from tests.support.servers import Root

sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
JOB = CronJob("1", "tea", "Make tea", "0 16 * * *")
DAMAGED = [b"\xff[]", b'[{"id": "1", "name": "te', b'{"jobs": []}', b'[{"id": NaN}]', b"", b"[" * 100_000]
GOOD = {"id": "1", "name": "tea", "message": "Make tea", "schedule": "0 16 * * *"}
MALFORMED: list[Any] = [5, None, {}, {**GOOD, "id": 1}, {**GOOD, "enabled": "yes"}, {"id": "\ud800"}, [GOOD]]


@pytest.fixture(params=["local", "memory", "ministack"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return root_on(request, tmp_path)


class Racing:
    """Calls a function once, between the read and the write of an edit."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._left = [act]

    @hookimpl
    def agent_memory_filter_content(self, operation: Operation, content: bytes) -> None:
        del operation, content
        while self._left:
            self._left.pop()()


def directory(root: Root) -> dict[str, bytes]:
    memory = opened(root)
    return {entry.path: memory.read_bytes(entry.path) for entry in memory.list("cron")}


@sync_and_async
def test_a_file_that_is_no_list_is_not_replaced_until_a_person_moves_it(
    root: Root, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    conversation, memory = kind(root).conversation, opened(root)
    for damaged in DAMAGED:
        memory.write(JOBS, damaged)
        caplog.clear()
        assert conversation.load_cron_jobs() == []
        (warning,) = warnings(caplog)
        assert warning.startswith("WARNING")
        with pytest.raises(ReadError, match="nothing was written: repair the file, or move it") as error:
            conversation.save_cron_jobs([JOB])
        assert error.value.path == JOBS
        assert directory(root) == {JOBS: damaged}
    memory.rename(JOBS, "cron/old.json")
    conversation.save_cron_jobs([JOB])
    assert conversation.load_cron_jobs() == [JOB]


@sync_and_async
def test_malformed_jobs_hide_no_other_and_stay_where_they_are(
    root: Root, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    conversation, memory = kind(root).conversation, opened(root)
    stored = [MALFORMED[0], GOOD, *MALFORMED[1:4], {**GOOD, "id": "2"}, *MALFORMED[4:]]
    memory.write(JOBS, f"\ufeff{json.dumps(stored)}")
    jobs = conversation.load_cron_jobs()
    assert (jobs, jobs.skipped) == ([JOB, replace(JOB, id="2")], len(MALFORMED))
    assert warnings(caplog) == [f"WARNING {JOBS}: {len(MALFORMED)} malformed jobs were left out"]
    conversation.save_cron_jobs([*jobs, replace(JOB, id="3")])
    saved = json.loads(memory.read(JOBS))
    assert [value for value in saved if value in MALFORMED] == MALFORMED
    assert [saved.index(value) for value in MALFORMED] == [stored.index(value) for value in MALFORMED]
    conversation.save_cron_jobs([])
    assert json.loads(memory.read(JOBS)) == MALFORMED


def test_a_job_that_another_writer_adds_malformed_during_a_save_is_kept() -> None:
    backend = MemoryBackend()
    memory = AgentMemory.open(backend)
    raced = AgentMemory.open(backend, plugins=[Racing(lambda: memory.write(JOBS, json.dumps([5])))])
    ConversationMemory(raced).save_cron_jobs([JOB])
    assert json.loads(memory.read(JOBS))[0] == 5
    assert ConversationMemory(memory).load_cron_jobs() == [JOB]


def test_saving_over_valid_jobs_keeps_no_copy(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    conversation = ConversationMemory(opened(root))
    for jobs in ([], [JOB], [JOB, replace(JOB, id="2")], []):
        conversation.save_cron_jobs(jobs)
        assert conversation.load_cron_jobs() == jobs
    assert list(directory(root)) == [JOBS]
    assert warnings(caplog) == []


def test_an_invalid_job_is_refused_and_the_stored_jobs_stay_unchanged() -> None:
    memory = AgentMemory.open("memory://")
    conversation = ConversationMemory(memory)
    conversation.save_cron_jobs([JOB])
    before = memory.read_bytes(JOBS)
    wrong: list[dict[str, Any]] = [
        {"id": 5}, {"enabled": "yes"}, {"last_run": 5}, {"metadata": []}, {"name": "\ud800"},
        {"metadata": {"a": {1}}}, {"metadata": {"a": float("nan")}}, {"extra": {"a": b""}},
    ]  # fmt: skip
    for fields in wrong:
        with pytest.raises(InvalidContentError):
            conversation.save_cron_jobs([JOB, replace(JOB, **fields)])
    assert memory.read_bytes(JOBS) == before


def test_a_refused_save_makes_no_copy_of_a_damaged_file() -> None:
    memory = AgentMemory.open("memory://")
    memory.write(JOBS, b"[{")
    with pytest.raises(InvalidContentError):
        ConversationMemory(memory).save_cron_jobs([replace(JOB, id="\ud800")])
    assert [entry.path for entry in memory.list("cron")] == [JOBS]


def test_the_fields_of_other_writers_survive_a_save() -> None:
    memory = AgentMemory.open("memory://")
    stored = {"id": "1", "name": "n", "message": "m", "schedule": "@daily", "owner": {"id": 5}, "tags": ["é"]}
    memory.write(JOBS, json.dumps([stored]))
    conversation = ConversationMemory(memory)
    jobs = conversation.load_cron_jobs()
    assert jobs == [CronJob("1", "n", "m", "@daily", extra={"owner": {"id": 5}, "tags": ["é"]})]
    conversation.save_cron_jobs(jobs)
    (again,) = json.loads(memory.read(JOBS))
    defaults = {"channel": "cli:local", "enabled": True, "timezone": "local", "last_run": None, "metadata": {}}
    assert again == {**stored, **defaults}


@pytest.mark.parametrize("stored", [b"[" * 100_000, b"1" * 5000, b"[" + b"1" * 5000 + b"]", b'["\\ud800"]', b"\x00"])
def test_hostile_jobs_load_as_an_empty_list(stored: bytes) -> None:
    memory = AgentMemory.open("memory://")
    memory.write(JOBS, stored)
    assert ConversationMemory(memory).load_cron_jobs() == []
    assert memory.read_bytes(JOBS) == stored
