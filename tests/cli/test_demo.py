"""demo, as the installed script runs it: real processes, the default store, twice."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Spawn = Callable[..., subprocess.CompletedProcess[bytes]]


def test_demo_loses_nothing_refuses_escapes_and_shows_the_audit_log_twice(spawn: Spawn, tmp_path: Path) -> None:
    for _ in range(2):
        done = spawn("demo")
        text = done.stdout.decode()
        assert (done.returncode, done.stderr) == (0, b"")
        assert "100 of 100 lines are present" in text
        assert "symbolic link out of the store: refused" in text
        assert "NOT REFUSED" not in text
        assert '"event": "refused"' in text
    assert not [file for file in (tmp_path / ".agent-memory").rglob("*") if file.is_symlink()]
    listed = spawn("--agent", "demo", "ls", "-r").stdout
    assert [line.split()[-1] for line in listed.splitlines()] == [b"session/journal.md", b"session/plan.md"]
    assert spawn("doctor", "--rounds", "1").returncode == 0


def test_demo_gives_json_with_every_audit_line(spawn: Spawn) -> None:
    document = json.loads(spawn("demo", "--json", "--url", "other store").stdout)
    assert document["held"] is True
    appends = [line for line in document["audit"] if str(line.get("actor")).startswith("worker-")]
    assert len(appends) == document["expected_lines"] == document["present_lines"] == 100
    assert {line["actor"] for line in appends} == {"worker-0", "worker-1", "worker-2", "worker-3"}


def test_demo_touches_no_other_file_of_its_agent(spawn: Spawn) -> None:
    spawn("--agent", "demo", "write", "mine.md", "mine")
    spawn("demo")
    assert spawn("--agent", "demo", "read", "mine.md").stdout == b"mine"


def test_demo_tells_that_memory_is_not_shared_by_processes(spawn: Spawn) -> None:
    done = spawn("--url", "memory://x", "demo")
    assert done.returncode == 6
    assert done.stderr.startswith(b"Error: memory://")


def test_demo_on_a_store_it_cannot_write_to_is_one_line(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = spawn("--url", "file/below", "demo")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1
