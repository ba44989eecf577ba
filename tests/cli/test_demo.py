"""demo, run by the installed script: real processes, the default store, twice."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.cli.workers import killed_while_writing, version_of

Spawn = Callable[..., subprocess.CompletedProcess[bytes]]


def test_demo_runs_twice_without_a_lost_write_and_shows_the_audit_log(spawn: Spawn, tmp_path: Path) -> None:
    for _ in range(2):
        done = spawn("demo")
        text = done.stdout.decode()
        assert (done.returncode, done.stderr) == (0, b"")
        assert "100 of 100 lines are present" in text
        assert "symbolic link out of the store: refused" in text
        assert "NOT REFUSED" not in text
        assert "demo  refused  '/etc/passwd'  absolute" in text
        assert "the file is version" in text
        assert ", whole" in text
    assert not [file for file in (tmp_path / ".agent-memory").rglob("*") if file.is_symlink()]
    listed = spawn("--agent", "demo", "ls", "-r").stdout
    assert [line.split()[-1] for line in listed.splitlines()] == [
        b"session/journal.md", b"session/plan.md", b"session/report.md",
    ]  # fmt: skip
    assert spawn("doctor", "--rounds", "1").returncode == 0


def test_demo_prints_json_with_every_audit_line(spawn: Spawn) -> None:
    document = json.loads(spawn("demo", "--json", "--url", "other store").stdout)
    assert document["held"] is True
    appends = [line for line in document["audit"] if str(line.get("actor")).startswith("worker-")]
    assert len(appends) == document["expected_lines"] == document["present_lines"] == 100
    assert {line["actor"] for line in appends} == {"worker-0", "worker-1", "worker-2", "worker-3"}
    assert document["survived_crash"] is True


def test_demo_is_at_most_80_columns_wide(spawn: Spawn) -> None:
    lines = spawn("demo").stdout.decode().splitlines()
    typed = [line for line in lines if " --agent demo " in line]  # a command is never wrapped
    assert len(typed) == 4
    assert [line for line in lines if len(line) > 80 and line not in typed] == []


def test_demo_ends_with_the_location_of_its_files_and_working_commands(script: str, tmp_path: Path) -> None:
    for url in ((), ("--url", "a store")):
        text = subprocess.run([script, *url, "demo"], capture_output=True, cwd=tmp_path, check=True).stdout.decode()
        end = text.partition("The files are plain text, in\n")[2].splitlines()
        (plan,) = subprocess.run(
            ["ls " + end[0] + "/plan.md"], shell=True, cwd=tmp_path, check=True, capture_output=True
        ).stdout.splitlines()
        assert (tmp_path / plan.decode()).read_text().startswith("# Plan")
        commands = [line for line in end if " --agent demo " in line]
        for command in commands:
            done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), command
            assert done.stdout


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_demo_has_colours_in_a_terminal(script: str, tmp_path: Path, variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
    reader.start()
    environment = {**os.environ, "TERM": "xterm", **variables}
    done = subprocess.run([script, "demo"], stdout=theirs, cwd=tmp_path, env=environment, check=False)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = b"".join(shown)
    assert done.returncode == 0
    assert (b"\x1b[32m" in text) is coloured
    assert (b"\x1b[" in text) is coloured


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""  # Linux ends a terminal without a writer with EIO


@pytest.mark.parametrize("late", [0.0, 0.01, 1.0])
def test_a_killed_writer_leaves_a_complete_file_and_no_lock(
    tmp_path: Path, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = SpawnProcess.kill

    def kill_late(self: SpawnProcess) -> None:
        time.sleep(late)  # the parent gets no processor
        kill(self)

    monkeypatch.setattr(SpawnProcess, "kill", kill_late)
    url = (tmp_path / "store").as_uri()
    done = killed_while_writing(url, {}, "demo", "report.md")
    with AgentMemoryService(url) as service:
        text = service.read_memory_file("demo", "report.md")
        assert text in (version_of(done), version_of(done + 1))
        service.write_memory_file("demo", "report.md", "after")
        assert [entry.path for entry in service.list_memory_files("demo")] == ["report.md"]


def test_demo_changes_no_other_file_of_its_agent(spawn: Spawn) -> None:
    spawn("--agent", "demo", "write", "mine.md", "mine")
    spawn("demo")
    assert spawn("--agent", "demo", "read", "mine.md").stdout == b"mine"


def test_demo_explains_that_processes_do_not_share_memory(spawn: Spawn) -> None:
    done = spawn("--url", "memory://x", "demo")
    assert done.returncode == 6
    assert done.stderr.startswith(b"Error: memory://")


def test_demo_on_a_read_only_store_prints_one_line(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = spawn("--url", "file/below", "demo")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1
