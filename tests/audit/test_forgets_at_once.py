"""Forgets of one agent in several threads and processes at once, with digests of names: no false finding, no name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryService, InvalidPathError
from agent_memory.audit import records
from agent_memory.audit.names import UNNAMED, AgentNames
from agent_memory.audit.salts import Salts
from agent_memory.plugins.audit import AuditPlugin
from tests.audit.test_files import Held, quick

__all__ = ["quick"]


@pytest.fixture
def disk(tmp_path: Path) -> Held:
    return Held(f"file://{tmp_path}/root", {}, tmp_path, "digest")


def forget_at_once(memories: list[AgentMemory], paths: list[str]) -> None:
    barrier = threading.Barrier(len(paths))

    def forget(memory: AgentMemory, path: str) -> None:
        barrier.wait()
        memory.forget(path)

    threads = [threading.Thread(target=forget, args=each) for each in zip(memories, paths, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def require_only_doubts(disk: Held) -> None:
    assert {kind for kind, *_ in disk.told()} <= {"unvouched"}
    assert [each for each in disk.trial.verdict().findings if not each.is_harmless] == []


@pytest.mark.parametrize("services", [1, 2])
def test_forgets_of_two_paths_at_once(disk: Held, services: int) -> None:
    with disk.service() as first, disk.service() as second:
        for number in range(30):
            one = first.agent(f"bob{number}")
            other = (first, second)[services - 1].agent(f"bob{number}")
            for path in ("a.md", "b.md", "keep.md"):
                one.write(path, "x")
            other.read("a.md")
            forget_at_once([one, other], ["a.md", "b.md"])
            one.write("new.md", "y")
            other.write("other.md", "y")
    with disk.service() as third:
        third.write_memory_file("bob7", "later.md", "y")
    require_only_doubts(disk)
    disk.change("bob7", "later.md", lambda _: b"forged")
    assert ("changed", "bob7", "later.md") in disk.told()
    disk.change("bob7", "later.md", lambda _: b"y")
    disk.trial.heads.unlink(missing_ok=True)
    disk.trial.renewal().close()
    require_only_doubts(disk)


@pytest.mark.parametrize("reads", ["before the other one", "between its destruction and its new salt"])
def test_a_forget_that_destroys_the_new_salt_of_another_one(
    disk: Held, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk.service() as first, disk.service() as second:
        for path in ("a.md", "b.md", "keep.md"):
            first.write_memory_file("bob", path, "x")
        second.read_memory_file("bob", "a.md")
        known = Salts.known_names

        def then_the_other_one_forgets(salts: Salts, agent: str | None) -> AgentNames | None:
            monkeypatch.setattr(Salts, "known_names", known)
            found = known(salts, agent)
            first.agent("bob").forget("a.md")
            return found if reads == "before the other one" else None

        monkeypatch.setattr(Salts, "known_names", then_the_other_one_forgets)
        second.agent("bob").forget("b.md")
        first.write_memory_file("bob", "new.md", "y")
    require_only_doubts(disk)


def test_forgets_of_two_paths_in_turn_by_processes_that_know_the_first_salt(disk: Held) -> None:
    with disk.service() as first, disk.service() as second:
        for service, path in ((first, "a.md"), (second, "b.md"), (first, "keep.md")):
            service.write_memory_file("bob", path, "x")
        first.agent("bob").forget("a.md")
        second.agent("bob").forget("b.md")
        first.write_memory_file("bob", "new.md", "y")
    require_only_doubts(disk)


def test_a_process_that_knows_the_salt_of_before_a_closed_log(disk: Held) -> None:
    with disk.service() as first, disk.service() as second:
        first.write_memory_file("bob", "a.md", "x")
        second.write_memory_file("bob", "b.md", "x")
        first.agent("bob").forget("a.md")
        first.write_memory_file("bob", "c.md", "x")
        disk.trial.heads.unlink(missing_ok=True)
        disk.trial.renewal().close()
        second.write_memory_file("bob", "c.md", "y")
        second.write_memory_file("bob", "d.md", "y")
    require_only_doubts(disk)


def test_a_refused_name_is_recorded_without_a_salt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "audit.jsonl.salts").mkdir()
    (tmp_path / "audit.jsonl.salts" / "bob.salt").write_text("x")
    with (
        AuditPlugin(tmp_path / "audit.jsonl", required=True, paths="digest") as audit,
        AgentMemoryService("memory://no-salt-of-refused", plugins=[audit]) as service,
        pytest.raises(InvalidPathError),
    ):
        service.read_memory_file("bob", "../x")
    [refused] = [each for each in records(tmp_path / "audit.jsonl") if each["event"] == "refused"]
    assert (refused["agent"], refused["path"], refused["rule"]) == (UNNAMED, UNNAMED, "parent")
    assert "AuditPlugin" in caplog.text


def test_a_refused_agent_has_no_digest_that_no_forget_makes_unreadable(disk: Held) -> None:
    with disk.service() as service, pytest.raises(InvalidPathError):
        service.read_memory_file("Mary Jones", "a.md")
    refused = [each for each in records(disk.location()) if each["event"] == "refused"]
    assert [("agent" in each, each["path"]) for each in refused] == [(False, UNNAMED)]
