"""Systems without ``/proc`` and read-only filesystems, tested by programs in their own mount namespace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import sys
from agent_memory import *
with AgentMemory.open(sys.argv[1]) as memory:
"""


def mounted(root: Path, mount: str, body: str) -> str:
    """Run a shell's mount command, then the program; return its output."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    command = ["unshare", "--mount", "sh", "-ec", f'{mount}\nexec "$@"', str(root)]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting takes root")
    done = subprocess.run(
        [*command, sys.executable, "-c", _PROGRAM + lines, str(root)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_are_created_without_proc(tmp_path: Path) -> None:
    body = """
memory.create("new/a.md", "x")
memory.write("b.md", "y")
memory.append("log.md", "z")
"""
    mounted(tmp_path, "mount -t tmpfs none /proc", body)
    assert {
        path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    } == {
        "new/a.md": "x",
        "b.md": "y",
        "log.md": "z",
    }


@pytest.mark.parametrize(
    "change", ["rename('d', 'n')", "rename('d/a.md', 'n.md')", "rename('d', 'e/n')", "copy('d', 'n')"]
)
def test_a_read_only_filesystem_raises_a_write_error_for_a_free_name(tmp_path: Path, change: str) -> None:
    for name in ("d", "e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("x")
    body = f"""
try:
    memory.{change}
except AgentMemoryError as error:
    print(type(error).__name__, error)
"""
    told = mounted(tmp_path, 'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"', body)
    assert "Read-only file system" in told
    assert told.startswith("WriteError")


def test_a_read_only_filesystem_raises_already_exists_for_a_taken_name(tmp_path: Path) -> None:
    for name in ("d", "n"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("x")
    body = """
try:
    memory.rename("d", "n")
except AgentMemoryError as error:
    print(type(error).__name__)
"""
    told = mounted(tmp_path, 'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"', body)
    assert told.strip() == "FileAlreadyExistsError"
