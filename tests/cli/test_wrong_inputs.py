"""The messages of the command line for wrong input: each row of the table in ``docs/cli.md``, run like a user's.

``python -m pytest tests/cli/test_wrong_inputs.py --cli-page docs/cli.md`` writes the table.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.conversation import Message
from tests.cli.wrong_inputs import ENDPOINT, ROWS, Row, Told, line_of, lines_on, timeless, write_to
from tests.support.forked import popen
from tests.support.servers import S3Server

PAGE = Path(__file__).parents[2] / "docs/cli.md"
_READS_ONLY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]}],
}


@pytest.fixture(scope="module")
def lines(pytestconfig: pytest.Config) -> Iterator[list[str]]:
    """The rows of this run; when all are present, ``--cli-page`` writes them to the page."""
    seen: list[str] = []
    yield seen
    if (page := pytestconfig.getoption("--cli-page")) and len(seen) == len(ROWS):
        write_to(Path(page), seen)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A user's directory: a store with a few files, one of them damaged, and a store on a read-only disk."""
    with AgentMemoryService(tmp_path / ".agent-memory") as service:
        memory = service.agent("default")
        memory.write("a.md", "a")
        memory.write("notes/b.md", "b")
        memory.write("photo.png", b"\x89PNG\xff\xfe")
        memory.write("history.jsonl", f'{Message("user", "tea").to_line()}\n{{"role"\n')
        memory.write("large.md", "x" * 1_000_000)
    (tmp_path / "disk").mkdir()
    return tmp_path


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Mount the directory read-only."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def ran(row: Row, command: str, environment: dict[str, str], script: str, directory: Path) -> Told:
    """Run a row's command: with the shell if it has a pipe, and else as a process."""
    began = time.monotonic()
    name, *words = shlex.split(command)
    assert name == script.rpartition("/")[2]
    is_piped = "|" in words
    shell = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"]
    with popen(shell if is_piped else [script, *words], cwd=directory, env=environment, real=is_piped) as process:
        if row.what == "an interrupt":
            assert process.stdin is not None
            process.stdin.write(b"x" * 200_000)  # more than a pipe holds, so the command has started to read
            process.stdin.flush()
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    return Told(errors.decode().strip(), process.returncode, time.monotonic() - began)


def told_of(row: Row, here: Path, script: str, server: S3Server | None) -> Told:
    """The message of a row's command, with the server's address in the page's form."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"HOME": str(here), "PATH": f"{Path(script).parent}:{os.environ['PATH']}"}
    environment |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", **row.env}
    command, shown, address = row.command, ENDPOINT.removeprefix("http"), ""
    if server:
        address = server.endpoint.removeprefix("http")
        command = command.replace(shown, address)
        if row.what == "credentials that may not write":
            user = server.new_user(json.dumps(_READS_ONLY))
            environment |= {"AWS_ACCESS_KEY_ID": str(user["key"]), "AWS_SECRET_ACCESS_KEY": str(user["secret"])}
    with read_only(here / "disk") if "--url ./disk" in command else nullcontext():
        told = ran(row, command, environment, script, here)
    return replace(told, message=told.message.replace(address, shown) if address else told.message)


def _given(row: Row) -> object:
    """A row as a parameter: SeaweedFS, which checks credentials, is slow to start."""
    return pytest.param(row, marks=pytest.mark.long) if row.server == "seaweedfs" else row


@pytest.mark.parametrize("row", [*map(_given, ROWS)], ids=lambda row: row.what)
def test_the_message_for_a_wrong_input_names_it(
    row: Row, here: Path, lines: list[str], script: str, request: pytest.FixtureRequest
) -> None:
    told = told_of(row, here, script, request.getfixturevalue(row.server) if row.server else None)
    assert told.code == row.code, told
    assert "Traceback" not in told.message
    assert len(told.message.splitlines()) <= 2, told
    assert str(here) not in told.message
    for name in row.names:
        assert re.search(name, told.message), told
    lines.append(line_of(row, told))
    if not request.config.getoption("--cli-page"):
        assert lines_on(PAGE)[row.what] == timeless(lines[-1])
