"""A memory on third-party filesystems: operations that they do not promise are refused, and the others work.

Each test runs in a separate process, because the clients close their connections only at the end of a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, WriteError
from tests.other_filesystems.places import KINDS, Place

LONG = ("Azure", "SMB")
WRITABLE = [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in KINDS if name != "zip"]
_PLAINLY = """
import ast, sys
from agent_memory import AgentMemory, UnsupportedOperationError

url, options = sys.argv[1], ast.literal_eval(sys.argv[2])
with AgentMemory.open(url, storage_options=options) as memory:
    memory.write("notes/a.md", "first")
    memory.write("notes/a.md", "second")
    memory.write("notes/deep/b.md", "")
    try:
        memory.append("notes/a.md", "x")
    except UnsupportedOperationError as error:
        assert "allow_single_writer" in str(error)
    else:
        raise AssertionError("what nobody promises was done")
    with AgentMemory.open(url, storage_options=options) as another:
        assert another.read("notes/a.md") == "second"
        assert [entry.path for entry in another.list()] == ["notes/a.md", "notes/deep/b.md"]
        another.write("notes/c.md", "of another")
    assert [entry.size for entry in memory.list()] == [6, 10, 0]
    memory.delete("notes/deep/b.md")
    memory.write("notes/deep", "a file now")
    memory.delete_tree("notes")
    assert memory.list() == ()
"""
_ALONE = """
import ast, sys
from agent_memory import AgentMemory

options = {**ast.literal_eval(sys.argv[2]), "allow_single_writer": True}
with AgentMemory.open(sys.argv[1], storage_options=options) as memory:
    memory.create("a.md", "one\\n")
    memory.append("a.md", "two\\n")
    memory.edit("a.md", str.upper)
    memory.rename("a.md", "dir/b.md")
    memory.copy("dir", "copy")
    assert memory.read("copy/b.md") == "ONE\\nTWO\\n"
    assert [entry.path for entry in memory.list()] == ["copy/b.md", "dir/b.md"]
"""


@pytest.fixture(params=WRITABLE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "SMB" and os.geteuid() != 0:
        pytest.skip("samba starts for root alone")
    with KINDS[request.param].open(tmp_path) as place:
        yield place


@pytest.mark.parametrize("code", [_PLAINLY, _ALONE], ids=["plainly", "a single writer"])
def test_files_are_written_read_listed_and_deleted(place: Place, code: str) -> None:
    command = [sys.executable, "-c", code, place.url, repr(dict(place.options))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_archive_can_be_read_but_not_written(tmp_path: Path) -> None:
    with KINDS["zip"].open(tmp_path) as place, AgentMemory.open(place.url, storage_options=place.options) as memory:
        assert [entry.path for entry in memory.list()] == ["notes/a.md"]
        assert memory.read("notes/a.md") == "archived"
        with pytest.raises(WriteError):
            memory.write("notes/a.md", "x")
