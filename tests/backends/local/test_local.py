"""Behaviour specific to local disks: links, pipes, modes, temporary files, and disk failures."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AppendError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    OutcomeUnknownError,
    ReadError,
    WriteError,
)
from agent_memory.backend import ANY, ReadWhen
from agent_memory.key import Key
from agent_memory_local import LocalBackend, _spelling


@pytest.fixture
def memory(root: Path) -> AgentMemory:
    return AgentMemory.open(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret.md").write_text("secret")
    return directory


def all_names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_the_root_may_be_reached_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    AgentMemory.open(tmp_path / "alias").write("a.md", "x")
    assert (tmp_path / "real" / "a.md").read_text() == "x"


def test_a_created_file_has_one_link_and_leaves_no_temporary(memory: AgentMemory, root: Path) -> None:
    memory.create("created.md", "x")
    memory.write("written.md", "x")
    assert all_names(root) == ["created.md", "written.md"]
    assert (root / "created.md").stat().st_nlink == 1


def test_create_links_a_temporary_file_where_o_tmpfile_is_not_supported(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def open_without_tmpfile(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_without_tmpfile)
    memory.create("created.md", "x")
    with pytest.raises(FileAlreadyExistsError):
        memory.create("created.md", "y")
    assert memory.read("created.md") == "x"
    assert all_names(root) == ["created.md"]
    assert (root / "created.md").stat().st_nlink == 1


def test_an_append_never_changes_a_file_that_has_a_second_name(memory: AgentMemory, root: Path, outside: Path) -> None:
    memory.write("log.md", "one\n")
    os.link(root / "log.md", outside / "other.md")
    with pytest.raises(AppendError, match="hard link"):
        memory.append("log.md", "two\n")
    memory = AgentMemory.open(f"{root.as_uri()}?allow_hard_links=true")
    assert memory.append("log.md", "two\n").size == 8
    assert memory.read("log.md") == "one\ntwo\n"
    assert (outside / "other.md").read_text() == "one\n"


def test_names_that_are_no_keys_are_skipped_counted_and_kept(
    memory: AgentMemory, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory.write("d/kept.md", "kept")
    for name in [b"a:b.md", b"caf\xe9.md", b"trailing. ", b"e\xcc\x81.md"]:
        (root / "d" / os.fsdecode(name)).write_text("theirs")
    assert [str(entry) for entry in memory.list()] == ["d/kept.md"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "skipped=4" in caplog.text
    result = memory.delete_tree("d")
    assert (result.files, result.skipped) == (1, 4)
    assert len(all_names(root)) == 5


def test_files_deeper_than_any_key_are_skipped(memory: AgentMemory, root: Path) -> None:
    memory.write("/".join("d" * 31) + "/last.md", "kept")
    deep = root.joinpath(*"d" * 33)
    deep.mkdir(parents=True)
    (deep / "too-deep.md").write_text("theirs")
    assert [entry.path[-7:] for entry in memory.list()] == ["last.md"]


def test_reading_creates_nothing_not_even_the_root(memory: AgentMemory, root: Path) -> None:
    for read in (memory.read, memory.stat, memory.delete, memory.delete_tree):
        with pytest.raises(AgentMemoryFileNotFoundError):
            read("a/b.md")
    assert memory.list() == ()
    assert not memory.exists("a/b.md")
    assert not root.exists()


def test_a_delete_removes_the_directories_that_it_empties(memory: AgentMemory, root: Path) -> None:
    memory.write("a/b/c/one.md", "x")
    memory.write("a/two.md", "x")
    memory.delete("a/b/c/one.md")
    assert all_names(root) == ["a", "a/two.md"]


def test_an_empty_directory_is_not_listed(memory: AgentMemory, root: Path) -> None:
    memory.write("kept.md", "x")
    (root / "empty" / "too").mkdir(parents=True)
    assert [str(entry) for entry in memory.list(recursive=False)] == ["kept.md"]


@pytest.mark.parametrize("end", ["replaced", "replaced three times", "deleted"])
def test_a_file_that_ends_before_its_other_case_is_looked_up_is_read_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    AgentMemory.open(tmp_path).write("d/file.md", "0")
    other = AgentMemory.open(tmp_path)
    replacements = iter(range(3 if end == "replaced three times" else 1))
    looked_up = _spelling._status

    def status(directory: int, name: str) -> os.stat_result | None:
        if name == "FILE.MD" and (number := next(replacements, None)) is not None:
            other.delete("d/file.md") if end == "deleted" else other.write("d/file.md", str(number + 1))
        return looked_up(directory, name)

    memory = AgentMemory.open(tmp_path)
    other.read("d/file.md")  # the other memory looks up no more names
    monkeypatch.setattr(_spelling, "_status", status)
    if end == "deleted":
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.read("d/file.md")
    else:
        assert memory.read("d/file.md") == ("3" if end == "replaced three times" else "1")


def test_concurrent_writes_and_deletes_in_one_directory_lose_no_write(memory: AgentMemory) -> None:
    def write(name: str) -> None:
        for turn in range(150):
            memory.write(f"shared/deep/{name}.md", f"{turn}")
            assert memory.read(f"shared/deep/{name}.md") == f"{turn}"
            memory.delete(f"shared/deep/{name}.md")
        memory.write(f"shared/deep/{name}.md", "last")

    failures: list[BaseException] = []

    def guarded(name: str) -> None:
        try:
            write(name)
        except BaseException as error:  # noqa: BLE001 - the assertion shows it
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [str(entry) for entry in memory.list()] == [f"shared/deep/{name}.md" for name in "abcd"]


FAILING_WRITER = """
import resource, signal, sys
from agent_memory import AgentMemory, FileOperationError
memory = AgentMemory.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for write in (memory.write, memory.append, memory.create):
    try:
        write("new/new.md" if write == memory.create else "log.md", "x" * 10_000)
    except FileOperationError as error:
        print(type(error).__name__, error)
"""


def test_a_full_disk_leaves_the_old_content_and_no_temporary_file(memory: AgentMemory, root: Path) -> None:
    memory.write("log.md", "old")
    command = [sys.executable, "-c", FAILING_WRITER, str(root)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert printed == [
        "WriteError 'log.md': the storage failed: File too large",
        "AppendError 'log.md': the storage failed: File too large",
        "WriteError 'new/new.md': the storage failed: File too large",
    ]
    assert memory.read("log.md") == "old"
    assert [str(entry) for entry in memory.list()] == ["log.md"]
    assert [name for name in all_names(root) if name.endswith("tmp")] == []


def test_short_writes_are_completed(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real_write(file, bytes(data)[:3]))
    memory.write("a.md", "0123456789")
    memory.append("a.md", "abcdefghij")
    memory.create("b.md", "0123456789")
    assert memory.read("a.md") == "0123456789abcdefghij"
    assert memory.read("b.md") == "0123456789"


@pytest.mark.parametrize("fails_on", ["file", "directory"])
def test_a_failed_fsync_raises_an_error_and_is_not_retried(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch, fails_on: str
) -> None:
    memory.write("log.md", "old")
    calls = []

    def fsync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append(kind)
        if kind == fails_on:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(WriteError if fails_on == "file" else OutcomeUnknownError):
        memory.write("log.md", "new")
    assert calls.count(fails_on) == 1
    assert memory.read("log.md") == ("old" if fails_on == "file" else "new")
    assert all_names(root) == ["log.md"]


def test_another_programs_write_during_the_fsync_is_a_conflict(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("notes.md", "ours")
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            (root / "notes.md").write_text("an editor's")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ConflictError):
        memory.write("notes.md", "lost?", when=SHA256(hashlib.sha256(b"ours").hexdigest()))
    assert memory.read("notes.md") == "an editor's"


def test_an_append_whose_fsync_fails_has_an_unknown_outcome(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("log.md", "old")

    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknownError):
        memory.append("log.md", "new")


def test_durability_process_calls_no_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise AssertionError("fsync was called")

    monkeypatch.setattr(os, "fsync", fsync)
    memory = AgentMemory.open(f"{root.as_uri()}?durability=process")
    assert memory.capabilities.durability == "process"
    memory.write("a/b.md", "x")
    memory.append("a/b.md", "y")
    memory.create("a/c.md", "z")
    memory.delete("a/c.md")
    assert memory.read("a/b.md") == "xy"


def test_a_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    with AgentMemory.open(tmp_path / "root") as memory:
        for call in (lambda: memory.read("a.md"), lambda: memory.write("a.md", "x"), memory.list):
            with pytest.raises(FileOperationError, match="the root is not a directory"):
                call()
    assert (tmp_path / "root").read_text() == "a file"


def test_no_error_message_contains_a_host_path(root: Path) -> None:
    root.parent.joinpath("file").write_text("not a directory")
    memory = AgentMemory.open(root.parent / "file")
    for action in (memory.read, memory.list, memory.delete, lambda p: memory.write(p, "x")):
        with pytest.raises(AgentMemoryError) as failed:
            action("a.md")
        assert str(root.parent) not in str(failed.value)


def test_a_file_without_read_or_write_permission_raises_a_clear_error(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a.md", "old")

    def forbidden(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "/secret/host/path")

    for error, action in [(ReadError, memory.read), (AppendError, lambda p: memory.append(p, "x"))]:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", forbidden)
            with pytest.raises(error, match=r"'a\.md': the storage failed: Permission denied") as failed:
                action("a.md")
        assert "/secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///tmp/x?durabillity=full", "takes the options allow_hard_links, durability, mode, within"),
        ("file:///tmp/x?durability=maybe", "'full' or 'process'"),
        ("file:///tmp/x?allow_hard_links=maybe", "true or false"),
        ("file://host/x", "file:///absolute/path"),
    ],
)
def test_an_invalid_file_url_is_refused_with_the_allowed_values(url: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AgentMemory.open(url)


def test_a_file_url_and_its_path_open_the_same_root(tmp_path: Path) -> None:
    directory = tmp_path / "with space & ünïcode %41"
    AgentMemory.open(directory.as_uri()).write("a.md", "x")
    assert AgentMemory.open(directory).read("a.md") == "x"
    assert (directory / "a.md").read_text() == "x"


def test_an_interrupt_after_the_rename_of_the_new_file_is_still_raised(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("a.md", "old")
    real_replace = os.replace

    def replace(*args: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        real_replace(*args, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        memory.write("a.md", "new")
    assert memory.read("a.md") == "new"
    assert all_names(root) == ["a.md"]


IN_ANOTHER_LOCALE = """
import sys
from agent_memory import AgentMemory
memory = AgentMemory.open(sys.argv[1])
assert sys.getfilesystemencoding() != "utf-8", sys.getfilesystemencoding()
assert [str(entry) for entry in memory.list()] == ["caf\\u00e9/\\u65e5\\u8a18.md"], memory.list()
assert memory.read("caf\\u00e9/\\u65e5\\u8a18.md") == "old"
memory.append("caf\\u00e9/\\u65e5\\u8a18.md", "er")
memory.write("caf\\u00e9/\\u00fc.md", "new")
memory.delete("caf\\u00e9/\\u00fc.md")
memory.create("caf\\u00e9/\\u00fc.md", "newer")
"""


def test_names_are_utf8_on_disk_in_any_locale(memory: AgentMemory, root: Path) -> None:
    memory.write("café/日記.md", "old")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", IN_ANOTHER_LOCALE, str(root)]
    subprocess.run(command, check=True, env=environment)
    assert [(str(entry), memory.read(str(entry))) for entry in memory.list()] == [
        ("café/ü.md", "newer"),
        ("café/日記.md", "older"),
    ]


def test_two_roots_whose_names_are_not_utf8_stay_separate(tmp_path: Path) -> None:
    one, two = (os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/\xff", b"/\xfe"))
    AgentMemory.open(one).write("a.md", "x")
    assert AgentMemory.open(two).list() == ()
    assert Path(one, "a.md").read_text() == "x"


@pytest.mark.parametrize("url", ["file:///tmp/x#fragment", "file:///tmp/x?durabilty"])
def test_an_unknown_part_of_a_file_url_is_refused(url: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        AgentMemory.open(url)


def test_every_new_directory_of_the_root_is_private_and_synced_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().as_posix())
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    root = tmp_path / "new" / "deep" / "root"
    AgentMemory.open(root).write("a/x.md", "1")
    assert {str(path) for path in (tmp_path, root.parent.parent, root.parent, root, root / "a")} <= synced
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, root.parent, root.parent.parent)} == {0o700}


def test_a_file_is_renamed_on_a_filesystem_that_cannot_lock_directories(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> None:
        raise OSError(errno.EBADF, "as NFS says")

    memory = AgentMemory.open(root)
    memory.write("a.md", "x")
    monkeypatch.setattr("agent_memory_local._trees.lock_tree", refused)
    memory.rename("a.md", "d/b.md")
    assert [entry.path for entry in memory.list()] == ["d/b.md"]


def test_a_rename_whose_delete_fails_removes_its_copy(root: Path) -> None:
    class Undeletable(LocalBackend):
        def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | None:  # noqa: ARG002 - as across two disks
            return None

        def delete(self, key: Key, when: ReadWhen = ANY) -> None:
            if key.path == "a.md":
                raise WriteError("may not delete")
            super().delete(key, when)

    memory = AgentMemory.open(Undeletable(root))
    memory.write("a.md", "x")
    with pytest.raises(WriteError, match="may not delete"):
        memory.rename("a.md", "b.md")
    assert [str(entry) for entry in memory.list()] == ["a.md"]
