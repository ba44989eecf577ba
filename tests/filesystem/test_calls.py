"""Every call of the filesystem is reported to the hooks as its operation, and guards can refuse it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    OperationDenied,
    hookimpl,
)
from agent_memory.filesystem import filesystem
from tests.filesystem.kit import FileSystem, Recorder, contents, written

CALLS: dict[str, tuple[Callable[[FileSystem], object], list[str]]] = {
    "cat_file": (lambda fs: fs.cat_file("d/f"), ["read"]),
    "cat_file of a range": (lambda fs: fs.cat_file("d/f", -3, -1), ["read"]),
    "cat_ranges": (lambda fs: fs.cat_ranges(["d/f", "a"], 0, 1), ["read", "read"]),
    "cat": (lambda fs: fs.cat("d/f"), ["read"]),
    "cat of a directory": (lambda fs: fs.cat("d", recursive=True), ["list", "read"]),
    "reading a small file": (lambda fs: fs.read_bytes("d/f"), ["read"]),
    "opening a small file": (lambda fs: fs.open("d/f", "r").read(), ["read"]),
    "head": (lambda fs: fs.head("d/f"), ["read"]),
    "a missing file": (lambda fs: fs.cat(["missing"], on_error="omit"), ["read", "list"]),
    "info of a file": (lambda fs: fs.info("d/f"), ["stat"]),
    "info of a directory": (lambda fs: fs.info("d"), ["stat", "list"]),
    "info of the root": (lambda fs: fs.info(""), []),
    "modified": (lambda fs: fs.modified("d/f"), ["stat"]),
    "ls": (lambda fs: fs.ls("d"), ["list"]),
    "find": (lambda fs: fs.find("", detail=True, withdirs=True), ["list"]),
    "glob": (lambda fs: fs.glob("**/f"), ["list"]),
    "du": (lambda fs: fs.du(""), ["list"]),
    "exists": (lambda fs: fs.exists("d/f"), ["exists"]),
    "exists of nothing": (lambda fs: fs.exists("missing"), ["exists", "exists"]),
    "isfile": (lambda fs: fs.isfile("d"), ["exists"]),
    "isdir": (lambda fs: fs.isdir("d/f"), ["exists"]),
    "pipe_file": (lambda fs: fs.pipe_file("new", b"1"), ["write"]),
    "pipe": (lambda fs: fs.pipe({"new": b"1", "new2": b"2"}), ["write", "write"]),
    "creating": (lambda fs: fs.pipe_file("new", b"1", mode="create"), ["create"]),
    "writing in parts": (lambda fs: written(fs, "new", "wb"), ["write"]),
    "writing text": (lambda fs: fs.write_text("new", "é"), ["write"]),
    "appending in parts": (lambda fs: written(fs, "a", "ab"), ["append"]),
    "creating in parts": (lambda fs: written(fs, "new", "xb"), ["exists", "create"]),
    "touch": (lambda fs: fs.touch("new"), ["write"]),
    "touch of a new file": (lambda fs: fs.touch("new", truncate=False), ["create"]),
    "mkdir": (lambda fs: fs.mkdir("new"), ["exists", "exists"]),
    "makedirs": (lambda fs: fs.makedirs("d", exist_ok=True), ["exists"]),
    "cp_file": (lambda fs: fs.cp_file("a", "new"), ["copy"]),
    "cp_file over a file": (lambda fs: fs.cp_file("a", "d/f"), ["copy", "exists", "read", "write"]),
    "mv": (lambda fs: fs.mv("a", "new"), ["rename"]),
    "mv of a directory": (lambda fs: fs.mv("d", "new", recursive=True), ["rename"]),
    "rm": (lambda fs: fs.rm(["a", "d/f"]), ["delete", "delete"]),
    "rm_file": (lambda fs: fs.rm_file("a"), ["delete"]),
    "rm of a directory": (lambda fs: fs.rm("d", recursive=True), ["delete_tree"]),
    "rm of everything": (lambda fs: fs.rm("/", recursive=True), ["delete_tree"]),
    "get_file": (lambda fs: fs.get_file("a", None, outfile=io.BytesIO()), ["read"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_reported_to_the_hooks_as_its_operation(recorder: Recorder, call: str) -> None:
    fs = filesystem(AgentMemory.open(f"memory://hooks-{os.urandom(6).hex()}", plugins=[recorder]))
    fs.pipe({"a": b"1", "d/f": b"12345"})
    recorder.kinds.clear()
    action, kinds = CALLS[call]
    action(fs)
    assert recorder.kinds == kinds


def test_an_unknown_option_is_refused(scratch: FileSystem) -> None:
    for mode in ("rb", "wb"):
        with pytest.raises(TypeError):
            scratch.open("a", mode, IfMatch="x")


def test_a_put_is_one_write(scratch: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"1")
    scratch.put_file(tmp_path / "local", "a", mode="create")
    with pytest.raises(FileExistsError):
        scratch.put_file(str(tmp_path / "local"), "a", mode="create")
    assert contents(scratch) == {"a": b"1"}


def test_every_query_raises_the_denial_of_a_guard() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            raise OperationDenied("no")

    fs = filesystem(AgentMemory.open("memory://", plugins=[Guard()]))
    for ask in (fs.exists, fs.isfile, fs.isdir, fs.info, fs.ls, fs.find, fs.cat, fs.open, fs.rm, fs.mkdir):
        with pytest.raises(PermissionError):
            ask("a")


def test_the_filesystem_of_a_read_only_view_refuses_every_write(memory: AgentMemory) -> None:
    memory.write("a", "1")
    fs = filesystem(memory.read_only())
    actions: list[Callable[[], object]] = [
        lambda: fs.pipe_file("a", b"2"),
        lambda: written(fs, "a", "wb"),
        lambda: written(fs, "a", "ab"),
        lambda: fs.rm("", recursive=True),
        lambda: fs.mv("a", "b"),
        lambda: fs.copy("a", "b"),
        lambda: fs.touch("b"),
    ]
    for action in actions:
        with pytest.raises(PermissionError):
            action()
    assert contents(fs) == {"a": b"1"}
