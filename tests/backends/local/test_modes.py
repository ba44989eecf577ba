"""File modes under any umask, planted modes, and mounts within a tree."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryError
from tests.backends.local.planted import inside, watched


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    with watched(60):
        yield


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize("durability", ["full", "process"])
def test_new_files_and_directories_are_private_under_any_umask(root: Path, durability: str) -> None:
    memory = AgentMemory.open(f"{root.as_uri()}?durability={durability}")
    memory.write("a/b/written.md", "x")
    memory.write("a/b/written.md", "again")
    memory.write("bytes.md", b"x")
    memory.create("c/created.md", "x")
    memory.create("c/bytes.md", b"x")
    memory.append("d/e/appended.md", "x")
    memory.append("d/e/appended.md", "x")
    memory.edit("d/e/appended.md", str.upper)
    memory.copy("c/created.md", "f/copied.md")
    memory.copy("d", "g/h")
    memory.rename("f/copied.md", "i/renamed.md")
    memory.rename("g/h", "j/k")
    kinds = {(stat.S_ISDIR(mode), stat.S_IMODE(mode)) for mode, _ in inside(root).values()}
    assert kinds == {(True, 0o700), (False, 0o600)}
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1666, 0o777])
def test_a_planted_mode_gets_no_bit_by_an_append_and_is_not_copied(memory: AgentMemory, root: Path, mode: int) -> None:
    planted = root / "kept.md"
    planted.chmod(mode)
    memory.append("kept.md", "+")  # in place: the mode stays
    assert stat.S_IMODE(planted.stat().st_mode) & ~mode == 0
    memory.copy("kept.md", "copy.md")
    assert stat.S_IMODE((root / "copy.md").stat().st_mode) == 0o600


@pytest.fixture
def mounted(tmp_path: Path, root: Path, memory: AgentMemory) -> Iterator[Path]:  # noqa: ARG001 - creates the root
    """A directory outside the root, mounted by the operator as ``mnt`` in the tree."""
    elsewhere, point = tmp_path / "elsewhere", root / "mnt"
    elsewhere.mkdir()
    (elsewhere / "there.md").write_text("there")
    point.mkdir()
    command = shutil.which("mount") or pytest.skip("there is no mount here")
    bound = subprocess.run([command, "--bind", str(elsewhere), str(point)], capture_output=True, text=True)
    if bound.returncode != 0:
        pytest.skip("a bind mount takes root, and leave to mount")
    try:
        yield elsewhere
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def test_a_mount_of_the_operator_is_followed(memory: AgentMemory, mounted: Path) -> None:
    assert memory.read("mnt/there.md") == "there"
    assert [str(entry) for entry in memory.list()] == ["kept.md", "mnt/there.md"]
    memory.append("mnt/there.md", "+")
    memory.create("mnt/new/new.md", "new")
    assert inside(mounted).keys() == {"there.md", "new", "new/new.md"}
    assert (mounted / "there.md").read_text() == "there+"
    memory.copy("mnt/there.md", "copy.md")
    memory.delete("mnt/new/new.md")
    memory.delete("mnt/there.md")  # the mount point itself cannot be removed
    assert list(mounted.iterdir()) == []
    assert memory.read("copy.md") == "there+"


RENAMES = [("mnt/there.md", "here.md"), ("kept.md", "mnt/kept.md"), ("mnt", "moved"), ("dir", "mnt/dir")]


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize(("source", "target"), RENAMES)
def test_a_rename_across_a_mount_succeeds_or_is_refused_and_loses_no_file(
    memory: AgentMemory, source: str, target: str
) -> None:
    memory.write("dir/a.md", "a")
    before = sorted(memory.read(str(entry)) for entry in memory.list())
    with suppress(AgentMemoryError):
        memory.rename(source, target)
    assert sorted(memory.read(str(entry)) for entry in memory.list()) == before


def test_deleting_a_tree_also_deletes_the_listed_files_of_a_mount(memory: AgentMemory, mounted: Path) -> None:
    (mounted / "a:b.md").write_text("theirs")
    result = memory.delete_tree("")
    assert (result.files, result.skipped) == (2, 1)
    assert [path.name for path in mounted.iterdir()] == ["a:b.md"]
