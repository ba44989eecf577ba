"""demo, run by the installed script: real processes, the default store."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.cli.workers import killed_while_writing, version_of

SCRIPT = str(Path(sysconfig.get_path("scripts"), "agent-memory"))
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]


@dataclass(frozen=True)
class Shown:
    """What one run of the demo printed, and the directory that it ran in, which had a file of the same agent."""

    text: str
    directory: Path

    @property
    def commands(self) -> list[str]:
        """The commands to type, which the demo never wraps."""
        return [line for line in self.text.splitlines() if " --agent demo " in line]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    directory = tmp_path_factory.mktemp("demo")
    with AgentMemoryService(directory / ".agent-memory") as service:
        service.write_memory_file("demo", "mine.md", "mine")
    done = subprocess.run([SCRIPT, "demo"], capture_output=True, cwd=directory, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return Shown(done.stdout.decode(), directory)


def test_demo_loses_nothing_and_shows_the_audit_log(shown: Shown) -> None:
    assert "100 of 100 lines are present" in shown.text
    assert "symbolic link out of the store: refused" in shown.text
    assert "NOT REFUSED" not in shown.text
    assert "demo  refused  '/etc/passwd'  absolute" in shown.text
    assert "the file is version" in shown.text
    assert ", whole" in shown.text
    assert not [file for file in (shown.directory / ".agent-memory").rglob("*") if file.is_symlink()]
    listed = subprocess.run(
        [SCRIPT, "--agent", "demo", "ls", "-r"], capture_output=True, cwd=shown.directory, check=True
    )
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [
        b"mine.md", b"session/journal.md", b"session/plan.md", b"session/report.md",
    ]  # fmt: skip
    with AgentMemoryService(shown.directory / ".agent-memory") as service:
        assert service.read_memory_file("demo", "mine.md") == "mine"


@pytest.mark.long
def test_demo_can_run_again_in_the_same_store(shown: Shown) -> None:
    again = subprocess.run([SCRIPT, "demo"], capture_output=True, cwd=shown.directory, check=True)
    assert b"100 of 100 lines are present" in again.stdout
    doctor = subprocess.run([SCRIPT, "doctor", "--rounds", "1"], capture_output=True, cwd=shown.directory, check=False)
    assert doctor.returncode == 0


def test_demo_prints_json_with_every_audit_line(spawn: Spawn) -> None:
    document = json.loads(spawn("demo", "--json", "--url", "other store").stdout)
    assert document["held"] is True
    appends = [line for line in document["audit"] if str(line.get("actor")).startswith("worker-")]
    assert len(appends) == document["expected_lines"] == document["present_lines"] == 100
    assert {line["actor"] for line in appends} == {"worker-0", "worker-1", "worker-2", "worker-3"}
    assert document["survived_crash"] is True


def test_demo_is_at_most_80_columns_wide(shown: Shown) -> None:
    assert len(shown.commands) == 4
    assert [line for line in shown.text.splitlines() if len(line) > 80 and line not in shown.commands] == []


@pytest.mark.parametrize("url", [[], pytest.param(["--url", "a store"], marks=pytest.mark.long)])
def test_demo_ends_with_the_location_of_its_files_and_working_commands(
    shown: Shown, tmp_path: Path, url: list[str]
) -> None:
    text, directory = shown.text, shown.directory
    if url:
        directory = tmp_path
        text = subprocess.run([SCRIPT, *url, "demo"], capture_output=True, cwd=tmp_path, check=True).stdout.decode()
    end = text.partition("The files are plain text, in\n")[2].splitlines()
    (plan,) = subprocess.run(
        ["ls " + end[0] + "/plan.md"], shell=True, cwd=directory, check=True, capture_output=True
    ).stdout.splitlines()
    assert (directory / plan.decode()).read_text().startswith("# Plan")
    commands = [line for line in end if " --agent demo " in line]
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
        assert done.stdout


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), pytest.param({"NO_COLOR": "1"}, False, marks=pytest.mark.long)]
)
def test_demo_has_colours_in_a_terminal(tmp_path: Path, variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
    reader.start()
    environment = {**os.environ, "TERM": "xterm", **variables}
    done = subprocess.run([SCRIPT, "demo"], stdout=theirs, cwd=tmp_path, env=environment, check=False)
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
