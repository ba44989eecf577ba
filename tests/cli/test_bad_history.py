"""history with broken and hostile content, on limited terminals, with closing pipes, and in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.test_process import closed_pipe
from tests.support import sizes
from tests.support.sizes import also

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
History = Callable[[bytes], Path]
NOON = "2026-03-01T12:00:00+00:00"


def line(content: object, role: str = "user", timestamp: str = NOON, **fields: object) -> bytes:
    return json.dumps({"role": role, "content": content, "timestamp": timestamp, **fields}).encode() + b"\n"


def test_no_stored_content_controls_the_terminal_or_forges_a_message(run: Run, history: History) -> None:
    forged = f"one\r\n{NOON} [slack / owner] USER: two\r\x1b[2J\x9b1A\u202e\u2028\x00\x7f\tend"
    history(line(forged, channel="a\nb", sender_id="\x07") + line("x", role="us\x1ber"))
    result = run("conversation", "show")
    rows = result.stdout.split("\n")
    assert [row.startswith("    ") for row in rows] == [False, True, False, False]
    assert r"['a\nb' / '\x07']" in rows[0]
    assert rows[1].endswith(r"USER: two\r\x1b[2J\x9b1A\u202e\u2028\x00\x7f" + "\tend")
    assert r"US\x1bER" in result.stdout
    found = run("conversation", "search", "one").stdout
    assert r"\x1b[2J\x9b1A\u202e" in found
    for text in (result.stdout, found):
        assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\x00\x7f")


def test_content_in_any_script_is_printed_unchanged(run: Run, history: History) -> None:
    text = "na\u00efve \u30e1\u3000\u30e2 \u0645\u06cc\u200c\u0631\u0648\u0645 10\u202f000 \U0001f469\u200d\U0001f4bb"
    history(line(text))
    assert text in run("conversation", "show").stdout


HOSTILE = {
    "binary": bytes(range(256)) * 50,
    "no line end": line("x").rstrip(),
    "byte order mark": b"\xef\xbb\xbf" + line("x"),
    "carriage returns": line("x").replace(b"\n", b"\r\n") * 2,
    "two objects a line": line("x").rstrip() + line("y"),
    "nested": b"".join(line([[]]).replace(b"[[]]", b"[" * n + b"]" * n) for n in (10, 900, 100_000)),
    "nested elsewhere": b"".join(
        line("x", extra=[]).replace(b"[]", b"[" * n + b"]" * n) for n in (10, 300, *range(850, 1000, 5), 100_000)
    ),
    "other types": b"".join(
        line("x").replace(b"}", f', "{name}": [1]}}'.encode())
        for name in ("channel", "sender_id", "tool_call_id", "role", "timestamp")
    ),
    "no objects": b'[]\n1\nnull\n"x"\n',
    "lone surrogate": b'{"role": "user", "content": "\\ud800x", "timestamp": "2026-03-01T12:00:00"}\n',
    "first and last moment": line("x", timestamp="0001-01-01T00:00:00") + line("x", timestamp="9999-12-31T23:59+23:59"),
    "strange zone": line("x", timestamp="2026-03-01T12:00:00+23:59:59.999999"),
    "a long line": line("x" * (10_000_000 if sizes.is_long else 1_000_000)) + line("y"),
    "a number too long": line(0).replace(b"0,", b"1" * 10_000 + b","),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "--all"],
        ["show", "--json", "--all"],
        ["search", "x"],
        ["search", "x", "--json", "--days", "9"],
    ],
    ids=" ".join,
)
def test_a_broken_history_never_fails_a_command(
    run: Run, history: History, tmp_path: Path, data: bytes, command: list[str]
) -> None:
    file = history(data)
    result = run("conversation", *command)
    assert result.exit_code in ((0, 1) if command[0] == "search" else (0,))
    assert "Error" not in result.stderr
    assert str(tmp_path) not in result.output
    assert file.read_bytes() == data


@pytest.mark.parametrize("command", [["show"], ["show", "--all"], ["append", "--role", "user", "x"], ["search", "x"]])
def test_a_history_that_is_a_link_is_refused_without_showing_a_host_path(
    run: Run, history: History, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "secret").write_bytes(line("secret"))
    file = history(b"")
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    result = run("conversation", *command)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (5, "", 1)
    assert str(tmp_path) not in result.stderr
    assert json.loads(run("--json", "conversation", *command).stderr)["error"]["rule"] == "symlink"
    assert (tmp_path / "secret").read_bytes() == line("secret")


@pytest.mark.parametrize("command", [["show"], *also([["search", "\u30e1"]])])
def test_a_character_that_the_terminal_cannot_show_is_escaped(
    spawn: Spawn, history: History, command: list[str]
) -> None:
    history(line("\u30e1\u30e2 caf\u00e9"))
    done = spawn("conversation", *command, env={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u30e1\u30e2 caf" + b"\xe9" in done.stdout


@pytest.mark.parametrize("command", [["show"], ["show", "--all"], ["show", "--json"], ["search", "x"]])
def test_a_closed_output_pipe_ends_the_command_silently(spawn: Spawn, history: History, command: list[str]) -> None:
    history(line("x" * 1000) * 1000)
    target = closed_pipe()
    done = spawn("conversation", *command, stdout=target)
    os.close(target)
    assert (done.returncode, done.stderr) == (141, b"")


PEAK_OF_A_CHILD = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)  # begins with that of the parent, which is small here
"""


@pytest.mark.long
def test_show_all_of_a_long_history_needs_bounded_memory(history: History, script: str, tmp_path: Path) -> None:
    history(line("x" * 100_000) * 800)

    def peak(*args: str) -> int:
        command = [sys.executable, "-c", PEAK_OF_A_CHILD, script, "conversation", "show", *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)

    assert peak("--all") - peak("-n", "0") < 30_000_000
