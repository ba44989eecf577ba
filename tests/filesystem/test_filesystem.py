"""`AgentMemory.filesystem()`: what fsspec offers, confined, hooked, and saved whole or not at all."""

from __future__ import annotations

import asyncio
import copy
import io
import itertools
import os
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    InvalidContentError,
    InvalidPathError,
    Operation,
    OperationDenied,
    hookimpl,
)
from agent_memory.filesystem import AgentMemoryFileSystem
from tests.servers import S3Server

FileSystem = AgentMemoryFileSystem
BIG = random.Random(1).randbytes(600_000)


class Recorder:
    """The operations that passed the hooks, and the names that were refused."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.refused = 0

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        self.kinds.append(operation.kind)

    @hookimpl
    def agent_memory_key_rejected(self) -> None:
        self.refused += 1


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(params=["local", "memory", "ministack"])
def memory(request: pytest.FixtureRequest, tmp_path: Path, recorder: Recorder) -> Iterator[AgentMemory]:
    options: dict[str, Any] = {}
    url = f"memory://{tmp_path.name}-{os.getpid()}" if request.param == "memory" else str(tmp_path / "root")
    if request.param == "ministack":
        server: S3Server = request.getfixturevalue("ministack")
        url, options = server.new_url(), server.options
    with AgentMemory.open(url, storage_options=options, plugins=[recorder]) as memory:
        yield memory


@pytest.fixture
def fs(memory: AgentMemory) -> AgentMemoryFileSystem:
    return memory.filesystem()


@pytest.fixture
def scratch() -> Iterator[AgentMemoryFileSystem]:
    """For what is the same on every backend."""
    with AgentMemory.open(f"memory://scratch-{os.urandom(6).hex()}") as memory:
        yield memory.filesystem()


def contents(fs: AgentMemoryFileSystem) -> dict[str, bytes]:
    return {name: fs.cat_file(name) for name in fs.find("")}


# Hooks

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
    "exists of nothing": (lambda fs: fs.exists("missing"), ["exists", "list"]),
    "isfile": (lambda fs: fs.isfile("d"), ["exists"]),
    "isdir": (lambda fs: fs.isdir("d/f"), ["list"]),
    "pipe_file": (lambda fs: fs.pipe_file("new", b"1"), ["write"]),
    "pipe": (lambda fs: fs.pipe({"new": b"1", "new2": b"2"}), ["write", "write"]),
    "creating": (lambda fs: fs.pipe_file("new", b"1", mode="create"), ["create"]),
    "writing in parts": (lambda fs: written(fs, "new", "wb"), ["write"]),
    "writing text": (lambda fs: fs.write_text("new", "é"), ["write"]),
    "appending in parts": (lambda fs: written(fs, "a", "ab"), ["append"]),
    "creating in parts": (lambda fs: written(fs, "new", "xb"), ["exists", "create"]),
    "touch": (lambda fs: fs.touch("new"), ["write"]),
    "touch of a new file": (lambda fs: fs.touch("new", truncate=False), ["create"]),
    "mkdir": (lambda fs: fs.mkdir("new"), ["exists", "list"]),
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


def written(fs: FileSystem, path: str, mode: str) -> None:
    with fs.open(path, mode) as file:
        for part in (b"x", b"y" * 10, b"z"):
            file.write(part)
            file.flush()


@pytest.mark.parametrize("call", CALLS)
def test_each_call_passes_the_hooks_as_what_it_does(recorder: Recorder, call: str) -> None:
    fs = AgentMemory.open(f"memory://hooks-{os.urandom(6).hex()}", plugins=[recorder]).filesystem()
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


def test_a_guard_s_veto_is_raised_by_every_question() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            raise OperationDenied("no")

    fs = AgentMemory.open("memory://", plugins=[Guard()]).filesystem()
    for ask in (fs.exists, fs.isfile, fs.isdir, fs.info, fs.ls, fs.find, fs.cat, fs.open, fs.rm, fs.mkdir):
        with pytest.raises(PermissionError):
            ask("a")


def test_a_read_only_view_writes_nothing(memory: AgentMemory) -> None:
    memory.write("a", "1")
    fs = memory.read_only().filesystem()
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


# Confinement

HOSTILE = [
    "../x", "a/../../x", "a/..", "..", "//etc/passwd", "///x", "a\\b", "..\\x", "C:\\x", "~/x", "%2e%2e/x", "file:///etc/passwd",
    "s3://bucket/x", "local::x", "agent-memory::x", "agent-memory:////x", "agent-memory://agent-memory://x", "memory://x",
    "．．/x", "a\0b", "a\nb", ".agent-memory/x", "CON", "x.", "a" * 800,
]  # fmt: skip
VERBS: dict[str, Callable[[FileSystem, str], object]] = {
    "cat_file": lambda fs, name: fs.cat_file(name),
    "cat": lambda fs, name: fs.cat(name),
    "open for reading": lambda fs, name: fs.open(name),
    "open for writing": lambda fs, name: fs.open(name, "wb"),
    "open for appending": lambda fs, name: fs.open(name, "a"),
    "open for creating": lambda fs, name: fs.open(name, "x"),
    "info": lambda fs, name: fs.info(name),
    "exists": lambda fs, name: fs.exists(name),
    "isfile": lambda fs, name: fs.isfile(name),
    "isdir": lambda fs, name: fs.isdir(name),
    "ls": lambda fs, name: fs.ls(name),
    "find": lambda fs, name: fs.find(name),
    "glob": lambda fs, name: fs.glob(name),
    "walk": lambda fs, name: list(fs.walk(name)),
    "du": lambda fs, name: fs.du(name),
    "pipe_file": lambda fs, name: fs.pipe_file(name, b""),
    "touch": lambda fs, name: fs.touch(name),
    "mkdir": lambda fs, name: fs.mkdir(name),
    "makedirs": lambda fs, name: fs.makedirs(name, exist_ok=True),
    "rmdir": lambda fs, name: fs.rmdir(name),
    "rm": lambda fs, name: fs.rm(name),
    "rm recursive": lambda fs, name: fs.rm(name, recursive=True),
    "mv from": lambda fs, name: fs.mv(name, "new"),
    "mv to": lambda fs, name: fs.mv("a", name),
    "cp_file from": lambda fs, name: fs.cp_file(name, "new"),
    "cp_file to": lambda fs, name: fs.cp_file("a", name),
    "copy from": lambda fs, name: fs.copy(name, "new"),
    "copy to": lambda fs, name: fs.copy("a", name),
    "get": lambda fs, name: fs.get(name, "never"),
    "put": lambda fs, name: fs.put(__file__, name),
    "modified": lambda fs, name: fs.modified(name),
    "mapper": lambda fs, name: fs.get_mapper("")[name],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_by_every_call(tmp_path: Path, recorder: Recorder, name: str) -> None:
    with AgentMemoryService(tmp_path / "root", plugins=[recorder]) as service:
        fs, other = service.agent("me").filesystem(), service.agent("other")
        fs.pipe_file("a", b"1")
        other.write("x", "not yours")
        for count, act in enumerate(VERBS.values(), 1):
            with pytest.raises(InvalidPathError):
                act(fs, name)
            assert recorder.refused >= count
        assert (contents(fs), other.read("x"), service.agent_ids()) == ({"a": b"1"}, "not yours", ("me", "other"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


@pytest.mark.parametrize(
    "name", ["a/b", "/a/b", "a/b/", "./a//b", "agent-memory://a/b", "agent-memory:///a/b", Path("a/b")]
)
def test_the_spellings_of_a_name_are_one_name(scratch: FileSystem, name: Any) -> None:
    scratch.touch(name)
    assert scratch.find("") == ["a/b"]
    assert scratch.info(name)["name"] == "a/b"
    assert scratch.glob("./a/*") == scratch.glob("/a/b") == ["a/b"]


@pytest.mark.parametrize("name", [None, 1, b"a", ("a",)])
def test_what_is_no_text_is_no_name(scratch: FileSystem, name: Any) -> None:
    with pytest.raises(InvalidPathError):
        scratch.cat_file(name)


def test_a_subtree_s_filesystem_sees_what_is_below(memory: AgentMemory) -> None:
    memory.write("notes/a", "1")
    memory.write("b", "2")
    fs = memory.subtree("notes").filesystem()
    assert contents(fs) == {"a": b"1"}
    assert (fs.ls("/", detail=False), fs.info("a")["name"]) == (["a"], "a")
    with pytest.raises(FileNotFoundError):
        fs.cat("b")


def test_a_copy_to_the_local_disk_stays_in_its_directory(scratch: FileSystem, tmp_path: Path) -> None:
    scratch.pipe({"link/a": b"1", "b": b"2"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="leads out"):
        scratch.get("", str(tmp_path / "target"), recursive=True)
    assert list((tmp_path / "outside").iterdir()) == []
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["link"]


def test_a_failed_copy_leaves_the_local_file_alone(scratch: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "local").write_text("mine")
    with pytest.raises(FileNotFoundError):
        scratch.get_file("missing", str(tmp_path / "local"))
    assert (tmp_path / "local").read_text() == "mine"


def test_a_file_at_the_root_is_copied_into_a_local_directory(fs: FileSystem, tmp_path: Path) -> None:
    fs.pipe({"a": BIG, "d/empty": b""})
    fs.get("a", tmp_path)
    fs.get(["a", "d/empty"], f"{tmp_path}/new/")
    fs.get("", f"{tmp_path}/all", recursive=True)
    assert (
        (tmp_path / "a").read_bytes() == (tmp_path / "new/a").read_bytes() == (tmp_path / "all/a").read_bytes() == BIG
    )
    assert (tmp_path / "new/empty").read_bytes() == (tmp_path / "all/d/empty").read_bytes() == b""


# Globs

ODD = ["a[1].md", "x{}", "[ab]", "a[!1].md", "#.md"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_like_a_pattern_is_read_moved_and_deleted_as_it_stands(scratch: FileSystem, name: str) -> None:
    others = {"a1.md": b"1", "a2.md": b"2", "a": b"a", "b": b"b", "x": b"x"}
    scratch.pipe(others | {name: b"odd"})
    assert (scratch.cat(name), scratch.cat([name])) == (b"odd", {name: b"odd"})
    scratch.mv(name, "moved")
    scratch.mv("moved", name)
    scratch.cp_file(name, "copied")
    scratch.rm(["copied", name])
    assert contents(scratch) == others
    with pytest.raises(FileNotFoundError):
        scratch.rm(name, recursive=True)
    assert contents(scratch) == others


@pytest.mark.parametrize("pattern", ["*", "d/*", "?", "**", "d/**"])
def test_a_pattern_deletes_and_moves_nothing(fs: FileSystem, pattern: str) -> None:
    fs.pipe({"a": b"1", "d/b": b"2"})
    for act in (fs.rm, fs.cat, lambda name: fs.rm(name, recursive=True), lambda name: fs.mv(name, "new")):
        with pytest.raises(InvalidPathError):
            act(pattern)
    assert contents(fs) == {"a": b"1", "d/b": b"2"}


def test_a_pattern_copies_what_it_matches_inside_the_tree(fs: FileSystem, tmp_path: Path) -> None:
    fs.pipe({"a1.md": b"1", "a2.md": b"2", "b": b"3", "d/a3.md": b"4"})
    fs.copy("a*.md", "new/")
    fs.get("**/a[23].md", f"{tmp_path}/out/")
    assert fs.glob("new/*") == ["new/a1.md", "new/a2.md"]
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.md")) == ["a2.md", "a2.md", "a3.md"]
    assert fs.glob("*/../../*") == fs.glob("d*/../**") == []
    with pytest.raises(FileNotFoundError):
        fs.copy("z*", "new/")


# Looking


def test_files_and_directories_are_described(fs: FileSystem) -> None:
    before = time.time()
    fs.pipe({"d/e/f": b"123", "d/g": b"", "h": b"1"})
    assert fs.info("d/") == {"name": "d", "size": 0, "type": "directory"}
    info = fs.info("d/e/f")
    assert (info["name"], info["size"], info["type"]) == ("d/e/f", 3, "file")
    assert fs.ls("d", detail=False) == ["d/e", "d/g"]
    assert fs.ls("/h", detail=False) == ["h"]
    assert (fs.size("h"), fs.du(""), fs.du("d", total=False)) == (1, 4, {"d/e/f": 3, "d/g": 0})
    assert fs.find("", withdirs=True) == ["d", "d/e", "d/e/f", "d/g", "h"]
    assert fs.find("d", maxdepth=1, withdirs=True) == ["d", "d/e", "d/g"]
    assert (fs.find("d", maxdepth=1), fs.find("h"), fs.find("missing")) == (["d/g"], ["h"], [])
    assert list(fs.walk("")) == [("", ["d"], ["h"]), ("d", ["e"], ["g"]), ("d/e", [], ["f"])]
    assert fs.created("h") == fs.modified("h")
    assert abs((fs.modified("h") - datetime.fromtimestamp(before, UTC)).total_seconds()) < 3600
    for path, expected in {"": (True, False), "d": (True, False), "h": (False, True), "x": (False, False)}.items():
        assert (fs.isdir(path), fs.isfile(path), fs.exists(path)) == (*expected, any(expected))


def test_the_root_of_an_empty_tree_is_an_empty_directory(fs: FileSystem) -> None:
    assert (fs.ls(""), fs.find("/"), fs.isdir("/"), fs.du("")) == ([], [], True, 0)
    fs.rmdir("")
    fs.rm("", recursive=True)


def test_what_is_no_file_is_told_apart(fs: FileSystem) -> None:
    fs.pipe_file("d/f", b"1")
    readers: list[Callable[[str], object]] = [
        fs.cat_file,
        fs.open,
        fs.rm,
        fs.modified,
        lambda path: fs.cat_file(path, 1),
    ]
    for act in readers:
        for directory in ("d", "/"):
            with pytest.raises(IsADirectoryError):
                act(directory)
        with pytest.raises(FileNotFoundError):
            act("d/missing")
    for path, error in {"d": OSError, "d/f": NotADirectoryError, "x": FileNotFoundError}.items():
        with pytest.raises(error):
            fs.rmdir(path)
    for write in (fs.touch, lambda path: fs.open(path, "wb")):
        with pytest.raises(IsADirectoryError):
            write("")
    with pytest.raises(FileExistsError):
        fs.pipe_file("d", b"")


def test_listings_are_never_stale(memory: AgentMemory) -> None:
    fs, other = memory.filesystem(), memory.filesystem()
    for number in range(3):
        other.touch(f"d/{number}")
        assert fs.ls("d", detail=False) == [f"d/{n}" for n in range(number + 1)]
    other.rm("d", recursive=True)
    assert not fs.exists("d")


def test_directories_are_not_made_but_their_names_are_judged(fs: FileSystem) -> None:
    fs.mkdir("d")
    fs.makedirs("d/e")
    assert not fs.exists("d")
    fs.touch("d/f")
    for make in (fs.mkdir, fs.makedirs):
        for taken in ("d", "d/f", ""):
            with pytest.raises(FileExistsError):
                make(taken)
    fs.makedirs("d", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("d/f", exist_ok=True)


# Reading


def test_a_range_is_a_slice(fs: FileSystem) -> None:
    fs.pipe({"a": b"12345", "empty": b""})
    for start, end in itertools.product([None, 0, 2, 5, 9, -2, -9], [None, 0, 3, 5, 9, -1, -9]):
        assert fs.cat_file("a", start, end) == b"12345"[start:end], (start, end)
    assert [fs.cat_file("empty", *bounds) for bounds in ((0, 1), (1, 2), (-1, None), (None, -1))] == [b""] * 4


@pytest.mark.parametrize("cache_type", ["all", "background", "blockcache", "bytes", "first", "none", "readahead"])
def test_each_of_fsspec_s_caches_serves(scratch: FileSystem, cache_type: str) -> None:
    scratch.pipe_file("big", BIG)
    with scratch.open("big", block_size=50_000, cache_type=cache_type) as file:
        for start in (0, 10, 250_000, 590_000, 300_000):
            file.seek(start)
            assert file.read(20_000) == BIG[start : start + 20_000]


def test_a_large_file_is_read_in_ranges(fs: FileSystem, recorder: Recorder) -> None:
    fs.pipe_file("big", BIG)
    recorder.kinds.clear()
    with fs.open("big", "rb", block_size=50_000) as file:
        parts = list(iter(lambda: file.read(30_000), b""))
        file.seek(-10, 2)
        assert (file.read(), file.tell(), file.size) == (BIG[-10:], len(BIG), len(BIG))
        file.seek(300_000)
        assert file.readline() == BIG[300_000 : BIG.index(b"\n", 300_000) + 1]
    assert b"".join(parts) == BIG
    assert set(recorder.kinds) == {"read"}
    assert 5 < len(recorder.kinds) < 15
    assert fs.tail("big", 20) == BIG[-20:]
    assert fs.read_block("big", 262_100, 100) == BIG[262_100:262_200]


def test_a_read_of_everything_has_no_limit_and_a_read_in_blocks_bounded_memory(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory._tree.backend.max_bytes = 9_000_000
        for _ in range(4):
            memory.append_bytes("big", bytes(8_000_000))
        fs = memory.filesystem()
        with fs.open("big", block_size=1_000_000) as file:
            tracemalloc.start()
            try:
                while file.read(500_000):
                    pass
                assert tracemalloc.get_traced_memory()[1] < 6_000_000
            finally:
                tracemalloc.stop()
        assert len(fs.open("big").read()) == 32_000_000


CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "as long": lambda memory: memory.write_bytes("big", BIG[::-1]),
    "one byte": lambda memory: memory.write_bytes("big", BIG[:300_000] + bytes([BIG[300_000] ^ 1]) + BIG[300_001:]),
    "longer": lambda memory: memory.write_bytes("big", BIG[:300_000] + b"inserted" + BIG[300_000:]),
    "shorter": lambda memory: memory.write_bytes("big", BIG[:-1]),
    "empty": lambda memory: memory.write_bytes("big", b""),
    "gone": lambda memory: memory.delete("big"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_rewritten_while_it_is_read_is_a_conflict(memory: AgentMemory, change: str) -> None:
    memory.write_bytes("big", BIG)
    with memory.filesystem().open("big", block_size=50_000) as file:
        assert file.read(10) == BIG[:10]
        CHANGES[change](memory)
        with pytest.raises(ConflictError, match="while it was read"):
            file.read()


def test_a_file_appended_to_while_it_is_read_is_read_as_it_was(memory: AgentMemory) -> None:
    memory.write_bytes("big", BIG)
    with memory.filesystem().open("big", block_size=50_000) as file:
        parts = [file.read(10)]
        while part := file.read(100_000):
            memory.append("big", "more")
            parts.append(part)
    assert b"".join(parts) == BIG


# Writing


class Failed(Exception):
    pass


def half_written(fs: FileSystem, path: str, mode: str, **options: Any) -> None:
    with fs.open(path, mode, **options) as file:
        file.write(b"half" if "b" in mode else "half")
        raise Failed


@pytest.mark.parametrize("mode", ["wb", "ab", "xb", "w", "a", "x"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_file_left_by_an_exception_is_not_written(scratch: FileSystem, mode: str, compression: str | None) -> None:
    path = "new" if "x" in mode else "a"
    scratch.pipe_file("a", b"before")
    with pytest.raises(Failed):
        half_written(scratch, path, mode, compression=compression)
    assert contents(scratch) == {"a": b"before"}


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_forgotten_file_is_not_written(scratch: FileSystem, mode: str) -> None:
    def forgotten() -> None:
        scratch.open("a", mode).write(b"half" if "b" in mode else "half")

    with pytest.warns(ResourceWarning, match="'a' was never closed: nothing was written"):
        forgotten()
    assert contents(scratch) == {}


def test_a_file_is_seen_when_it_is_closed_and_saved_once(fs: FileSystem, recorder: Recorder) -> None:
    file = fs.open("a", "wb")
    file.write(b"12345")
    file.seek(1)
    file.write(bytearray(b"x"))
    file.truncate(4)
    file.flush()
    assert (file.tell(), fs.exists("a")) == (2, False)
    file.close()
    file.close()
    file.discard()
    assert (contents(fs), recorder.kinds.count("write")) == ({"a": b"1x34"}, 1)
    with pytest.raises(ValueError, match="closed"):
        file.write(b"")


def test_a_save_that_fails_is_raised_by_close(scratch: FileSystem) -> None:
    file = scratch.open("a/b", "wb")
    scratch.touch("a")
    with pytest.raises(FileExistsError):
        file.close()
    file.close()
    assert contents(scratch) == {"a": b""}


def test_bytes_of_any_kind_are_appended(fs: FileSystem) -> None:
    for mode, data in (("ab", b"\xff\x00"), ("a", "é\n"), ("ab", b"")):
        with fs.open("log", mode) as file:
            file.write(data)
    assert fs.cat("log") == b"\xff\x00\xc3\xa9\n"
    with fs.open("log", "ab") as file, pytest.raises(OSError, match="cannot seek"):
        file.seek(0)


def test_of_two_creators_one_wins(fs: FileSystem) -> None:
    first, second = fs.open("a", "xb"), fs.open("a", "xb")
    first.write(b"first")
    second.write(b"second")
    second.close()
    with pytest.raises(FileExistsError):
        first.close()
    with pytest.raises(FileExistsError):
        fs.open("a", "x")
    assert contents(fs) == {"a": b"second"}


def test_text_is_written_as_open_does(scratch: FileSystem) -> None:
    with scratch.open("a", "wt", encoding="utf-16-le", newline="\r\n") as file:
        file.write("é\n")
    assert scratch.cat("a") == "é\r\n".encode("utf-16-le")
    assert scratch.read_text("a", encoding="utf-16-le") == "é\n"
    with pytest.raises(LookupError):
        scratch.open("b", "w", encoding="none such")
    with pytest.raises(InvalidContentError):
        scratch.pipe_file("a", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip"])
def test_a_compressed_file_is_written_whole(scratch: FileSystem, suffix: str) -> None:
    for mode in ("b", "t"):
        with scratch.open(f"a.{suffix}", f"w{mode}", compression="infer") as file:
            file.write(b"1234" * 1000 if mode == "b" else "1234" * 1000)
        with scratch.open(f"a.{suffix}", f"r{mode}", compression="infer") as file:
            assert file.read() == (b"1234" * 1000 if mode == "b" else "1234" * 1000)
    assert scratch.cat(f"a.{suffix}") != b"1234" * 1000


@pytest.mark.parametrize("mode", ["r+b", "w+", "rw", ""])
def test_other_modes_are_refused(scratch: FileSystem, mode: str) -> None:
    with pytest.raises(io.UnsupportedOperation):
        scratch.open("a", mode)


def test_touch_sets_no_time(fs: FileSystem) -> None:
    fs.pipe_file("a", b"1")
    with pytest.raises(NotImplementedError):
        fs.touch("a", truncate=False)
    assert fs.cat("a") == b"1"
    fs.touch("a")
    assert fs.cat("a") == b""


def test_a_transaction_saves_all_at_its_end_or_nothing(fs: FileSystem) -> None:
    fs.pipe_file("a", b"before")

    def failing() -> None:
        with fs.transaction:
            fs.pipe_file("a", b"1")
            written(fs, "b", "wb")
            half_written(fs, "c", "w")

    with pytest.raises(Failed):
        failing()
    assert contents(fs) == {"a": b"before"}
    with fs.transaction:
        fs.pipe_file("a", b"1")
        written(fs, "b", "wb")
        with pytest.raises(Failed):
            half_written(fs, "c", "w")
        assert contents(fs) == {"a": b"before"}
    assert contents(fs) == {"a": b"1", "b": b"xyyyyyyyyyyz"}
    fs.pipe_file("a", b"2")
    assert fs.cat("a") == b"2"


def test_a_file_still_open_at_the_end_of_its_transaction_is_an_error(scratch: FileSystem) -> None:
    files = []
    with pytest.raises(ValueError, match="still open"), scratch.transaction:
        files.append(scratch.open("a", "wb"))
    assert files[0].closed
    assert contents(scratch) == {}


# Moving, copying and deleting


def test_a_move_replaces_a_file_and_goes_into_a_directory(fs: FileSystem) -> None:
    fs.pipe({"a": b"a", "b": b"b", "d/x": b"x"})
    fs.mv("a", "b")
    fs.mv("b", "d")
    fs.mv("d/b", "e/")
    fs.mv("d", "e")
    fs.mv(["e/b", "e/d/x"], "/")
    fs.mv("b", "b")
    assert contents(fs) == {"b": b"a", "x": b"x"}
    with pytest.raises(FileNotFoundError):
        fs.mv("missing", "c")
    with pytest.raises(FileNotFoundError):
        fs.mv("missing", "x")
    with pytest.raises(NotImplementedError):
        fs.mv("b", "c", maxdepth=1)
    assert contents(fs) == {"b": b"a", "x": b"x"}


def test_a_move_of_a_directory_over_a_file_loses_neither(fs: FileSystem) -> None:
    fs.pipe({"d/x": b"x", "b": b"b"})
    with pytest.raises(FileExistsError):
        fs.mv("d", "b", recursive=True)
    assert contents(fs) == {"d/x": b"x", "b": b"b"}


def test_a_copy_replaces_a_file_and_goes_into_a_directory(fs: FileSystem) -> None:
    fs.pipe({"a": b"a", "b": b"b", "d/x": b"x"})
    fs.copy("a", "b")
    fs.copy("a", "d")
    fs.copy("d", "e", recursive=True)
    fs.copy("d", "e", recursive=True)
    fs.copy("a", "a")
    assert contents(fs) == dict.fromkeys(["a", "b", "d/a", "e/a", "e/d/a"], b"a") | dict.fromkeys(
        ["d/x", "e/x", "e/d/x"], b"x"
    )
    with pytest.raises(FileNotFoundError):
        fs.copy("missing", "c")


def test_directories_are_deleted_only_if_asked_to(fs: FileSystem) -> None:
    fs.pipe({"a": b"", "d/x": b"", "d/e/y": b"", "f/z": b""})
    with pytest.raises(IsADirectoryError):
        fs.rm("d")
    fs.rm("d", recursive=True, maxdepth=1)
    assert fs.find("") == ["a", "d/e/y", "f/z"]
    fs.rm(["d/e/y", "d", "a", "a"], recursive=True)
    assert fs.find("") == ["f/z"]
    for missing in ("d", "f/x", "z"):
        with pytest.raises(FileNotFoundError):
            fs.rm(missing, recursive=True)


# Identity


def test_two_agents_never_share_a_filesystem(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path / "one") as one, AgentMemoryService(tmp_path / "two") as two:
        memories = [one.agent("a"), one.agent("b"), two.agent("a"), one.agent("a")]
        systems = [memory.filesystem() for memory in memories]
        assert len({id(fs) for fs in systems}) == len(set(systems)) == len({hash(fs) for fs in systems}) == 4
        for number, fs in enumerate(systems[:3]):
            fs.pipe_file("shared/a", str(number).encode())
        below = [DirFileSystem("shared", fs) for fs in systems[:3]]
        assert [each.cat("a") for each in below] == [b"0", b"1", b"2"]
        files = [fs.open("shared/a") for fs in systems[:3]]
        assert len(set(files)) == 3
        assert files[0] != files[1]


def test_a_filesystem_tells_nobody_where_it_is_or_how_it_got_there(ministack: S3Server, tmp_path: Path) -> None:
    for url, options in ((str(tmp_path / "secret"), {}), (ministack.new_url(), ministack.options)):
        with AgentMemory.open(url, storage_options=options) as memory:
            fs = memory.filesystem()
            with fs.open("a", "wb") as file:
                shown = f"{fs} {fs!r} {fs.storage_options} {fs.storage_args} {file} {fs.unstrip_protocol('a')}"
            for secret in (url, str(tmp_path), *map(str, options.values())):
                assert secret not in shown


@pytest.mark.parametrize("do", [pickle.dumps, copy.copy, copy.deepcopy, lambda x: x.to_json(), lambda x: x.to_dict()])
def test_a_filesystem_cannot_be_sent_away(scratch: FileSystem, do: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        do(scratch)


def test_an_open_file_cannot_be_pickled(scratch: FileSystem) -> None:
    with scratch.open("a", "wb") as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)
    with scratch.open("a") as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)


@pytest.mark.asyncio
async def test_an_async_memory_has_the_same_filesystem(tmp_path: Path) -> None:
    memory = AsyncAgentMemory.open(tmp_path)
    await memory.write("a", "1")
    assert await asyncio.to_thread(memory.filesystem().cat, "a") == b"1"
    await memory.append_bytes("a", b"\xff", separator=b"\n", must_exist=True)
    assert await memory.read_bytes("a") == b"1\n\xff"
    await memory.aclose()


# What speaks fsspec


def test_a_mapping_of_files(fs: FileSystem) -> None:
    mapping = fs.get_mapper("maps", create=True)
    mapping["a/b"] = b"1"
    mapping.setitems({"c": b"2", "d[1]": b"3"})
    assert dict(mapping) == {"a/b": b"1", "c": b"2", "d[1]": b"3"}
    assert mapping.getitems(["a/b", "d[1]", "x"], on_error="omit") == {"a/b": b"1", "d[1]": b"3"}
    assert ("c" in mapping, "x" in mapping, "a" in mapping, len(mapping)) == (True, False, False, 3)
    del mapping["d[1]"]
    for missing in ("x", "a", "d[1]"):
        with pytest.raises(KeyError):
            mapping[missing]
    mapping.clear()
    assert not fs.exists("maps")


def test_a_directory_filesystem(fs: FileSystem) -> None:
    below = DirFileSystem("d", fs)
    with below.open("a/b", "w") as file:
        file.write("1")
    below.cp("a/b", "c")
    assert (below.find(""), below.isdir("a"), fs.find("")) == (["a/b", "c"], True, ["d/a/b", "d/c"])
    with pytest.raises(InvalidPathError):
        below.cat("../x")


def test_a_zip_file(fs: FileSystem) -> None:
    with fs.open("a.zip", "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big", BIG)
        archive.writestr("small", b"1")
    with fs.open("a.zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.read("big") == BIG

    def failing() -> None:
        with fs.open("b.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("small", b"1")
            raise Failed

    with pytest.raises(Failed):
        failing()
    assert fs.ls("", detail=False) == ["a.zip"]


@pytest.fixture
def plain(tmp_path: Path) -> FileSystem:
    return AgentMemory.open(tmp_path / "plain").filesystem()


def test_a_file_is_not_copied_onto_a_local_directory(plain: FileSystem, tmp_path: Path) -> None:
    plain.pipe_file("d/a.md", b"x")
    (tmp_path / "here" / "d" / "a.md").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        plain.get("d", f"{tmp_path}/here/", recursive=True)
    with pytest.raises(IsADirectoryError):
        plain.get_file("d/a.md", str(tmp_path / "here"))


def test_a_transaction_within_another_is_refused_and_saves_nothing(plain: FileSystem) -> None:
    def nested() -> None:
        with plain.transaction:
            plain.pipe_file("outer", b"x")
            with plain.transaction:
                plain.pipe_file("inner", b"x")

    with pytest.raises(ValueError, match="do not nest"):
        nested()
    assert plain.find("") == []


def test_text_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    program = """
import sys
from agent_memory import AgentMemory
memory = AgentMemory.open(sys.argv[1])
fs = memory.filesystem()
with fs.open("a.md", "w") as file:
    file.write("\\u00e9")
with fs.open("a.md", "r") as file:
    assert file.read() == "\\u00e9" == memory.read("a.md")
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "root")], check=True, env=environment)


def test_a_save_that_failed_may_be_tried_again(plain: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    file = plain.open("a.md", "wb", autocommit=False)
    file.write(b"kept")
    file.close()
    with monkeypatch.context() as patch:
        patch.setattr(file, "_save", _fail)
        with pytest.raises(OSError, match="not now"):
            file.commit()
    file.commit()
    assert plain.cat("a.md") == b"kept"


def _fail(_: bytes) -> None:
    raise OSError("not now")


def test_many_files_and_the_directory_above_them_are_removed_once(plain: FileSystem) -> None:
    for number in range(50):
        plain.pipe_file(f"d/{number}", b"")
    plain.rm(["d", *(f"d/{number}" for number in range(50))], recursive=True)
    assert plain.find("") == []
