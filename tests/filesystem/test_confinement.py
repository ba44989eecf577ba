"""No name and no pattern reaches outside the view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    InvalidPathError,
)
from agent_memory.filesystem import filesystem
from tests.filesystem.kit import BIG, FileSystem, Recorder, contents

HOSTILE = [
    "../x", "a/../../x", "a/..", "..", "//etc/passwd", "///x", "a\\b", "..\\x", "C:\\x", "~/x", "%2e%2e/x", "file:///etc/passwd",
    "s3://bucket/x", "local::x", "agentmemory::x", "agentmemory:////x", "agentmemory://agentmemory://x", "memory://x",
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
def test_every_call_refuses_a_hostile_name(tmp_path: Path, recorder: Recorder, name: str) -> None:
    with AgentMemoryService(tmp_path / "root", plugins=[recorder]) as service:
        fs, other = filesystem(service.agent("me")), service.agent("other")
        fs.pipe_file("a", b"1")
        other.write("x", "not yours")
        for count, act in enumerate(VERBS.values(), 1):
            with pytest.raises(InvalidPathError):
                act(fs, name)
            assert recorder.refused >= count
        assert (contents(fs), other.read("x"), service.agent_ids()) == ({"a": b"1"}, "not yours", ("me", "other"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


@pytest.mark.parametrize(
    "name", ["a/b", "/a/b", "a/b/", "./a//b", "agentmemory://a/b", "agentmemory:///a/b", Path("a/b")]
)
def test_all_spellings_of_a_name_are_one_file(scratch: FileSystem, name: Any) -> None:
    scratch.touch(name)
    assert scratch.find("") == ["a/b"]
    assert scratch.info(name)["name"] == "a/b"
    assert scratch.glob("./a/*") == scratch.glob("/a/b") == ["a/b"]


@pytest.mark.parametrize("name", [None, 1, b"a", ("a",)])
def test_a_name_that_is_no_text_is_refused(scratch: FileSystem, name: Any) -> None:
    with pytest.raises(InvalidPathError):
        scratch.cat_file(name)


def test_the_filesystem_of_a_subtree_sees_only_the_subtree(memory: AgentMemory) -> None:
    memory.write("notes/a", "1")
    memory.write("b", "2")
    fs = filesystem(memory.subtree("notes"))
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


def test_a_failed_copy_does_not_change_the_local_file(scratch: FileSystem, tmp_path: Path) -> None:
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


ODD = ["a[1].md", "x{}", "[ab]", "a[!1].md", "#.md"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_looks_like_a_pattern_is_read_moved_and_deleted_literally(scratch: FileSystem, name: str) -> None:
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
def test_a_pattern_neither_deletes_nor_moves_a_file(fs: FileSystem, pattern: str) -> None:
    fs.pipe({"a": b"1", "d/b": b"2"})
    for act in (fs.rm, fs.cat, lambda name: fs.rm(name, recursive=True), lambda name: fs.mv(name, "new")):
        with pytest.raises(InvalidPathError):
            act(pattern)
    assert contents(fs) == {"a": b"1", "d/b": b"2"}


def test_a_pattern_copies_only_matching_files_of_the_tree(fs: FileSystem, tmp_path: Path) -> None:
    fs.pipe({"a1.md": b"1", "a2.md": b"2", "b": b"3", "d/a3.md": b"4"})
    fs.copy("a*.md", "new/")
    fs.get("**/a[23].md", f"{tmp_path}/out/")
    assert fs.glob("new/*") == ["new/a1.md", "new/a2.md"]
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.md")) == ["a2.md", "a2.md", "a3.md"]
    assert fs.glob("*/../../*") == fs.glob("d*/../**") == []
    with pytest.raises(FileNotFoundError):
        fs.copy("z*", "new/")
