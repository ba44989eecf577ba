"""`ExpiryPlugin` deletes old files with hooks and versions; a pinned file and a file that changed stay."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    Operation,
    OperationDenied,
    VersionLimits,
    hookimpl,
)
from agent_memory.plugins.configuration import made
from agent_memory.plugins.expiry import ExpiryPlugin
from agent_memory.testing.recording import RecordingPlugin

DAY = 86_400
RULES = {"scratch/**": 7, "*.tmp": 1, "**/*.md": 30}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of different ages, in days."""
    with AgentMemory.open(tmp_path / "root", versions=VersionLimits()) as memory:
        for path, age in AGES.items():
            memory.write(path, f"{age} days old")
    for path, age in AGES.items():
        changed = time.time() - age * DAY - 60
        os.utime(tmp_path / "root" / path, (changed, changed))
    return tmp_path / "root"


AGES = {
    "scratch/a": 8, "scratch/d/b": 7, "scratch/new": 6, "scratch/keep/c": 100, "x.tmp": 2, "d/x.tmp": 2,
    "scratch/n.md": 8, "scratch/o.md": 31, "notes.txt": 1000,
}  # fmt: skip
EXPIRED = ["scratch/a", "scratch/d/b", "scratch/o.md", "x.tmp"]


def test_the_files_that_would_be_deleted_are_told(root: Path) -> None:
    plugin = ExpiryPlugin(RULES, pinned=["scratch/keep/**"])
    with AgentMemory.open(root, plugins=[plugin]) as memory:
        assert [entry.path for entry in plugin.expired(memory)] == EXPIRED
        assert [entry.path for entry in memory.list()] == sorted(AGES)


def test_a_dry_run_deletes_nothing_and_logs_what_it_would(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = ExpiryPlugin(RULES, pinned=["scratch/keep/**"])
    with AgentMemory.open(root, plugins=[plugin]) as memory, caplog.at_level(logging.INFO, "agent_memory"):
        for number in range(3):
            memory.write("other", f"{number}")
        assert {entry.path for entry in memory.list()} == {*AGES, "other"}
    told = [record.getMessage() for record in caplog.records if "dry run" in record.getMessage()]
    assert len(told) == 1
    assert "'scratch/d/b'" in told[0]


def test_each_change_deletes_at_most_two_and_hooks_and_versions_see_it(root: Path) -> None:
    seen = RecordingPlugin()
    plugin = ExpiryPlugin(RULES, pinned=["scratch/keep/**"], dry_run=False)
    with AgentMemory.open(root, plugins=[plugin, seen], actor="ann") as memory:
        memory.read("notes.txt")
        assert len(memory.list()) == len(AGES)
        memory.write("other", "1")
        assert len(memory.list()) == len(AGES) + 1 - 2
        memory.write("other", "2")
        memory.write("other", "3")
        assert {entry.path for entry in memory.list()} == {*AGES, "other"} - set(EXPIRED)
        deletions = [operation for operation, outcome in seen.after if operation.kind == "delete"]
        assert sorted(operation.path for operation in deletions) == EXPIRED
        assert {operation.actor for operation in deletions} == {"expiry"}
        (kept,) = memory.versions.list("scratch/a")
        assert kept.ended_by
        assert kept.ended_by.actor == "expiry"
        assert memory.versions.read("scratch/a", kept.id) == "8 days old"
        assert sum(operation.kind == "list" and operation.actor == "expiry" for operation, _ in seen.after) == 1


def test_a_plugin_belongs_to_one_service(root: Path, tmp_path: Path) -> None:
    plugin = ExpiryPlugin(RULES, dry_run=False)
    with (
        AgentMemory.open(root, plugins=[plugin]),
        pytest.raises(ValueError, match="belongs to one open service"),
        AgentMemory.open(tmp_path / "other", plugins=[plugin]),
    ):
        pass
    with AgentMemory.open(tmp_path / "other", plugins=[plugin]) as memory:
        memory.write("other", "1")
        assert [entry.path for entry in memory.list()] == ["other"]
    with AgentMemory.open(root) as memory:
        assert len(memory.list()) == len(AGES)


def test_a_guard_may_refuse_a_deletion(root: Path) -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.kind == "delete" and operation.path == "x.tmp":
                raise OperationDenied("not this one")

    with AgentMemory.open(root, plugins=[ExpiryPlugin({"**": 0.5}, dry_run=False), Guard()]) as memory:
        for number in range(8):
            memory.write("other", f"{number}")
        assert [entry.path for entry in memory.list()] == ["other", "x.tmp"]


def test_a_file_that_changed_after_the_listing_stays(root: Path) -> None:
    plugin = ExpiryPlugin({"*.tmp": 1, "scratch/**": 7}, dry_run=False)
    with AgentMemory.open(root, plugins=[plugin]) as memory:
        memory.write("other", "1")  # deletes two, and keeps the names of the others
        left = [entry.path for entry in plugin.expired(memory)]
        assert left
        with AgentMemory.open(root) as other:
            for path in left:
                other.append(path, ", and changed now")
        for number in range(4):
            memory.write("other", f"{number}")
        assert {entry.path for entry in memory.list()} >= set(left)


@pytest.mark.parametrize("url", ["memory://expiry", "local"])
def test_each_agent_of_a_service_has_its_own_files(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "root") if url == "local" else url
    plugin = ExpiryPlugin({"scratch/*": 1}, dry_run=False)
    with AgentMemoryService(url, plugins=[plugin]) as service:
        for agent in ("ann", "bob"):
            service.write_memory_file(agent, "scratch/a", "x")
        now = time.time
        monkeypatch.setattr("agent_memory.plugins.expiry.time.time", lambda: now() + 2 * DAY)
        plugin._listed.clear()
        service.write_memory_file("ann", "other", "x")
        assert [entry.path for entry in service.list_memory_files("ann")] == ["other"]
        assert [entry.path for entry in service.list_memory_files("bob")] == ["scratch/a"]
        service.forget_memory("ann")


@pytest.mark.asyncio
async def test_an_async_caller_has_its_files_deleted_too(root: Path) -> None:
    memory = AsyncAgentMemory.open(root, plugins=[ExpiryPlugin(RULES, dry_run=False)])
    for number in range(4):
        await memory.write("other", f"{number}")
    assert "scratch/a" not in {entry.path for entry in await memory.list()}
    await memory.aclose()


def test_threads_delete_each_file_once(root: Path) -> None:
    seen = RecordingPlugin()
    with AgentMemory.open(root, plugins=[ExpiryPlugin(RULES, dry_run=False), seen]) as memory:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: memory.write(f"other-{number}", "x"), range(40)))
        for number in range(3):
            memory.write("last", f"{number}")
        deleted = [operation.path for operation, _ in seen.after if operation.kind == "delete"]
    assert sorted(deleted) == sorted({*EXPIRED, "scratch/keep/c"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rules": {}}, "at least one"),
        ({"rules": ["scratch/**"]}, "must map patterns"),
        ({"rules": {"scratch/**": 0}}, "positive number of days"),
        ({"rules": {"scratch/**": True}}, "positive number of days"),
        ({"rules": {"scratch/**": float("inf")}}, "positive number of days"),
        ({"rules": {"../x": 1}}, "matches no path"),
        ({"rules": {"a": 1}, "pinned": "a"}, "collection of patterns"),
        ({"rules": {"a": 1}, "pinned": ["/a"]}, "matches no path"),
        ({"rules": {"a": 1}, "dry_run": "no"}, "true or false"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made("expiry", options)
