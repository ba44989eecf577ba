"""A root that is lost is opened again only if the same store is at its path: with real mounts, as root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, FileOperationError, ReadError, VersionLimits, WriteError
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.key import Key
from agent_memory_local import LocalBackend
from tests.support.descriptors import open_files

GONE = "open the store again"
SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN"""


def memory_with_id(root: Path) -> AgentMemory:
    """A memory on a store with a record."""
    memory = AgentMemory.open(root, versions=VersionLimits())
    memory.write("kept.md", "kept")
    return memory


def memory_without_id(root: Path) -> AgentMemory:
    memory = AgentMemory.open(root)
    memory.write("kept.md", "kept")
    return memory


CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda memory: memory.write("new.md", "x"),
    "replace": lambda memory: memory.write("kept.md", "x"),
    "append": lambda memory: memory.append("kept.md", "x"),
    "delete": lambda memory: memory.delete("kept.md"),
    "rename": lambda memory: memory.rename("kept.md", "n.md"),
    "delete a tree": lambda memory: memory.delete_tree(""),
    "forget": lambda memory: memory.forget("kept.md"),
    "write in parts": lambda memory: memory.write_blocks("large.md", [b"x"] * 3, size=3),
}


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("open_it", [memory_with_id, memory_without_id])
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_goes_to_another_directory_in_the_place_of_the_root(
    tmp_path: Path, change: str, open_it: Callable[[Path], AgentMemory]
) -> None:
    root = tmp_path / "root"
    memory = open_it(root)
    root.rename(tmp_path / "old")
    root.mkdir()
    before = content(tmp_path)
    with pytest.raises(FileOperationError, match=GONE) as refused:
        CHANGES[change](memory)
    assert str(tmp_path) not in str(refused.value)
    assert content(tmp_path) == before
    assert [path.name for path in root.iterdir()] == []


def test_a_copy_of_the_store_in_the_place_of_the_root_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_with_id(root)
    root.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", root)
    memory.write("new.md", "x")
    assert (root / "new.md").read_text() == "x"
    assert not (tmp_path / "old" / "new.md").exists()
    assert memory.read("kept.md") == "kept"


def test_a_copy_of_a_store_without_an_id_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_without_id(root)
    root.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", root)
    with pytest.raises(WriteError, match=GONE):
        memory.write("new.md", "x")
    AgentMemory.open(root).write("new.md", "x")


def test_a_store_that_came_back_after_its_deletion_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_with_id(root)
    shutil.copytree(root, tmp_path / "backup")
    shutil.rmtree(root)
    for call in (lambda: memory.read("kept.md"), memory.list, lambda: memory.write("new.md", "x")):
        with pytest.raises(FileOperationError, match=GONE):
            call()
    assert not root.exists()
    shutil.copytree(tmp_path / "backup", root)
    assert memory.read("kept.md") == "kept"
    memory.write("new.md", "x")
    assert (root / "new.md").read_text() == "x"


def test_the_store_of_another_id_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_with_id(root)
    memory_with_id(tmp_path / "other")
    shutil.rmtree(root)
    (tmp_path / "other").rename(root)
    for call in (lambda: memory.read("kept.md"), lambda: memory.write("kept.md", "x")):
        with pytest.raises(FileOperationError, match=GONE):
            call()
    assert (root / "kept.md").read_text() == "kept"


def test_the_id_is_not_read_in_a_directory_that_has_the_number_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_without_id(root)
    memory_with_id(tmp_path / "other").close()
    backend: Any = memory._tree.backend
    number = backend._walker._root.now.number
    theirs = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(theirs, number)
    try:
        memory.append("kept.md", "x")
        root.rename(tmp_path / "old")
        (tmp_path / "other").rename(root)
        with pytest.raises(WriteError, match=GONE):
            memory.write("new.md", "x")
    finally:
        os.close(theirs)
        os.close(number)


def test_operations_continue_in_a_moved_root_until_another_directory_has_its_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_without_id(root)
    root.rename(tmp_path / "old")
    memory.write("new.md", "x")
    assert (tmp_path / "old" / "new.md").read_text() == "x"
    root.mkdir()
    assert memory.read("new.md") == "x"
    with pytest.raises(WriteError, match=GONE):
        memory.write("more.md", "x")


def test_after_it_is_closed_a_store_with_an_id_is_still_recognised(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory = memory_with_id(root)
    memory._tree.backend.close()  # type: ignore[union-attr]  # a blocking backend
    root.rename(tmp_path / "old")
    root.mkdir()
    with pytest.raises(FileOperationError, match=GONE):
        memory.write("new.md", "x")
    assert list(root.iterdir()) == []


def test_threads_that_open_a_root_at_once_open_the_same(tmp_path: Path) -> None:
    for number in range(50):
        backend = LocalBackend(tmp_path / str(number))
        start = threading.Barrier(4)

        def write(name: int, backend: LocalBackend = backend, start: threading.Barrier = start) -> None:
            start.wait()
            backend.write(Key.tree().join(f"{name}.md"), b"x")

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(write, range(4))) == [None] * 4


@pytest.mark.parametrize("open_it", [memory_with_id, memory_without_id])
def test_the_error_of_a_lost_root_keeps_no_other_directory_open(
    tmp_path: Path, open_it: Callable[[Path], AgentMemory]
) -> None:
    root = tmp_path / "root"
    with open_it(root) as memory:
        root.rename(tmp_path / "moved")
        root.mkdir()
        with pytest.raises(WriteError, match=GONE) as raised:
            memory.write("new.md", "x")
        assert raised.value.__traceback__
        assert root not in open_files().values(), "its volume could not be unmounted"


PROGRAM = """
import os, shutil, subprocess, sys
from agent_memory import *

volume, root = sys.argv[1:3]

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

def unmount(*arguments):
    subprocess.run(["umount", *arguments], check=True)

def tried(call):
    try:
        return call()
    except FileOperationError as error:
        return f"{type(error).__name__}: {error}"

def opened(with_id=True):
    memory = AgentMemory.open(root, versions=VersionLimits() if with_id else None)
    memory.write("kept.md", "kept")
    return memory
"""


class Mounts:
    """Runs programs in a mount namespace of their own, in which a volume can be mounted and unmounted."""

    def __init__(self, volume: Path, below: str) -> None:
        self.volume = volume
        self.root = volume / below

    def run(self, body: str) -> list[str]:
        command = ["unshare", "--mount", sys.executable, "-c", PROGRAM + body, str(self.volume), str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(
    params=["", pytest.param("store", marks=pytest.mark.long)], ids=["the mount point", "below the mount point"]
)
def mounts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mounts]:
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("mounting takes root")
    volume = tmp_path / "volume"
    volume.mkdir()
    yield Mounts(volume, request.param)
    assert list(volume.iterdir()) == [], "the directory below the mount point"


@pytest.mark.parametrize("with_id", [True, False])
def test_no_write_is_acknowledged_after_the_volume_was_unmounted(mounts: Mounts, with_id: bool) -> None:
    told = mounts.run(f"""
mount("-t", "tmpfs", "none", volume)
memory = opened({with_id})
unmount("-l", volume)
print(tried(lambda: memory.write("new.md", "x")))
print(tried(lambda: memory.append("kept.md", "x")))
memory.close()
""")
    assert [line.partition(":")[0] for line in told] == ["WriteError", "AppendError"]
    assert all(GONE in line for line in told)


def test_after_an_orderly_close_no_write_goes_below_an_unmounted_volume(mounts: Mounts) -> None:
    told = mounts.run("""
mount("-t", "tmpfs", "none", volume)
memory = opened()
memory._tree.backend.close()
unmount(volume)
print(tried(lambda: memory.append("new.md", "x")))
print(tried(lambda: memory.read("kept.md")))
""")
    assert [line.partition(":")[0] for line in told] == ["AppendError", "ReadError"]
    assert all(GONE in line for line in told)


def test_the_same_volume_mounted_again_is_opened(mounts: Mounts, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    told = mounts.run(f"""
mount("--bind", {str(tmp_path / "source")!r}, volume)
memory = opened()
unmount("-l", volume)
print(GONE := tried(lambda: memory.write("lost.md", "x")))
mount("--bind", {str(tmp_path / "source")!r}, volume)
print(tried(lambda: memory.write("new.md", "x").path), tried(lambda: memory.read("kept.md")))
""")
    assert "WriteError" in told[0]
    assert told[1] == "new.md kept"
    assert not list((tmp_path / "source").rglob("lost.md"))


def test_a_volume_with_a_copy_of_the_store_is_opened_and_another_is_not(mounts: Mounts) -> None:
    told = mounts.run("""
mount("-t", "tmpfs", "none", volume)
memory = opened()
shutil.copytree(root, "/dev/shm/agent-memory-copy", dirs_exist_ok=True)
unmount("-l", volume)
mount("-t", "tmpfs", "none", volume)
os.makedirs(root, exist_ok=True)
print(tried(lambda: memory.write("new.md", "x")))
shutil.copytree("/dev/shm/agent-memory-copy", root, dirs_exist_ok=True)
shutil.rmtree("/dev/shm/agent-memory-copy")
print(tried(lambda: memory.write("new.md", "x").path), os.listdir(root).count("new.md"))
unmount("-l", volume)
""")
    assert GONE in told[0]
    assert told[1] == "new.md 1"


def test_no_write_goes_below_a_volume_that_was_mounted_over_the_root(mounts: Mounts) -> None:
    told = mounts.run("""
os.makedirs(root, exist_ok=True)
memory = opened()
mount("-t", "tmpfs", "none", volume)
print(tried(lambda: memory.write("new.md", "x")))
unmount(volume)
print(tried(lambda: memory.write("new.md", "x").path))
subprocess.run(["find", volume, "-mindepth", "1", "-delete"], check=True)
""")
    assert GONE in told[0]
    assert told[1] == "new.md"


def test_reads_continue_on_a_volume_that_was_mounted_in_the_place_of_a_failed_one(
    mounts: Mounts, tmp_path: Path
) -> None:
    """The first volume is switched off: its directories stay open, and its files fail with EIO."""
    for image in ("first", "second"):
        (tmp_path / image).touch()
    told = mounts.run(f"""
import fcntl, struct
from contextlib import suppress
from agent_memory.errors import FileOperationError

first, second = {str(tmp_path / "first")!r}, {str(tmp_path / "second")!r}
os.truncate(first, 16 << 20)
subprocess.run(["mkfs.ext4", "-q", first], check=True)
mount("-o", "loop", first, volume)
opened().close()
unmount(volume)
shutil.copyfile(first, second)
mount("-o", "loop", first, volume)
memory = AgentMemory.open(root)
print(memory.read("kept.md"))
directory = os.open(volume, os.O_RDONLY)
fcntl.ioctl(directory, {SHUTDOWN}, struct.pack("I", 2))
os.close(directory)
print(tried(lambda: memory.read("kept.md")))
print(tried(lambda: memory.append("kept.md", "lost")))
unmount("-l", volume)
mount("-o", "loop", second, volume)
print(tried(lambda: memory.read("kept.md")), tried(lambda: memory.stat("kept.md").size))
print(tried(lambda: memory.append("kept.md", "!").size))
memory.close()
unmount(volume)
""")
    assert told[0] == "kept"
    assert [line.partition(":")[0] for line in told[1:3]] == ["ReadError", "AppendError"]
    assert "Input/output error" in told[1]
    assert told[3:] == ["kept 4", "5"]


@pytest.mark.ecosystem
def test_a_root_whose_daemon_died_is_opened_again_when_it_is_mounted_again(tmp_path: Path) -> None:
    """A filesystem in user space: its directories fail with ENOTCONN after its daemon was killed."""
    rclone, fusermount = Path(sysconfig.get_path("scripts"), "rclone"), shutil.which("fusermount")
    if os.geteuid() or not (Path("/dev/fuse").exists() and fusermount and rclone.exists()):
        pytest.skip("it takes root, /dev/fuse, fusermount and rclone")
    for name in ("source", "volume", "programs"):
        (tmp_path / name).mkdir()
    (tmp_path / "programs" / "fusermount3").symlink_to(fusermount)
    memory_with_id(tmp_path / "source" / "store").close()
    told = Mounts(tmp_path / "volume", "store").run(f"""
import time
os.environ["PATH"] = {str(tmp_path / "programs")!r} + ":" + os.environ["PATH"]

def daemon():
    options = ["--vfs-cache-mode", "writes", "--config", "/dev/null", "--cache-dir", {str(tmp_path / "cache")!r}]
    command = [{str(rclone)!r}, "mount", ":local:{tmp_path}/source", volume, *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not os.path.ismount(volume):
        time.sleep(0.05)
    return process

process = daemon()
memory = AgentMemory.open(root)
print(memory.read("kept.md"))
process.kill()
process.wait()
print(tried(lambda: memory.read("kept.md")))
unmount("-l", volume)
print(tried(lambda: memory.append("kept.md", "lost")))
process = daemon()
print(tried(lambda: memory.read("kept.md")), tried(lambda: memory.append("kept.md", "!").size))
memory.close()
unmount("-l", volume)
process.wait()
""")
    assert told[0] == "kept"
    assert "ReadError" in told[1]
    assert "AppendError" in told[2]
    assert told[3] == "kept 5"
    assert not list((tmp_path / "volume").iterdir())


def test_a_process_that_gave_up_its_rights_still_changes_the_root_that_it_opened(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("another user takes root")
    (tmp_path / "private" / "root").mkdir(parents=True)
    (tmp_path / "private").chmod(0o700)
    os.chown(tmp_path / "private" / "root", 65534, 65534)
    program = """
memory = AgentMemory.open(root)
assert memory.list() == ()
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
print(memory.write("a.md", "x").path, memory.read("a.md"))
"""
    arguments = [str(tmp_path / "private"), str(tmp_path / "private" / "root")]
    done = subprocess.run([sys.executable, "-c", PROGRAM + program, *arguments], capture_output=True, check=False)
    assert done.stdout == b"a.md x\n", done.stderr


def test_a_damaged_record_has_no_id(tmp_path: Path) -> None:
    root = tmp_path / "root"
    memory_with_id(root).close()
    record = root / STORE_RECORD.storage
    facts = json.loads(record.read_text())
    for damaged in (
        "",
        "[]",
        "{}",
        json.dumps({**facts, "id": 1}),
        json.dumps({**facts, "id": facts["id"].upper() + "g"}),
    ):
        record.write_text(damaged)
        backend = LocalBackend(root)
        assert backend.read(Key.tree().join("kept.md")).data == b"kept"
        shutil.copytree(root, tmp_path / "copy")
        shutil.rmtree(root)
        (tmp_path / "copy").rename(root)
        with pytest.raises(ReadError, match=GONE):
            backend.read(Key.tree().join("kept.md"))


@pytest.mark.parametrize("is_same_directory", [True, False])
def test_a_root_that_became_a_link_is_used_only_if_it_is_the_open_directory(
    tmp_path: Path, is_same_directory: bool
) -> None:
    root, moved, copy = tmp_path / "store", tmp_path / "moved", tmp_path / "copy"
    with memory_with_id(root) as memory:
        shutil.copytree(root, copy)
        root.rename(moved)
        root.symlink_to(moved if is_same_directory else copy)
        if is_same_directory:
            memory.write("new.md", "x")
            assert (moved / "new.md").read_text() == "x"
        else:
            with pytest.raises(WriteError, match=GONE):
                memory.write("new.md", "x")
            assert not (copy / "new.md").exists()
            assert not (moved / "new.md").exists()
