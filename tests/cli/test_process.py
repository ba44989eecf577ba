"""The installed script as a process: closed pipes, interrupts, missing extras, limited terminals; never a traceback.

In the short run, `launch` starts the script itself for one command of each kind; `spawn` forks for the others.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.support import forked
from tests.support.sizes import also

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]


def closed_pipe() -> int:
    """The writing end of a pipe whose reader has gone."""
    source, target = os.pipe()
    os.close(source)
    return target


def test_the_script_runs_and_prints_its_version(launch: Spawn) -> None:
    assert launch("write", "a.md", given=b"x\r\n").returncode == 0
    assert launch("read", "a.md").stdout == b"x\r\n"
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert launch("--version").stdout.decode().strip() == project["version"]


@pytest.mark.parametrize(
    "command",
    [
        ["read", "a.md"], ["tree"], ["--help"], ["--version"],
        *also([["ls", "-r"], ["ls", "--json"], ["ls", "--help"], ["audit", "--help"]]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_closed_output_pipe_ends_the_command_silently(
    run: Run, spawn: Spawn, launch: Spawn, command: list[str]
) -> None:
    run("write", "a.md", given=b"x" * 1_000_000)
    target = closed_pipe()
    done = (launch if command[0] == "read" else spawn)(*command, stdout=target)
    os.close(target)
    assert (done.returncode, done.stderr) == (141, b"")


def test_completion_into_a_closed_pipe_ends_silently(spawn: Spawn) -> None:
    target = closed_pipe()
    done = spawn(stdout=target, env={"_AGENT_MEMORY_COMPLETE": "bash_source"})
    os.close(target)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", [["read", "none.md"], ["nonsense"], ["--nonsense"], ["--json", "ls", "--limit"]])
def test_an_error_whose_reader_has_gone_ends_the_command_with_the_same_code(
    run: Run, spawn: Spawn, launch: Spawn, command: list[str]
) -> None:
    run("write", "a.md", "x")
    target = closed_pipe()
    done = (launch if command[0] == "read" else spawn)(*command, stderr=target)
    os.close(target)
    assert (done.returncode, done.stdout) == (141, b"")


COMMANDS = [
    ["--help"], ["--version"], ["ls", "--help"], ["read", "a.md"], ["ls", "--json"], ["tree"],
    ["read", "--as-tool", "a.md"], ["search", "x"], ["doctor"], ["plugins"], ["agents"], ["write", "b.md", "x"],
    ["append", "a.md", "x"], ["rm", "a.md"], ["audit", "verify"], ["export", "target"], ["connect", "cursor"],
    ["nonsense"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_with_a_closed_output_does_nothing_and_fails(
    run: Run, spawn: Spawn, launch: Spawn, tmp_path: Path, command: list[str]
) -> None:
    run("write", "a.md", "x")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    done = (launch if command == ["append", "a.md", "x"] else spawn)(*command, closed=[1], timeout=60)
    assert done.returncode == 1
    assert b"stdout is closed, so nothing was done" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_no_file_of_a_store_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Text that a library writes to the number of stderr would otherwise land in a file of the store."""
    program = (
        "import os, agent_memory.cli.app as app, agent_memory.cli.files as files\n"
        "real = files.given_text\n"
        "def noisy(*args):\n"
        "    for stream in (1, 2): os.write(stream, b'noise')\n"
        "    return real(*args)\n"
        "files.given_text = noisy\n"
        "app.app.main(['write', 'a.md', 'x'])"
    )
    for closed in ([2], [0, 2]):
        done = forked.run([sys.executable, "-c", program], closed=closed, cwd=tmp_path, timeout=60)
        assert done.returncode == 0
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in files if b"noise" in path.read_bytes()]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", [["read", "a.md"], ["ls"]])
def test_output_that_cannot_be_written_is_an_error(run: Run, spawn: Spawn, launch: Spawn, command: list[str]) -> None:
    run("write", "a.md", "x")
    with Path("/dev/full").open("wb") as full:
        done = (launch if command[0] == "read" else spawn)(*command, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ")
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_an_interrupt_prints_one_line(script: str, tmp_path: Path) -> None:
    with forked.popen([script, "-v", "write", "a.md", "-"], cwd=tmp_path, real=True) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 200_000)  # more than a pipe holds, so the command has started to read
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert b"Error: interrupted" in errors
    assert b"Traceback" not in errors
    assert not (tmp_path / ".agent-memory").exists()


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_the_command_names_the_missing_extra(missing: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from agent_memory.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "ls"], capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 6
    assert done.stdout == b""
    assert done.stderr == f"Error: the command line needs {missing}: pip install 'agent-memory-files[cli]'\n".encode()


def test_the_library_imports_neither_click_nor_rich(tmp_path: Path) -> None:
    program = "import agent_memory, sys; sys.exit(any(name in sys.modules for name in ('click', 'rich')))"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ["--url", "file://host/x", "ls"],
        ["--url", "file:relative", "ls", "--agent", ""],
        ["--url", "s3://bucket/" + "x" * 200, "ls"],
        ["--url", "s3://bucket/x?y", "ls"],
        ["read", b"caf\xe9.md"],
        ["import", b"\xff"],
        *also(
            [
                ["-o", "=", "ls"],
                ["-o", "durability=[1,2]", "ls"],
                ["--url", "~nobody-of-this-name/x", "ls"],
                ["--url", "http://127.0.0.1:1/x", "ls"],
                ["write", "a.md", b"caf\xe9"],
                ["--agent", b"\xff", "ls"],
                ["transfer", "nosuch://a", "b"],
                ["write", "a.md", "x", "--file", b"\xff"],
                ["read", "x" * 10_000],
            ]
        ),
    ],
)
def test_no_traceback_reaches_the_user(spawn: Spawn, launch: Spawn, args: list[str | bytes]) -> None:
    done = (launch if b"caf\xe9.md" in args else spawn)(*args)
    assert done.returncode in range(1, 7), done
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"Error: ")


@pytest.mark.parametrize("command", [["ls"], *also([["tree"], ["ls", "--json"]])])
def test_a_character_that_the_terminal_cannot_show_is_escaped(run: Run, spawn: Spawn, command: list[str]) -> None:
    run("write", "\u30e1\u30e2.md", "x")
    done = spawn(*command, env={"PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u30e1\u30e2.md" in done.stdout


def test_a_progress_bar_is_shown_only_on_a_terminal(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.md").write_text("x")
    assert spawn("import", "source").stderr == b""
    ours, theirs = pty.openpty()
    done = spawn("import", "source", stderr=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    drawn = os.read(ours, 10_000)
    os.close(ours)
    assert done.returncode == 0
    assert b"Importing" in drawn


@pytest.mark.parametrize(
    "command", [["ls", "--url", "no{}://x"], ["ls", "--config", "no{}.toml"], ["no{}"], ["ls", "--no{}"]]
)
def test_an_error_message_cannot_control_the_terminal(spawn: Spawn, command: list[str]) -> None:
    title = "\x1b]0;title\x07\x9b1A\u202e"  # click does not remove this sequence
    error = spawn(*(word.format(title) for word in command)).stderr.decode()
    assert error.startswith("Error: ")
    assert not set(error) & set("\x1b\x07\x9b\u202e")
