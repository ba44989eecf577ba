"""A written file is saved completely when it is closed, or not at all."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.filesystem.kit import Failed, FileSystem, Recorder, contents


def half_written(fs: FileSystem, path: str, mode: str, **options: Any) -> None:
    with fs.open(path, mode, **options) as file:
        file.write(b"half" if "b" in mode else "half")
        raise Failed


@pytest.mark.parametrize("mode", ["wb", "ab", "xb", "w", "a", "x"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_file_closed_by_an_exception_is_not_saved(scratch: FileSystem, mode: str, compression: str | None) -> None:
    path = "new" if "x" in mode else "a"
    scratch.pipe_file("a", b"before")
    with pytest.raises(Failed):
        half_written(scratch, path, mode, compression=compression)
    assert contents(scratch) == {"a": b"before"}


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_dropped_file_is_not_saved(scratch: FileSystem, mode: str) -> None:
    def forgotten() -> None:
        scratch.open("a", mode).write(b"half" if "b" in mode else "half")

    with pytest.warns(ResourceWarning, match="'a' was never closed: nothing was written"):
        forgotten()
    assert contents(scratch) == {}


def test_a_file_is_visible_after_close_and_saved_once(fs: FileSystem, recorder: Recorder) -> None:
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


def test_close_raises_the_error_of_a_failed_save(scratch: FileSystem) -> None:
    file = scratch.open("a/b", "wb")
    scratch.touch("a")
    with pytest.raises(FileExistsError):
        file.close()
    file.close()
    assert contents(scratch) == {"a": b""}


def test_any_bytes_like_object_is_appended(fs: FileSystem) -> None:
    for mode, data in (("ab", b"\xff\x00"), ("a", "é\n"), ("ab", b"")):
        with fs.open("log", mode) as file:
            file.write(data)
    assert fs.cat("log") == b"\xff\x00\xc3\xa9\n"
    with fs.open("log", "ab") as file, pytest.raises(OSError, match="cannot seek"):
        file.seek(0)


def test_exactly_one_of_two_creators_wins(fs: FileSystem) -> None:
    first, second = fs.open("a", "xb"), fs.open("a", "xb")
    first.write(b"first")
    second.write(b"second")
    second.close()
    with pytest.raises(FileExistsError):
        first.close()
    with pytest.raises(FileExistsError):
        fs.open("a", "x")
    assert contents(fs) == {"a": b"second"}


def test_text_is_written_as_by_the_builtin_open(scratch: FileSystem) -> None:
    with scratch.open("a", "wt", encoding="utf-16-le", newline="\r\n") as file:
        file.write("é\n")
    assert scratch.cat("a") == "é\r\n".encode("utf-16-le")
    assert scratch.read_text("a", encoding="utf-16-le") == "é\n"
    with pytest.raises(LookupError):
        scratch.open("b", "w", encoding="none such")
    with pytest.raises(TypeError):
        scratch.pipe_file("a", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip"])
def test_a_compressed_file_is_written_completely(scratch: FileSystem, suffix: str) -> None:
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


def test_touch_does_not_set_a_time(fs: FileSystem) -> None:
    fs.pipe_file("a", b"1")
    with pytest.raises(NotImplementedError):
        fs.touch("a", truncate=False)
    assert fs.cat("a") == b"1"
    fs.touch("a")
    assert fs.cat("a") == b""


def test_transactions_are_refused(scratch: FileSystem) -> None:
    for start in (lambda: scratch.transaction, scratch.start_transaction):
        with pytest.raises(NotImplementedError, match="no transactions"):
            start()


def test_a_file_is_not_copied_onto_a_local_directory(plain: FileSystem, tmp_path: Path) -> None:
    plain.pipe_file("d/a.md", b"x")
    (tmp_path / "here" / "d" / "a.md").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        plain.get("d", f"{tmp_path}/here/", recursive=True)
    with pytest.raises(IsADirectoryError):
        plain.get_file("d/a.md", str(tmp_path / "here"))


def test_text_is_utf8_in_any_locale(tmp_path: Path) -> None:
    program = """
import sys
from agent_memory import AgentMemory
from agent_memory.filesystem import filesystem
memory = AgentMemory.open(sys.argv[1])
fs = filesystem(memory)
with fs.open("a.md", "w") as file:
    file.write("\\u00e9")
with fs.open("a.md", "r") as file:
    assert file.read() == "\\u00e9" == memory.read("a.md")
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "root")], check=True, env=environment)


def test_removing_files_and_their_directory_together_removes_each_once(plain: FileSystem) -> None:
    for number in range(50):
        plain.pipe_file(f"d/{number}", b"")
    plain.rm(["d", *(f"d/{number}" for number in range(50))], recursive=True)
    assert plain.find("") == []
