"""Locks on local disk: which operations exclude each other, and the locks of killed and forked processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryService, AppendError, WriteError
from agent_memory_local import LocalBackend, _locks
from tests.support.descriptors import open_files
from tests.support.processes import in_processes
from tests.support.sizes import long_except

HOLDER = """
import os, sys
from agent_memory_local import _locks
kind, path = sys.argv[1:]
if kind == "file":
    _locks.lock_file(os.open(path, os.O_RDWR))
elif kind == "turn":
    _locks.announce_exclusive(os.open(path, os.O_RDONLY))
else:
    _locks.lock_tree(os.open(path, os.O_RDONLY))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory(root: Path) -> AgentMemory:
    memory = AgentMemory.open(f"{root.as_uri()}?durability=process")
    memory.write("a/log.md", "old")
    return memory


def held_by_another_process(kind: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, kind, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    return holder


def open_below(root: Path) -> list[str]:
    """The files below a root that this process has open."""
    gc.collect()
    return [str(path) for path in open_files().values() if str(path).startswith(str(root))]


def end(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda m: m.write("a/log.md", "new"),
    "append": lambda m: m.append("a/log.md", "new"),
    "edit": lambda m: m.edit("a/log.md", str.upper),
    "delete": lambda m: m.delete("a/log.md"),
}


@long_except(("append",), "change", CHANGES)
@pytest.mark.parametrize(("kind", "named"), [("file", "the file"), ("tree", "the directory tree")])
def test_a_change_whose_lock_times_out_names_the_lock_and_changes_nothing(
    memory: AgentMemory,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[AgentMemory], object],
    kind: str,
    named: str,
) -> None:
    monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 0.05)
    holder = held_by_another_process(kind, root / "a" / "log.md" if kind == "file" else root)
    try:
        with pytest.raises((WriteError, AppendError), match=f"waited 0.05 s for the lock of {named}, held by another"):
            change(memory)
        assert memory.read("a/log.md") == "old"
    finally:
        end(holder)


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_readers_do_not_wait_for_locks(memory: AgentMemory, root: Path, kind: str) -> None:
    holder = held_by_another_process(kind, root / "a" / "log.md" if kind == "file" else root)
    try:
        os.kill(holder.pid, signal.SIGSTOP)
        assert memory.read("a/log.md") == "old"
        assert memory.stat("a/log.md").size == 3
        assert [str(entry) for entry in memory.list()] == ["a/log.md"]
    finally:
        os.kill(holder.pid, signal.SIGCONT)
        end(holder)


def test_a_reader_during_an_append_sees_the_old_content(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, int]] = []
    real_write = os.write

    def write(file: int, data: bytes) -> int:
        written = real_write(file, bytes(data)[:2])  # like a long append that the kernel is still copying
        seen.append((memory.read("a/log.md"), memory.read_bytes("a/log.md").decode(), memory.stat("a/log.md").size))
        return written

    monkeypatch.setattr(os, "write", write)
    memory.append("a/log.md", "appended")
    assert seen == [("old", "old", 3)] * 4
    assert memory.read("a/log.md") == "oldappended"


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_the_lock_of_a_killed_holder_is_free(memory: AgentMemory, root: Path, kind: str) -> None:
    holder = held_by_another_process(kind, root / "a" / "log.md" if kind == "file" else root)
    waiting = threading.Thread(target=memory.append, args=("a/log.md", "new"))
    waiting.start()
    end(holder)
    waiting.join(30)
    assert memory.read("a/log.md") == "oldnew"


def test_a_lock_of_another_program_does_not_block_reads(memory: AgentMemory, root: Path) -> None:
    program = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(root / "a" / "log.md")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        assert memory.read("a/log.md") == "old"
    finally:
        end(holder)


def _append_in_child(memory: AgentMemory, done: Any) -> None:
    memory.append("a/log.md", "child.")
    done.wait(30)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # this test forks on purpose
def test_a_forked_child_neither_holds_nor_shares_a_lock_of_its_parent(memory: AgentMemory) -> None:
    memory.append("a/log.md", "parent.")  # leaves the tree's directory open for the next change
    context = multiprocessing.get_context("fork")
    done = context.Event()
    child = context.Process(target=_append_in_child, args=(memory, done))
    child.start()
    try:
        memory.append("a/log.md", "parent.")
        memory.rename("a", "b")
        assert memory.read("b/log.md").count("parent.") == 2
    finally:
        done.set()
        child.join(30)
    assert child.exitcode == 0


def test_a_tree_that_was_deleted_and_created_again_is_locked_correctly(root: Path) -> None:
    one, two = (AgentMemoryService(f"{root.as_uri()}?durability=process").agent("x") for _ in range(2))
    one.write("a.md", "x")
    two.delete_tree("")
    two.write("a.md", "y")
    one.append("a.md", "z")
    assert two.read("a.md") == "yz"


def test_a_closed_backend_opens_its_root_again_when_it_is_used(root: Path) -> None:
    before = open_below(root)
    backend = LocalBackend(root)
    with AgentMemory.open(backend) as memory:
        memory.write("a/b.md", "x")
        assert memory.read("a/b.md") == "x"
    assert open_below(root) == before
    with AgentMemory.open(backend) as memory:
        assert memory.read("a/b.md") == "x"


def test_no_operation_leaves_a_descriptor_open(memory: AgentMemory, root: Path) -> None:
    def run() -> None:
        memory.write("d/e.md", "x")
        memory.append("d/e.md", "y")
        memory.rename("d", "f")
        memory.list()
        memory.delete_tree("f")
        for refused in (lambda: memory.read("d/e.md"), lambda: memory.write("a", "x"), lambda: memory.delete("x/y")):
            with pytest.raises(OSError, match=r"no such file|is a directory"):
                refused()

    run()
    before = open_below(root)
    for _ in range(20):
        run()
    assert open_below(root) == before


def test_only_the_temporary_file_of_a_dead_writer_is_removed(memory: AgentMemory, root: Path) -> None:
    dead, live = (root / "a" / f".{digit * 16}.agent-memory-tmp" for digit in "01")
    dead.write_text("half")
    live.write_text("half")
    holder = held_by_another_process("file", live)
    try:
        assert [str(entry) for entry in memory.list()] == ["a/log.md"]
        assert (dead.exists(), live.exists()) == (False, True)
    finally:
        end(holder)
    memory.delete("a/log.md")  # removes the directory, too, despite the dead writer's temporary file
    assert not (root / "a").exists()


def test_no_change_from_several_threads_to_one_file_is_lost(memory: AgentMemory) -> None:
    def work(name: str) -> None:
        for turn in range(100):
            memory.append("a/log.md", f"{name}{turn};")
            memory.edit("a/count.md", lambda text: str(int(text) + 1))

    memory.write("a/count.md", "0")
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = memory.read("a/log.md").removeprefix("old").split(";")[:-1]
    assert sorted(lines) == sorted(f"{name}{turn}" for name in "abcd" for turn in range(100))
    assert memory.read("a/count.md") == "400"


def test_a_waiting_call_proceeds_when_the_lock_is_released(memory: AgentMemory, root: Path) -> None:
    holder = held_by_another_process("file", root / "a" / "log.md")
    started = threading.Event()
    results: list[int] = []

    def append() -> None:
        started.set()
        results.append(memory.append("a/log.md", "new").size)

    waiting = threading.Thread(target=append)
    waiting.start()
    started.wait()
    time.sleep(0.05)
    assert results == []
    end(holder)
    waiting.join(30)
    assert results == [6]


def append_until(_: int, barrier: threading.Barrier, url: str, done: str) -> int:
    memory = AgentMemory.open(url)
    memory.append(f"log-{os.getpid()}.md", "x")  # a late process might start after the renames are done
    barrier.wait(60)
    count = 1
    while not Path(done).exists():
        memory.append(f"log-{os.getpid()}.md", "x")
        count += 1
    assert len(memory.read(f"log-{os.getpid()}.md")) == count
    return count


def rename_under_writers(number: int, barrier: threading.Barrier, url: str, done: str) -> int:
    if number:
        return append_until(number, barrier, url, done)
    memory = AgentMemory.open(url)
    memory.write("d0/file.md", "x")
    barrier.wait(60)
    turn = 0
    try:
        while turn < 50 or appended(memory) < 100:
            memory.rename(f"d{turn}", f"d{turn + 1}")
            turn += 1
    finally:
        Path(done).touch()
    assert memory.exists(f"d{turn}/file.md")
    return turn


def appended(memory: AgentMemory) -> int:
    return sum(entry.size for entry in memory.list() if entry.path.startswith("log-"))


@pytest.mark.long
def test_constant_writers_do_not_starve_a_rename(root: Path, tmp_path: Path) -> None:
    url = f"{root.as_uri()}?durability=process"
    renames, *appends = in_processes(12, rename_under_writers, url, str(tmp_path / "done"))
    assert renames >= 50
    assert sum(appends) >= 100


def test_a_waiting_rename_goes_before_writers_and_a_dead_one_blocks_no_writer(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 0.05)
    mover = held_by_another_process("turn", root)
    try:
        with pytest.raises(AppendError, match="the directory tree"):
            memory.append("a/log.md", "new")
    finally:
        end(mover)
    memory.append("a/log.md", "new")
    assert memory.read("a/log.md") == "oldnew"


def test_a_tree_restored_from_a_backup_is_locked_instead_of_the_moved_one(root: Path) -> None:
    service = AgentMemoryService(f"{root.as_uri()}?durability=process")
    memory = service.agent("bob")
    memory.write("a/log.md", "old")
    trees = root / "agent_memory"
    (trees / "bob").rename(trees / "away")
    shutil.copytree(trees / "away", trees / "bob")
    holder = held_by_another_process("tree", trees / "bob")
    waiting = threading.Thread(target=memory.append, args=("a/log.md", "new"))
    try:
        waiting.start()
        waiting.join(0.2)
        assert memory.read("a/log.md") == "old"
    finally:
        end(holder)
        waiting.join(30)
    assert memory.read("a/log.md") == "oldnew"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # this test forks on purpose
def test_an_idle_child_of_a_killed_parent_holds_no_lock(memory: AgentMemory, root: Path) -> None:
    program = """
import os, sys, time
from agent_memory import AgentMemory
memory = AgentMemory.open(sys.argv[1])
memory.append("a/log.md", "new")
if os.fork() == 0:
    print("forked", flush=True)
    time.sleep(60)
sys.stdin.read()
"""
    command = [sys.executable, "-W", "ignore", "-c", program, str(root)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert parent.stdout
        assert parent.stdout.readline() == "forked\n"
        os.kill(parent.pid, signal.SIGKILL)
        memory.rename("a", "b")
        assert memory.read("b/log.md") == "oldnew"
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # this test forks on purpose
@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("memory.append('a/log.md', '+')", "write"),
        ("memory.append('a/log.md', '+')", "fsync"),
        ("memory.write('a/log.md', '+')", "fsync"),
        ("memory.rename('a', 'b')", "rename"),
    ],
)
def test_a_child_forked_during_a_change_holds_no_lock(memory: AgentMemory, root: Path, change: str, call: str) -> None:
    program = f"""
import os, sys, threading, time
from agent_memory import AgentMemory
memory = AgentMemory.open(sys.argv[1])
memory.read("a/log.md")
real, reached = os.{call}, threading.Event()
def stopped(*args, **options):
    reached.set()
    time.sleep(60)
os.{call} = stopped
threading.Thread(target=lambda: {change}, daemon=True).start()
reached.wait()
os.{call} = real
if os.fork() == 0:
    print(memory.read("a/log.md"), flush=True)
    time.sleep(60)
sys.stdin.read()
"""
    command = [sys.executable, "-W", "ignore", "-c", program, str(root)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert parent.stdout
        before = parent.stdout.readline().rstrip()
        assert before in ("old", "old+")  # "old+" if only the disk was slow
        os.kill(parent.pid, signal.SIGKILL)
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        soon = memory.with_timeout(30)
        soon.append("a/log.md", "+new")
        soon.rename("a", "c")
        assert memory.read("c/log.md") == before + "+new"
        memory.list()
        assert [path.name for path in root.rglob("*") if path.is_file()] == ["log.md"]  # no temporary file is left
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_an_append_measures_the_file_only_after_it_holds_the_lock(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second append during the first one must not publish a part of it."""
    seen: list[str] = []
    real_write = os.write

    def write(file: int, data: bytes) -> int:
        if len(data) < 6:
            return real_write(file, data)
        written = real_write(file, bytes(data)[:2])
        monkeypatch.setattr(_locks, "DEFAULT_SECONDS", 0.0)
        with pytest.raises(AppendError):
            memory.append("a/log.md", "!")
        seen.append(memory.read("a/log.md"))
        return written

    monkeypatch.setattr(os, "write", write)
    memory.append("a/log.md", "appended")
    assert set(seen) == {"old"}
    assert memory.read("a/log.md") == "oldappended"
