"""A file that cannot be used, and a lock that stays taken, are errors of the verb that met them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline, TryLater, content_etag, trying_later
from agent_memory.errors import AppendError, FileOperationError, ReadError, WriteError
from agent_memory.key import Key
from agent_memory_local import LocalBackend

FILE, OTHER = Key.tree().join("d/a.md"), Key.tree().join("d/b.md")
TEXT = content_etag(b"text")
VERBS: dict[str, tuple[type[FileOperationError], Callable[[LocalBackend], object]]] = {
    "read": (ReadError, lambda b: b.read(FILE)),
    "read a range": (ReadError, lambda b: b.read(FILE, 0, 1)),
    "stat": (ReadError, lambda b: b.stat(FILE)),
    "write": (WriteError, lambda b: b.write(FILE, b"new", TEXT)),
    "append": (AppendError, lambda b: b.append(FILE, b"more")),
    "delete": (WriteError, lambda b: b.delete(FILE, TEXT)),
    "write in parts": (WriteError, lambda b: b.write_in_parts(FILE, 1, TEXT)),
    "move a file": (WriteError, lambda b: b.move_file(FILE, OTHER)),
}
CHANGES = [verb for verb, (error, _) in VERBS.items() if error is not ReadError]


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    backend = LocalBackend(tmp_path / "root", durability="process")
    backend.write(FILE, b"text")
    return backend


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "root" / FILE.storage


@pytest.mark.parametrize("verb", VERBS)
def test_a_pipe_is_no_regular_file(backend: LocalBackend, file: Path, verb: str) -> None:
    file.unlink()
    os.mkfifo(file)
    error, call = VERBS[verb]
    with pytest.raises(FileOperationError, match=r"not a regular file$") as failed:
        call(backend)
    assert (type(failed.value), failed.value.path) == (error, FILE.path)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "move a file"])
def test_a_file_with_another_name_is_refused(backend: LocalBackend, file: Path, tmp_path: Path, verb: str) -> None:
    os.link(file, tmp_path / "other")
    error, call = VERBS[verb]
    with pytest.raises(FileOperationError, match="another name") as failed:
        call(backend)
    assert (type(failed.value), failed.value.path) == (error, FILE.path)
    assert (tmp_path / "other").read_text() == "text"


@pytest.mark.parametrize("verb", CHANGES)
def test_a_lock_that_stays_taken_is_an_error_of_the_verb(backend: LocalBackend, tmp_path: Path, verb: str) -> None:
    directory = os.open(tmp_path / "root", os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    error, call = VERBS[verb]
    try:
        with (
            deadline_scope(Deadline(0.01, time.monotonic())),
            pytest.raises(FileOperationError, match=r"waited 0.01 s for the lock of the directory tree") as failed,
        ):
            call(backend)
        with trying_later(), pytest.raises(TryLater) as later:
            call(backend)
    finally:
        os.close(directory)
    ended = later.value.give_up(Deadline(2.0, 0.0))
    assert isinstance(ended, FileOperationError)
    for raised, seconds in ((failed.value, "0.01 s"), (ended, "2 s")):
        assert (type(raised), raised.path, seconds in str(raised)) == (error, FILE.path, True)
