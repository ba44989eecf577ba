"""The cron jobs: a damaged file is kept, an invalid job is refused, and fields of other writers survive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidContentError
from agent_memory.conversation import ConversationMemory, CronJob
from tests.conversation.histories import JOBS, KINDS, Kind, opened, root_on, warnings
from tests.support.servers import Root

sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
JOB = CronJob("1", "tea", "Make tea", "0 16 * * *")
DAMAGED = [b"\xff[]", b'[{"id": "1", "name": "te', b'{"jobs": []}', b'[{"id": 1}]', b"", b"\xef\xbb\xbf[]"]


@pytest.fixture(params=["local", "memory", "ministack"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return root_on(request, tmp_path)


def directory(root: Root) -> dict[str, bytes]:
    memory = opened(root)
    return {entry.path: memory.read_bytes(entry.path) for entry in memory.list("cron")}


@sync_and_async
def test_saving_keeps_every_damaged_file_under_a_new_number(
    root: Root, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = kind(root).conversation
    for number, damaged in enumerate(DAMAGED, 1):
        opened(root).write_bytes(JOBS, damaged)
        conversation.save_cron_jobs([JOB])
        (warning,) = warnings(caplog)
        assert warning.startswith("WARNING")
        assert warning.endswith(f"{JOBS}.damaged-{number}")
    stored = directory(root)
    assert [stored.pop(f"{JOBS}.damaged-{number}") for number in range(1, len(DAMAGED) + 1)] == DAMAGED
    assert list(stored) == [JOBS]
    assert conversation.load_cron_jobs() == [JOB]


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
    memory.write_bytes(JOBS, b"[{")
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
    memory.write_bytes(JOBS, stored)
    assert ConversationMemory(memory).load_cron_jobs() == []
    assert memory.read_bytes(JOBS) == stored
