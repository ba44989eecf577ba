"""Many processes, some killed: every acknowledged operation has its outcome record, and each chain is complete."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import log_at, verify
from agent_memory.audit.record import torn_from
from agent_memory.plugins.audit import AuditPlugin
from tests.support.processes import in_processes

long = pytest.mark.long


def append_audited(number: int, _: object, root: str, log: str, lines: int) -> None:
    with (
        AuditPlugin(log, required=True, max_segment_bytes=8_000) as audit,
        AgentMemoryService(root, plugins=[audit], actor=f"writer {number}") as service,
    ):
        for line in range(lines):
            service.append_to_memory_file("team", "log.txt", f"{number}:{line}\n")


def outcomes(directory: Path) -> list[dict[str, Any]]:
    """The outcomes in all complete lines; a killed process may leave an incomplete last line."""
    lines = [line for path in directory.glob("audit*.jsonl") for line in path.read_bytes().splitlines()]
    records = [json.loads(line) for line in lines if torn_from(line) is None]
    return [record for record in records if record["event"] == "operation"]


@pytest.mark.parametrize(("writers", "each"), [(4, 10), pytest.param(16, 50, marks=long)])
def test_the_log_has_exactly_one_outcome_for_each_operation(tmp_path: Path, writers: int, each: int) -> None:
    in_processes(writers, append_audited, str(tmp_path / "root"), str(tmp_path / "log" / "audit.jsonl"), each)
    found = outcomes(tmp_path / "log")
    assert Counter(record["actor"] for record in found) == {f"writer {n}": each for n in range(writers)}
    assert {record["outcome"] for record in found} == {"ok"}
    assert len({record["id"] for record in found}) == writers * each
    verdict = verify(log_at(tmp_path / "log" / "audit.jsonl"))
    assert (verdict.is_intact, verdict.writers) == (True, writers), verdict
    assert len(list((tmp_path / "log").glob("*.jsonl"))) > 1


_WORKER = """
import sys
from agent_memory import AgentMemoryService
from agent_memory.plugins.audit import AuditPlugin
root, log, name = sys.argv[1:]
service = AgentMemoryService(root, plugins=[AuditPlugin(log, required=True, intent=True)])
for number in range(1_000_000):
    service.append_to_memory_file("team", f"{name}-{number}.txt", "x")
    print(number, flush=True)
"""


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=long)])
def test_a_killed_process_leaves_no_acknowledged_operation_without_a_record(tmp_path: Path, kills: int) -> None:
    log = tmp_path / "log" / "audit.jsonl"
    acknowledged = set()
    for name in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(tmp_path / "root"), str(log), str(name)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert process.stdout
        seen = [process.stdout.readline() for _ in range(2)]
        time.sleep(random.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        with process:
            seen += process.stdout.readlines()
        acknowledged |= {f"{name}-{line.strip()}.txt" for line in seen if line.endswith("\n")}
    recorded = {record["path"] for record in outcomes(log.parent)}
    assert acknowledged <= recorded
    assert len(acknowledged) > kills
    assert verify(log_at(log)).is_intact
