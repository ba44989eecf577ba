"""Configuration is read from regular files of at most 5 MB, without waiting; anything else is refused in words."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory.plugins._host_files import MOST_BYTES, open_host_file, read_host_file
from agent_memory.plugins.configuration import configuration
from tests.backends.local.planted import watched
from tests.cli.conftest import _elsewhere, run

__all__ = ["_elsewhere", "run"]
Run = Callable[..., Result]


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "a pipe, a socket or a device, not a regular file"),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), "a pipe, a socket or a device"),
    "a directory": (Path.mkdir, "a directory, not a regular file"),
    "a socket": (_socket, "No such device or address"),
    "a file that is too large": (
        lambda path: path.write_bytes(b"#" * (MOST_BYTES + 1)),
        "more than the 5,000,000 bytes",
    ),
}


@pytest.fixture(params=KINDS)
def planted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A path that is no configuration, and the reason."""
    monkeypatch.chdir(tmp_path)
    make, reason = KINDS[request.param]
    path = tmp_path / "settings.toml"
    make(path)
    return path, reason


def test_a_configuration_that_is_no_file_of_a_usual_size_is_refused(planted: tuple[Path, str]) -> None:
    path, reason = planted
    with watched(30), pytest.raises(ValueError, match=reason):
        configuration(path)


def test_commands_refuse_such_files(run: Run, planted: tuple[Path, str]) -> None:
    path, reason = planted
    run("write", "a.md", "x")
    (path.parent / ".cursor").mkdir()
    (path.parent / ".cursor/mcp.json").symlink_to(path)
    for command in (
        ("ls", "--config", str(path)),
        ("audit", "verify", "--key-file", str(path)),
        ("forget", "a.md", "--yes", "--log", "log.jsonl", "--key-file", str(path)),
    ):
        with watched(30):
            result = run(*command)
        assert result.exit_code in (1, 2), result.output
        assert reason in result.stderr or "is a directory" in result.stderr
    assert run("read", "a.md").stdout == "x"


def test_a_file_of_exactly_the_most_bytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * MOST_BYTES)
    assert len(read_host_file(path)) == MOST_BYTES
    with open_host_file(path) as file:
        assert file.read(1) == b"x"


@pytest.mark.parametrize("command", [["write", "b.md"], ["append", "a.md"]])
def test_endless_content_is_refused(run: Run, command: list[str]) -> None:
    run("write", "a.md", "x")
    with watched(60):
        result = run(*command, "--file", "/dev/zero")
    assert (result.exit_code, "more than 50,000,000 bytes" in result.stderr) == (5, True), result.output
    assert run("read", "a.md").stdout == "x"


@pytest.mark.parametrize("below", ["", "sub"])
def test_an_import_refuses_a_gitignore_that_is_no_such_file(run: Run, planted: tuple[Path, str], below: str) -> None:
    path, reason = planted
    directory = path.parent / "folder" / below
    directory.mkdir(parents=True)
    (directory / "a.md").write_text("x")
    path.rename(directory / ".gitignore")
    with watched(30):
        result = run("import", "folder", "--gitignore")
    assert result.exit_code == 1
    assert ".gitignore" in result.stderr
    assert reason in result.stderr
    assert "nothing was imported" in result.stderr
    assert "a.md" not in run("ls").stdout
