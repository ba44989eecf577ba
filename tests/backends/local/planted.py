"""Planted links and special files, and every operation that can meet one."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from agent_memory import ABSENT, PRESENT, SHA256, AgentMemory
from agent_memory.backend import Page
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory_local import LocalBackend
from tests.support.outside import SECRET

Action = Callable[[AgentMemory], object]

LINKS = {
    "absolute, to a file": "{outside}/secret.md",
    "absolute, to a directory": "{outside}",
    "relative, to a file": "../outside/secret.md",
    "relative, to a directory": "../outside",
    "absolute, to nothing": "{outside}/missing",
    "relative, to nothing": "../outside/missing",
    "to itself": "planted",
    "of a loop": "second",
    "of a chain": "third",
    "to the root directory, by magic": "/proc/self/root",
    "to the outside, by magic": "/proc/self/cwd/../outside",
    "to an open file, by magic": "/proc/self/fd/0",
    "to a device": "/dev/zero",
    "to a file of the tree": "kept.md",
    "to a directory of the tree": "dir",
    "to the tree itself": ".",
    "with a slash at its end": "../outside/",
    "through a directory of the tree": "dir/../../outside/secret.md",
}
SPECIAL = {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK, "endless device": stat.S_IFCHR, "block device": stat.S_IFBLK}
_ENDLESS = os.makedev(1, 5)  # /dev/zero
_NO_BLOCKS = os.makedev(240, 250)  # a number reserved for experiments, without a driver


def make_outside(directory: Path) -> Path:
    """A directory that no operation may change, with the same names as the tree."""
    (directory / "dir").mkdir(parents=True)
    for name in ("secret.md", "kept.md", "planted", "dir/kept.md"):
        (directory / name).write_text(SECRET)
    return directory


def plant_link(root: Path, kind: str) -> None:
    """Plant one kind of symbolic link as ``planted``; a link to the outside points beside the root."""
    (root / "planted").symlink_to(LINKS[kind].format(outside=root.parent / "outside"))
    if kind == "of a loop":
        (root / "second").symlink_to("planted")
    if kind == "of a chain":
        (root / "third").symlink_to("fourth")
        (root / "fourth").symlink_to("../outside")


def plant_special(path: Path, kind: str) -> None:
    """Plant a special file: a pipe, a socket or a device."""
    device = {"endless device": _ENDLESS, "block device": _NO_BLOCKS}.get(kind, 0)
    try:
        os.mknod(path, SPECIAL[kind] | 0o600, device)
    except PermissionError:
        pytest.skip("making a device takes root")


def inside(root: Path) -> dict[str, tuple[int, str]]:
    """Every name below a root, with its kind and mode, and its content or target."""
    return {str(path.relative_to(root)): (path.lstat().st_mode, _held(path)) for path in root.rglob("*")}


def page_of(root: Path) -> Page:
    """A listing of everything, with its count of skipped entries."""
    return LocalBackend(root).list(Key.tree())


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Fail if the block hangs, even in a system call."""

    def hangs(_: int, __: FrameType | None) -> None:
        pytest.fail(f"hangs: not done in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def scan_all(memory: AgentMemory, path: str) -> bytes:
    """The first bytes of a file, read in ranges."""

    async def work(reader: Reader) -> bytes:
        return await reader.read_tail(10) + await reader.read(0, 10)

    return memory.scan(path, work)


def _held(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_text() if path.is_file() else ""


AS_A_FILE: dict[str, Action] = {
    "read": lambda m: m.read("planted"),
    "read bytes": lambda m: m.read_bytes("planted"),
    "read many": lambda m: m.read_many(["planted"]),
    "read many bytes": lambda m: m.read_many(["planted"], bytes=True),
    "tail": lambda m: m.tail("planted", 3),
    "scan": lambda m: scan_all(m, "planted"),
    "stat": lambda m: m.stat("planted"),
    "exists": lambda m: m.exists("planted"),
    "versions": lambda m: m.versions.list("planted"),
    "write": lambda m: m.write("planted", "x"),
    "write if unchanged": lambda m: m.write("planted", "x", when=SHA256("0" * 64)),
    "create": lambda m: m.create("planted", "x"),
    "write in parts": lambda m: m.write_blocks("planted", [b"xy"], 2),
    "create in parts": lambda m: m.write_blocks("planted", [b"xy"], 2, when=ABSENT),
    "append": lambda m: m.append("planted", "x", separator="\n"),
    "append if there": lambda m: m.append("planted", "x", when=PRESENT),
    "edit": lambda m: m.edit("planted", str.upper),
    "edit or create": lambda m: m.edit("planted", str.upper, missing="x"),
    "edit bytes, deleting": lambda m: m.edit_bytes("planted", lambda _: None),
    "delete": lambda m: m.delete("planted"),
    "delete if unchanged": lambda m: m.delete("planted", when=SHA256("0" * 64)),
    "delete_tree": lambda m: m.delete_tree("planted"),
    "forget": lambda m: m.forget("planted").files,
    "is_directory": lambda m: m.is_directory("planted"),
    "list": lambda m: m.list("planted"),
    "list one level": lambda m: m.list("planted", recursive=False),
    "copy": lambda m: m.copy("planted", "new.md"),
    "rename": lambda m: m.rename("planted", "new.md"),
}
AS_A_TARGET: dict[str, Action] = {
    "copy to": lambda m: m.copy("kept.md", "planted"),
    "copy a directory to": lambda m: m.copy("dir", "planted"),
    "rename to": lambda m: m.rename("kept.md", "planted"),
    "rename a directory to": lambda m: m.rename("dir", "planted"),
}
AS_A_DIRECTORY: dict[str, Action] = {
    "read in": lambda m: m.read("planted/secret.md"),
    "scan in": lambda m: scan_all(m, "planted/secret.md"),
    "stat in": lambda m: m.stat("planted/secret.md"),
    "versions in": lambda m: m.versions.list("planted/secret.md"),
    "exists in": lambda m: m.exists("planted/secret.md"),
    "write in": lambda m: m.write("planted/secret.md", "x"),
    "write below": lambda m: m.write("planted/new/new.md", "x"),
    "create in": lambda m: m.create("planted/new.md", "x"),
    "write in parts in": lambda m: m.write_blocks("planted/secret.md", [b"xy"], 2),
    "append in": lambda m: m.append("planted/secret.md", "x"),
    "edit in": lambda m: m.edit("planted/secret.md", str.upper),
    "edit or create in": lambda m: m.edit("planted/new.md", str.upper, missing="x"),
    "delete in": lambda m: m.delete("planted/secret.md"),
    "delete_tree in": lambda m: m.delete_tree("planted/dir"),
    "forget in": lambda m: m.forget("planted/secret.md").files,
    "forget a directory in": lambda m: m.forget("planted/dir").files,
    "list in": lambda m: m.list("planted/dir"),
    "copy into": lambda m: m.copy("kept.md", "planted/new.md"),
    "copy a directory into": lambda m: m.copy("dir", "planted/new"),
    "copy out of": lambda m: m.copy("planted/secret.md", "new.md"),
    "rename into": lambda m: m.rename("kept.md", "planted/new.md"),
    "rename a directory into": lambda m: m.rename("dir", "planted/new"),
    "rename out of": lambda m: m.rename("planted/secret.md", "new.md"),
    "rename a directory out of": lambda m: m.rename("planted/dir", "new"),
}
EVERY = {**AS_A_FILE, **AS_A_TARGET, **AS_A_DIRECTORY}
