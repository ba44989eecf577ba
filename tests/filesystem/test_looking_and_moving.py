"""Files and directories are described, moved, copied and deleted as fsspec documents."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from agent_memory import (
    AgentMemory,
)
from agent_memory.filesystem import filesystem
from tests.filesystem.kit import FileSystem, contents


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


def test_operations_on_a_path_that_is_no_file_raise_the_documented_errors(fs: FileSystem) -> None:
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


def test_listings_are_always_current(memory: AgentMemory) -> None:
    fs, other = filesystem(memory), filesystem(memory)
    for number in range(3):
        other.touch(f"d/{number}")
        assert fs.ls("d", detail=False) == [f"d/{n}" for n in range(number + 1)]
    other.rm("d", recursive=True)
    assert not fs.exists("d")


def test_directories_are_not_created_but_their_names_are_checked(fs: FileSystem) -> None:
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


def test_a_move_replaces_a_file_and_moves_into_a_directory(fs: FileSystem) -> None:
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


def test_a_move_of_a_directory_onto_a_file_loses_neither(fs: FileSystem) -> None:
    fs.pipe({"d/x": b"x", "b": b"b"})
    with pytest.raises(FileExistsError):
        fs.mv("d", "b", recursive=True)
    assert contents(fs) == {"d/x": b"x", "b": b"b"}


def test_a_copy_replaces_a_file_and_copies_into_a_directory(fs: FileSystem) -> None:
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


def test_directories_are_deleted_only_recursively(fs: FileSystem) -> None:
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
