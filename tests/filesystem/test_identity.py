"""Filesystems are never shared and never pickled, and libraries that use fsspec work with them."""

from __future__ import annotations

import asyncio
import copy
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem

from agent_memory import (
    PRESENT,
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    InvalidPathError,
)
from agent_memory.filesystem import filesystem
from tests.filesystem.kit import BIG, Failed, FileSystem
from tests.support.servers import S3Server


def test_two_agents_never_share_a_filesystem(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path / "one") as one, AgentMemoryService(tmp_path / "two") as two:
        memories = [one.agent("a"), one.agent("b"), two.agent("a"), one.agent("a")]
        systems = [filesystem(memory) for memory in memories]
        assert len({id(fs) for fs in systems}) == len(set(systems)) == len({hash(fs) for fs in systems}) == 4
        for number, fs in enumerate(systems[:3]):
            fs.pipe_file("shared/a", str(number).encode())
        below = [DirFileSystem("shared", fs) for fs in systems[:3]]
        assert [each.cat("a") for each in below] == [b"0", b"1", b"2"]
        files = [fs.open("shared/a") for fs in systems[:3]]
        assert len(set(files)) == 3
        assert files[0] != files[1]


def test_a_filesystem_reveals_neither_its_root_nor_its_credentials(ministack: S3Server, tmp_path: Path) -> None:
    for url, options in ((str(tmp_path / "secret"), {}), (ministack.new_url(), ministack.options)):
        with AgentMemory.open(url, storage_options=options) as memory:
            fs = filesystem(memory)
            with fs.open("a", "wb") as file:
                shown = f"{fs} {fs!r} {fs.storage_options} {fs.storage_args} {file} {fs.unstrip_protocol('a')}"
            for secret in (url, str(tmp_path), *map(str, options.values())):
                assert secret not in shown


@pytest.mark.parametrize("do", [pickle.dumps, copy.copy, copy.deepcopy, lambda x: x.to_json(), lambda x: x.to_dict()])
def test_a_filesystem_cannot_be_pickled(scratch: FileSystem, do: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        do(scratch)


def test_an_open_file_cannot_be_pickled(scratch: FileSystem) -> None:
    with scratch.open("a", "wb") as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)
    with scratch.open("a") as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)


@pytest.mark.asyncio
async def test_the_filesystem_of_an_async_memory_is_the_same(tmp_path: Path) -> None:
    memory = AsyncAgentMemory.open(tmp_path)
    await memory.write("a", "1")
    assert await asyncio.to_thread(filesystem(memory).cat, "a") == b"1"
    await memory.append("a", b"\xff", separator=b"\n", when=PRESENT)
    assert await memory.read_bytes("a") == b"1\n\xff"
    await memory.aclose()


def test_fsspecs_mapping_of_files_works(fs: FileSystem) -> None:
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


def test_fsspecs_directory_filesystem_works(fs: FileSystem) -> None:
    below = DirFileSystem("d", fs)
    with below.open("a/b", "w") as file:
        file.write("1")
    below.cp("a/b", "c")
    assert (below.find(""), below.isdir("a"), fs.find("")) == (["a/b", "c"], True, ["d/a/b", "d/c"])
    with pytest.raises(InvalidPathError):
        below.cat("../x")


def test_a_zip_file_can_be_opened(fs: FileSystem) -> None:
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
