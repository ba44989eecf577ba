"""demo, run by the installed script: real processes, the default store.

In the short run, the session that most tests look at is that of the script, and the others append with one process.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from tests.support import forked, sizes

SCRIPT = str(Path(sysconfig.get_path("scripts"), "agent-memory"))
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
PROCESSES = 4 if sizes.is_long else 1
WITH_ONE_PROCESS = "from agent_memory.cli import demo, main; demo.LINES = {1: demo.LINES[1]}; main()"
COMMAND = [SCRIPT] if sizes.is_long else [sys.executable, "-c", WITH_ONE_PROCESS]


@dataclass(frozen=True)
class Shown:
    """What one run of the demo printed, and the directory that it ran in, which had a file of the same agent."""

    text: str
    directory: Path

    @property
    def commands(self) -> list[str]:
        """The commands to type, which begin with the path of the interpreter."""
        return [line for line in self.text.splitlines() if " --agent demo " in line]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    directory = tmp_path_factory.mktemp("demo")
    with AgentMemoryService(directory / ".agent-memory") as service:
        service.write_memory_file("demo", "mine.md", "mine")
    done = subprocess.run([SCRIPT, "demo"], capture_output=True, cwd=directory, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return Shown(done.stdout.decode(), directory)


def test_demo_loses_nothing_refuses_escapes_and_shows_the_audit_log(shown: Shown) -> None:
    lines = shown.text.splitlines()
    assert "  100 of 100 lines are there, each whole and once" in lines
    assert "  read ../ben/notes.md: refused: a path must not contain the segment '..'" in lines
    assert "  append session/link -> /etc/passwd: refused: symbolic links are not followed" in lines
    for process in range(1, 5):
        assert f"  process-{process}  append   session/journal.md   ok, 25 times" in lines
    assert "  demo       refused  '../ben/notes.md'    parent" in lines
    assert "Nothing was lost or torn, and nothing got out." in lines
    assert not [file for file in (shown.directory / ".agent-memory").rglob("*") if file.is_symlink()]
    listed = subprocess.run(
        [SCRIPT, "--agent", "demo", "ls", "-r"], capture_output=True, cwd=shown.directory, check=True
    )
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [b"mine.md", b"session/journal.md"]
    with AgentMemoryService(shown.directory / ".agent-memory") as service:
        assert service.read_memory_file("demo", "mine.md") == "mine"


@pytest.mark.long
def test_demo_can_run_again_in_the_same_store(shown: Shown) -> None:
    again = subprocess.run([SCRIPT, "demo"], capture_output=True, cwd=shown.directory, check=True)
    assert b"100 of 100 lines are there" in again.stdout
    assert again.stdout.count(b"25 times") == 4, "the records of this run only"
    doctor = subprocess.run([SCRIPT, "doctor", "--rounds", "1"], capture_output=True, cwd=shown.directory, check=False)
    assert doctor.returncode == 0


def test_demo_prints_json_with_every_audit_line() -> None:
    document = json.loads(forked.run([*COMMAND, "demo", "--json", "--url", "other store"]).stdout)
    assert document["held"] is True
    assert list(document["escapes"].values()) == ["parent", "symlink"]
    appends = [line for line in document["audit"] if str(line.get("actor")).startswith("process-")]
    assert len(appends) == document["expected_lines"] == document["present_lines"] == 25 * PROCESSES
    assert {line["actor"] for line in appends} == {f"process-{number}" for number in range(1, PROCESSES + 1)}


def test_the_output_of_demo_fits_one_screen(shown: Shown) -> None:
    assert len(shown.commands) == 3
    assert len(shown.text.splitlines()) <= 23, "24 lines with the prompt"
    assert [line for line in shown.text.splitlines() if len(line) > 80 and line not in shown.commands] == []


def test_a_process_that_cannot_append_ends_the_demo(tmp_path: Path) -> None:
    (tmp_path / "plugins.toml").write_text('[plugins.redaction]\naction = "refuse"\npatterns = { line = "line 9" }\n')
    done = forked.run([*COMMAND, "--config", "plugins.toml", "demo"])
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(b"Error: a process could not append: "), done.stderr


@pytest.mark.parametrize("url", [[], pytest.param(["--url", "a store"], marks=pytest.mark.long)])
def test_demo_ends_with_the_location_of_its_files_and_working_commands(
    shown: Shown, tmp_path: Path, url: list[str]
) -> None:
    text, directory = shown.text, shown.directory
    if url:
        directory = tmp_path
        text = subprocess.run([SCRIPT, *url, "demo"], capture_output=True, cwd=tmp_path, check=True).stdout.decode()
    end = text.partition("The files are plain text, in\n")[2].splitlines()
    (journal,) = subprocess.run(
        ["ls " + end[0] + "/journal.md"], shell=True, cwd=directory, check=True, capture_output=True
    ).stdout.splitlines()
    assert (directory / journal.decode()).read_text().startswith("# Journal")
    commands = [line for line in end if " --agent demo " in line]
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
        assert done.stdout


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), pytest.param({"NO_COLOR": "1"}, False, marks=pytest.mark.long)]
)
def test_demo_has_colours_in_a_terminal(variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
    reader.start()
    environment = {**os.environ, "TERM": "xterm", **variables}
    done = forked.run([*COMMAND, "demo"], stdout=theirs, env=environment)
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
