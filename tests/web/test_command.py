"""The command ``web``: what it prints, and what it never creates."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from agent_memory import AgentMemoryService
from tests.support.web_pages import SCRIPT, pages


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    for more in ([], ["--allow-write"]):
        command = [SCRIPT, "--url", "none", "web", *more]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout) == (3, b"")
    assert [*tmp_path.iterdir()] == []


def test_reading_changes_no_file_of_the_store(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path / "store") as service:
        service.write_memory_file("ann", "plan.md", "the plan")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pages(str(tmp_path / "store")) as served:
        client = served.enter()
        for path in ("/", "/agents/ann/tree/", "/agents/ann/file/plan.md", "/timeline", "/agents/ann/raw/../x"):
            assert client.get(path).status_code in (200, 404)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_the_link_is_printed_once_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    command = [SCRIPT, "--url", "store", "web"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr
        line = process.stderr.readline()
        link = line.decode().split()[-1]
        assert link.startswith("http://127.0.0.1:")
        assert httpx2.get(link).status_code == 303
        process.send_signal(signal.SIGTERM)
        output, more = process.communicate(timeout=60)
        assert (process.returncode, output, more) == (0, b"", b"")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("agent", ["../x", "a/b"])
def test_an_invalid_agent_is_refused(tmp_path: Path, agent: str) -> None:
    (tmp_path / "store").mkdir()
    command = [SCRIPT, "--url", "store", "--agent", agent, "web"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 5
