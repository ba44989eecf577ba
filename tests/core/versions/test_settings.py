"""The setting in the store is followed by every process, and refused where it cannot be kept."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AppendError,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    FileOperationError,
    FileTooLargeError,
    FileVersion,
    ReadError,
    UnsupportedOperationError,
    VersionLimits,
)
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.core.store_record import FOLLOW_SECONDS
from agent_memory.runtime.run import step
from agent_memory_memory import MemoryBackend
from tests.core.versions.helpers import ON, contents, opened
from tests.support.servers import Root, S3Server


def test_a_process_that_was_not_told_keeps_versions(root: Root) -> None:
    opened(root).write("a", "one")
    with opened(root, None) as other:
        other.write("a", "two")
        other.delete("a")
    assert contents(opened(root, None), "a") == ["one", "two"]


def test_turned_off_nothing_more_is_kept_and_what_was_kept_stays(root: Root) -> None:
    memory = opened(root, None)
    assert memory.versions.list("a") == ()
    memory.versions.set_limits(replace(ON, keep=7))
    memory.write("a", "one")
    memory.write("a", "two")
    memory.versions.set_limits(None)
    memory.write("a", "three")
    assert [memory.versions.read("a", each.id) for each in memory.versions.list("a")[1:]] == ["one"]
    memory.versions.set_limits(ON)
    memory.write("a", "four")
    assert contents(memory, "a") == ["one", "three", "four"]


def test_a_process_follows_the_settings_within_a_minute(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(root, None)
    memory.write("a", "one")
    opened(root, None).versions.set_limits(ON)
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
    memory.write("a", "two")
    assert contents(memory, "a") == ["one", "two"]


def test_a_program_that_turns_versions_on_changes_no_limits_and_turns_them_on_once(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(ON, keep=7)
    memory = opened(root, limits)
    memory.write("a", "one")
    other = opened(root, ON)
    other.write("a", "two")
    assert memory.versions.limits() == other.versions.limits() == limits
    memory.versions.set_limits(None)
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
    other.write("a", "three")
    assert memory.versions.limits() is None
    assert contents(memory, "a") == ["one", "three"]


def test_damaged_settings_refuse_changes_and_keep_the_file(root: Root) -> None:
    memory = opened(root)
    memory.write("a", "one")
    other = opened(root, None)
    backend: Any = other._tree.backend

    async def damage() -> None:
        await other._run.call(backend.write, STORE_RECORD, b"{}")

    step(damage())
    with pytest.raises(ReadError, match="record of the store is damaged"):
        other.write("a", "two")
    with pytest.raises(AppendError, match=r"^the record of the store is damaged"):
        other.append("a", "two")
    assert other.read("a") == "one"


def test_settings_that_cannot_be_read_are_an_error_about_the_callers_file(ministack: S3Server) -> None:
    with AgentMemory.open("s3://no-such-bucket/memories", storage_options=ministack.options) as memory:
        calls: dict[str, Callable[[], object]] = {
            "notes/a.md": lambda: memory.write("notes/a.md", "x"),
            "b.md": lambda: memory.append("b.md", "x"),
            "c.md": lambda: memory.versions.list("c.md"),
            "d.md": lambda: memory.forget("d.md"),
        }
        for name, call in calls.items():
            with pytest.raises(FileOperationError) as caught:
                call()
            assert "does not exist" in str(caught.value)
            assert (caught.value.path, "store.json" in str(caught.value)) == (name, False), name


def test_settings_that_are_too_large_are_an_error_about_the_callers_file() -> None:
    backend = MemoryBackend()
    backend.write(STORE_RECORD, b"{}" * 100)
    backend.max_bytes = 100
    with pytest.raises(FileTooLargeError, match=r"^'a\.md': the record of the store: "):
        AgentMemory.open(backend).write("a.md", "x")


@pytest.mark.parametrize(
    "limits", [{"keep": 0}, {"keep": 1.5}, {"days": -1}, {"days": float("inf")}, {"days": 10**400}, {"max_bytes": True}]
)
def test_a_limit_that_is_no_positive_number_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be a positive (whole )?number"):
        VersionLimits(**limits)


def test_a_backend_without_conditional_changes_keeps_no_versions(ministack: S3Server, tmp_path: Path) -> None:
    server = ministack.by("obstore")
    for root in (Root(server.new_url(), server.options), Root(f"simplecache::file://{tmp_path}", {})):
        with pytest.raises(UnsupportedOperationError, match=r"keeps versions|no conditional"):
            opened(root).write("a", "x")
        memory = opened(root, None)
        with pytest.raises(UnsupportedOperationError):
            memory.versions.set_limits(ON)
        memory.write("a", "x")
        assert memory.versions.list("a") == (FileVersion("", "a", None, None, 1, None, 0),)


def test_a_disk_without_extended_attributes_keeps_no_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    memory = AgentMemory.open(tmp_path / "root")
    memory.write("a", "one")
    monkeypatch.setattr("os.setxattr", refuse)
    for versioned in (memory, AgentMemory.open(tmp_path / "root", versions=ON)):
        with pytest.raises(UnsupportedOperationError, match="no extended attributes"):
            versioned.versions.set_limits(ON)
    with pytest.raises(UnsupportedOperationError):
        AgentMemory.open(tmp_path / "root", versions=ON).write("a", "two")
    memory.write("a", "three")
    assert memory.versions.list("a") == (FileVersion("", "a", None, None, 5, None, 0),)


@pytest.mark.parametrize("limits", [True, 3, "on", {"keep": 3}, (1, 2), VersionLimits])
def test_limits_of_another_type_are_refused_and_the_record_stays(limits: Any) -> None:
    memory = AgentMemory.open("memory://")
    memory.versions.set_limits(VersionLimits(keep=7))
    with pytest.raises(TypeError, match="versions must be a VersionLimits or None, not"):
        memory.versions.set_limits(limits)
    for opening in (AgentMemory.open, AsyncAgentMemory.open, AgentMemoryService, AsyncAgentMemoryService):
        with pytest.raises(TypeError, match="versions must be a VersionLimits or None, not"):
            opening("memory://", versions=limits)
    assert memory.versions.limits() == VersionLimits(keep=7)
