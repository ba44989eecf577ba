"""The shell completes agents and paths: it reads only, in bounded time and number, and is silent about errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from tests.cli.test_mistyped import contents
from tests.support.servers import S3Server

Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
FILES = ("MEMORY.md", "notes/a.md", "notes/b.md", ".hidden.md", "x$(touch bad).md", "a b.md", "-rf", "\u65e5\u8a18.md")


@pytest.fixture
def store() -> None:
    with AgentMemoryService(".agent-memory") as service:
        for path in FILES:
            service.write_memory_file("default", path, "x")
        service.write_memory_file("ann", "q.md", "x")


def completed(spawn: Spawn, *words: str, shell: str = "bash", **variables: str) -> list[str]:
    """The completions of the last word; nothing else is printed."""
    line = " ".join(["agent-memory", *words])
    place = words[-1] if shell == "fish" else str(len(words))
    variables |= {"_AGENT_MEMORY_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": place}
    done = spawn(env=variables)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().split()
    return lines[1::3] if shell == "zsh" else [line.partition(",")[2] for line in lines]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["read", ""], ["notes/", "MEMORY.md", "\u65e5\u8a18.md"]),
        (["read", "notes/"], ["notes/a.md", "notes/b.md"]),
        (["read", "no"], ["notes/", "notes/a.md", "notes/b.md"]),
        (["read", ".h"], [".hidden.md"]),
        (["read", "x"], []),
        (["read", "/memories/M"], ["/memories/MEMORY.md"]),
        (["mv", "MEMORY.md", "notes/a"], ["notes/a.md"]),
        (["conversation", "show", "--directory", "no"], ["notes/", "notes/a.md", "notes/b.md"]),
        (["--agent", "a"], ["ann"]),
        (["read", "--agent", ""], ["ann", "default"]),
        (["--agent", "ann", "read", ""], ["q.md"]),
        (["read", "--agent", "ann", ""], ["q.md"]),
        (["write", "x", ""], []),
    ],
)
def test_agents_and_paths_are_completed(spawn: Spawn, words: list[str], found: list[str]) -> None:
    before = contents(Path.cwd())
    assert completed(spawn, *words) == found
    assert contents(Path.cwd()) == before


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_too(spawn: Spawn, shell: str) -> None:
    assert completed(spawn, "read", "notes/a", shell=shell) == ["notes/a.md"]


def test_a_large_directory_is_not_listed_to_its_end(spawn: Spawn) -> None:
    with AgentMemoryService(".agent-memory") as service:
        memory = service.agent("default")
        for number in range(210):
            memory.write(f"{number:03}.md", "")
    assert completed(spawn, "read", "") == [f"{number:03}.md" for number in range(200)]


@pytest.mark.parametrize(
    "options",
    [
        ["--url", "typo"],
        ["--url", "ftps://host/x"],
        ["--url", "file"],
        ["--url", "s3://bucket/x", "-o", "endpoint_url=http://localhost:9", "-o", "key=k", "-o", "secret=s"],
        ["--agent", "../x"],
        ["-v", "-o", "nonsense"],
    ],
)
def test_an_error_completes_nothing_in_silence(spawn: Spawn, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "file").touch()
    assert completed(spawn, *options, "read", "") == []
    assert completed(spawn, *options, "--agent", "") == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_store_on_s3_is_completed(spawn: Spawn, ministack: S3Server) -> None:
    url = ministack.new_url()
    with AgentMemoryService(url, storage_options=ministack.options) as service:
        service.write_memory_file("ann", "notes/a.md", "x")
    options = [word for name, value in ministack.options.items() for word in ("-o", f"{name}={value}")]
    assert completed(spawn, "--url", url, *options, "--agent", "ann", "read", "n") == ["notes/", "notes/a.md"]
