"""Files that did not change for some time are deleted: only those, with hooks and versions, and never a changed one."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_memory import (
    AgentMemoryService,
    AsyncAgentMemoryService,
    InvalidAgentIdError,
    Operation,
    VersionLimits,
    acting_as,
    hookimpl,
)
from agent_memory.core import expiring
from agent_memory.plugins.readonly import ReadOnlyPlugin
from agent_memory.testing.recording import RecordingPlugin
from tests.support.servers import Root, S3Server

MONTH = timedelta(days=30)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which two agents have old and new files."""
    with AgentMemoryService(tmp_path) as service:
        for agent in ("ann", "bob"):
            for path in ("old.md", "scratch/old.md", "scratch/keep/old.md", "scratch/new.md"):
                service.write_memory_file(agent, path, f"{agent} {path}")
    age(tmp_path, "**/old.md")
    return tmp_path


def age(store: Path, pattern: str, days: float = 40) -> None:
    at = time.time() - days * 86_400
    for path in (store / "agent_memory").glob(pattern):
        os.utime(path, (at, at))


def files(store: Path) -> list[str]:
    top = store / "agent_memory"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*.md"))


def test_only_old_files_that_match_are_deleted_of_all_agents(store: Path) -> None:
    with AgentMemoryService(store) as service:
        expected = [("ann", "scratch/old.md"), ("bob", "scratch/old.md")]
        for dry_run in (True, False):
            found = service.expire("scratch/**", older_than=MONTH, keep=["scratch/keep/**"], dry_run=dry_run)
            assert [(each.agent, each.path) for each in found] == expected
            assert found[0].size == len("ann scratch/old.md")
            assert abs(time.time() - 40 * 86_400 - found[0].modified) < 60
            assert len(files(store)) == (8 if dry_run else 6)
        assert service.expire("scratch/**", older_than=MONTH, keep=["scratch/keep/**"]) == ()


def test_one_call_deletes_at_most_so_many(store: Path) -> None:
    with AgentMemoryService(store) as service:
        counts = [len(service.expire("**", older_than=MONTH, limit=4)) for _ in range(3)]
    assert counts == [4, 2, 0]
    assert files(store) == ["ann/scratch/new.md", "bob/scratch/new.md"]


def test_only_the_given_agents_are_looked_at(store: Path) -> None:
    with AgentMemoryService(store) as service:
        assert {each.agent for each in service.expire("**", older_than=MONTH, agents=["bob"])} == {"bob"}
        with pytest.raises(InvalidAgentIdError):
            service.expire("**", older_than=MONTH, agents=["../bob"])
    assert len(files(store)) == 5


def test_hooks_and_versions_see_each_deletion_with_its_actor(store: Path) -> None:
    recording = RecordingPlugin()
    with AgentMemoryService(store, plugins=[recording], versions=VersionLimits()) as service, acting_as("cron"):
        service.expire("old.md", older_than=MONTH, agents=["ann"])
        memory = service.agent("ann")
        (version,) = memory.versions.list("old.md")
        memory.versions.restore("old.md", version)
        assert memory.read("old.md") == "ann old.md"
    deletions = [operation for operation, outcome in recording.after if operation.kind == "delete"]
    assert [(each.path, each.actor) for each in deletions] == [("old.md", "cron")]


def test_what_a_guard_protects_stays_and_the_others_go(store: Path) -> None:
    with AgentMemoryService(store, plugins=[ReadOnlyPlugin("scratch/keep/**")]) as service:
        found = service.expire("**", older_than=MONTH, agents=["ann"])
    assert [each.path for each in found] == ["old.md", "scratch/old.md"]
    assert "ann/scratch/keep/old.md" in files(store)


@pytest.mark.parametrize("change", ["write", "append", "delete", "rename"])
@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
def test_a_file_that_changes_after_the_listing_stays(root: Root, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {
        "write": lambda memory: memory.write("a.md", "new"),
        "append": lambda memory: memory.append("a.md", "new"),
        "delete": lambda memory: memory.delete("a.md"),
        "rename": lambda memory: memory.rename("a.md", "b.md"),
    }

    class Changing:
        is_done = False

        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.kind == "delete" and operation.actor == "cron" and not self.is_done:
                self.is_done = True
                changes[change](other.agent("ann"))

    with (
        AgentMemoryService(root.url, storage_options=root.options) as other,
        AgentMemoryService(root.url, storage_options=root.options, plugins=[Changing()], actor="cron") as service,
    ):
        other.agent("ann").write("a.md", "old")
        now = time.time()
        with monkeypatch.context() as later:
            later.setattr(expiring, "time", SimpleNamespace(time=lambda: now + 40 * 86_400))
            found = service.expire("*.md", older_than=MONTH)
        assert found == ()
        left = [(entry.path, other.agent("ann").read(entry.path)) for entry in other.agent("ann").list()]
    expected = {"write": [("a.md", "new")], "append": [("a.md", "oldnew")], "delete": [], "rename": [("b.md", "old")]}
    assert left == expected[change]


def test_expiry_lists_once_and_deletes_with_one_request_for_each_file(ministack: S3Server) -> None:
    recording = RecordingPlugin()
    url = ministack.new_url()
    with AgentMemoryService(url, storage_options=ministack.options, plugins=[recording]) as service:
        for number in range(3):
            service.agent("ann").write(f"{number}.md", "x")
        time.sleep(1.1)
        assert len(service.expire("*.md", older_than=timedelta(seconds=1))) == 3
        assert service.agent("ann").list() == ()
    assert [operation.kind for operation, _ in recording.after].count("stat") == 0


def test_async_callers_expire_files_too(store: Path) -> None:
    async def play() -> int:
        async with AsyncAgentMemoryService(store) as service:
            return len(await service.expire("**", older_than=MONTH))

    assert asyncio.run(play()) == 6


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"pattern": "../x"}, ValueError, "matches no path"),
        ({"keep": ["a//../b"]}, ValueError, "matches no path"),
        ({"keep": "scratch/**"}, TypeError, "not a str"),
        ({"older_than": 30}, TypeError, "must be a timedelta"),
        ({"older_than": timedelta(0)}, ValueError, "must be positive"),
        ({"limit": 0}, ValueError, "limit must be a positive whole number"),
    ],
)
def test_bad_arguments_delete_nothing(
    store: Path, arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    given = {"pattern": "**", "older_than": MONTH, **arguments}
    with AgentMemoryService(store) as service, pytest.raises(error, match=told):
        service.expire(given.pop("pattern"), **given)
    assert len(files(store)) == 8


def test_a_text_is_not_a_collection_of_agents(store: Path) -> None:
    with AgentMemoryService(store) as service, pytest.raises(TypeError, match="agents must be an iterable of ids"):
        service.expire("**", older_than=MONTH, agents="bob")
    assert len(files(store)) == 8


def test_protected_files_take_no_place_of_the_limit(store: Path) -> None:
    with AgentMemoryService(store, plugins=[ReadOnlyPlugin("old.md", "scratch/keep/**")]) as service:
        found = service.expire("**", older_than=MONTH, agents=["ann"], limit=1)
    assert [each.path for each in found] == ["scratch/old.md"]


def test_a_file_that_is_rewritten_while_its_age_is_looked_at_stays(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AgentMemoryService(store) as other, AgentMemoryService(store) as service:
        backend: Any = service._backend
        stat, reads = backend.stat, list[Any]()

        def rewriting(key: Any) -> Any:
            found = stat(key)
            if not reads:
                reads.append(key)
                other.write_memory_file("ann", key.path, "new")
            return found

        monkeypatch.setattr(backend, "stat", rewriting)
        service.expire("old.md", older_than=MONTH, agents=["ann"])
        assert reads
        assert other.read_memory_file("ann", "old.md") == "new"
