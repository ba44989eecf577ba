"""The container file and the unit of ``examples/mcp-server``: their commands, started without container and systemd."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.mcp_processes import TOKEN, Server, started
from tests.support.servers import free_port

EXAMPLES = Path(__file__).parents[2] / "examples/mcp-server"
IMAGE = (EXAMPLES / "Dockerfile").read_text()
UNIT = (EXAMPLES / "agent-memory-mcp.service").read_text()
SCRIPT = str(Path(sysconfig.get_path("scripts"), "agent-memory"))


def words_of_image(name: str) -> list[str]:
    (found,) = re.findall(rf"^{name} (\[.*\])$", IMAGE, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def words_of_unit() -> list[str]:
    (found,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", UNIT, re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


COMMANDS = {
    "container": ([*words_of_image("ENTRYPOINT"), *words_of_image("CMD")], "/run/secrets/agent-memory-token"),
    "unit": (words_of_unit(), "${CREDENTIALS_DIRECTORY}/token"),
}


@contextmanager
def serving(command: list[str], token: str, tmp_path: Path) -> Iterator[Server]:
    """A server by a command of the examples, with a port and paths of the test."""
    port = str(free_port())
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o400)
    here = {"8137": port, token: str(tmp_path / "token"), command[0]: SCRIPT}
    environment = {**os.environ, "AGENT_MEMORY_URL": str(tmp_path / "store")}
    with started([here.get(word, word) for word in command], env=environment, cwd=tmp_path) as process:
        assert process.stderr
        told = process.stderr.readline().decode()
        yield Server(told.removeprefix("url: ").strip(), TOKEN, process)


@pytest.mark.parametrize(("command", "token"), COMMANDS.values(), ids=COMMANDS)
def test_the_command_serves_clients_by_the_public_url_and_ends_with_0(
    command: list[str], token: str, tmp_path: Path
) -> None:
    assert command[0].endswith("agent-memory")
    with serving(command, token, tmp_path) as server:
        base = server.url.removesuffix("/mcp")
        with httpx2.Client(timeout=60) as client:
            assert [client.get(f"{base}{path}").status_code for path in ("/healthz", "/readyz")] == [200, 200]
        assert server.post(Host="memory.example.org").status_code == 200
        assert server.post(Authorization="").status_code == 401
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_the_health_check_of_the_container_fails_without_a_server(tmp_path: Path) -> None:
    (check,) = re.findall(r"^HEALTHCHECK CMD (\[.*\])$", IMAGE, re.MULTILINE)
    *_, program = json.loads(check)
    with serving(*COMMANDS["container"], tmp_path) as server:
        here = program.replace("http://127.0.0.1:8137", server.url.removesuffix("/mcp"))
        assert here != program
        assert subprocess.run([sys.executable, "-c", here], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", here], capture_output=True, check=False).returncode == 1


def test_no_credential_is_in_the_files_and_the_users_have_no_rights() -> None:
    assert re.findall(r"^USER (.*)$", IMAGE, re.MULTILINE) == ["10001"]
    assert "--read-only --cap-drop ALL --security-opt no-new-privileges" in IMAGE
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "NoNewPrivileges=yes"):
        assert f"\n{line}\n" in UNIT


def test_the_time_to_stop_is_longer_than_that_of_the_calls_in_progress() -> None:
    (unit,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    (image,) = re.findall(r"--stop-timeout (\d+)", IMAGE)
    assert min(int(unit), int(image)) > 60
