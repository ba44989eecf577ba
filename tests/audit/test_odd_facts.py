"""A record of an odd form, with the right hash, or a file that is no salt, stops no call on the log."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.audit import log_at, records, verify
from agent_memory.cli.app import app
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import checkpoints_in
from tests.support.odd_facts import SIXTY_MB, WHOLE_FILES, odd_objects

_HEAD = ["v", "alg", "bytes", "writer", "seq", "prev", "nonce", "event"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    url = f"{root.as_uri()}?durability=process"
    with AgentMemoryService(url, plugins=[AuditPlugin(url)], actor="ann", versions=VersionLimits()) as service:
        for name in ("odd", "other"):
            service.agent(name).write("a.md", "1")
            service.agent(name).append("a.md", "2")
            service.agent(name).rename("a.md", "b.md")
    return root


def log_of(root: Path) -> Path:
    return next((root / ".agent-memory/audit").glob("*.jsonl"))


def sealed(line: bytes, facts: bytes) -> bytes:
    """The head of a record, with the JSON text of other facts and the right length and hash."""
    found = re.match(rb'(.*"bytes":)[0-9]+(,.*?"event":"[a-z]+",)', line)
    assert found
    front, back = found[1], found[2] + facts[1:-1]
    size = len(front) + len(back) + len(b',"hash":""}\n') + 64
    size += len(str(size + len(str(size))))
    body = front + str(size).encode() + back
    return b'%b,"hash":"%b"}\n' % (body, hashlib.sha256(body).hexdigest().encode())


def odd_lines(line: bytes) -> Iterator[tuple[str, bytes]]:
    facts = {name: value for name, value in json.loads(line).items() if name not in (*_HEAD, "hash")}
    assert sealed(line, json.dumps(facts, separators=(",", ":")).encode()) == line
    for name, text in odd_objects({"log": "x", "seen": ["a", 1, "b"], "commitment": "x", "salt": "destroyed", **facts}):
        yield name, sealed(line, text)


def read_all(root: Path) -> None:
    """Make every call that reads the log."""
    location = log_at(root.as_uri())
    found = verify(location)
    location.store.close()
    assert found.records > 0
    assert [each for each in records(root.as_uri()) if each.get("agent") == "other"]
    for command in (["audit", "verify"], ["audit", "show"], ["audit", "show", "--path", "a.md"], ["blame", "b.md"]):
        for json_ in ([], ["--json"]):
            done = CliRunner().invoke(app, ["--url", str(root), "--agent", "other", *json_, *command])
            if done.exception and not isinstance(done.exception, SystemExit):
                raise done.exception
    undo = ["--url", str(root), "--agent", "other", "undo", "--by", "ann", "--dry-run"]
    done = CliRunner().invoke(app, undo)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert (done.exit_code, "undo leaves the new name" in done.output) == (1, True), done.output


@pytest.mark.parametrize("event", ["begin", "append"])
def test_an_odd_record(store: Path, event: str) -> None:
    file = log_of(store)
    lines = file.read_bytes().splitlines(keepends=True)
    wanted = b'"event":"begin"' if event == "begin" else b'"operation":"append"'
    line = next(each for each in lines if wanted in each)
    failed = []
    for name, odd in odd_lines(line):
        file.write_bytes(b"".join(lines) + odd)
        try:
            read_all(store)
        except Exception as error:  # noqa: BLE001 - the test reports every failing member
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert failed == []


def test_an_odd_salt_of_one_agent(store: Path) -> None:
    salt = next((store / ".agent-memory").rglob("odd.salt"))
    failed = []
    for data in (*WHOLE_FILES, b"x" * SIXTY_MB):
        salt.write_bytes(data)
        try:
            location = log_at(store.as_uri())
            kinds = {finding.kind for finding in verify(location).findings}
            location.store.close()
            assert "salt" in kinds
            read_all(store)
            url = f"{store.as_uri()}?durability=process"
            with AgentMemoryService(url, plugins=[AuditPlugin(url, required=True)], actor="ann") as service:
                service.agent("other").write("b.md", "x")
        except Exception as error:  # noqa: BLE001 - the test reports every failing member
            failed.append(f"{data[:10]!r}: {type(error).__name__}: {str(error)[:200]}")
    assert failed == []


def test_an_odd_checkpoint_is_refused_with_its_line() -> None:
    good: dict[str, Any] = {"time": 1.0, "writer": "a", "seq": 1, "hash": "b", "log": "c"}
    assert len(list(checkpoints_in(json.dumps(good).encode() + b"\n"))) == 1
    messages = set()
    for _, odd in odd_objects(good):
        try:
            assert all(isinstance(each.seq, int) for each in checkpoints_in(odd + b"\n\n"))
        except ValueError as error:
            messages.add(str(error))
    assert messages == {"line 1 is not a checkpoint"}


@pytest.mark.parametrize("end", [b"", b"\0\0\0"])
def test_a_checkpoint_that_a_killed_process_began_is_skipped(end: bytes) -> None:
    whole = json.dumps({"time": 1.0, "writer": "a", "seq": 1, "hash": "b", "log": "c"}).encode()
    for length in range(len(whole)):
        data = b"\n".join((whole, whole[:length] + end, whole, b""))
        assert [each.seq for each in checkpoints_in(data)] == [1, 1]
