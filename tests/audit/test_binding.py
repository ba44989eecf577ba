"""A log's chains and salts belong to it: records inserted from another log and removed salts are reported."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import Finding, log_at, verify
from agent_memory.audit.salts import Salts
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import checkpoints_in
from tests.support.servers import S3Server

KEY = b"sixteen bytes or more"


def written(target: Path, agents: tuple[str, ...] = ("bob",), heads: Path | None = None, segment: int = 10**6) -> None:
    """Write a few records to a keyed log with a new writer."""
    audit = AuditPlugin(target, required=True, key=KEY, max_segment_bytes=segment, checkpoints=heads)
    with audit, AgentMemoryService("memory://binding", plugins=[audit]) as service:
        for agent in agents:
            for turn in range(3):
                service.write_memory_file(agent, "a.md", f"{turn}")


def found(target: Path, *, identity: str | None = None, salts: bool = True) -> list[Finding]:
    findings = verify(log_at(target), key=KEY, identity=identity, salts=salts).findings
    return [finding for finding in findings if finding.kind != "unanchored"]


def kinds(target: Path, *, identity: str | None = None, salts: bool = True) -> list[str]:
    return [finding.kind for finding in found(target, identity=identity, salts=salts)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another log with the same key."""
    (tmp_path / "other").mkdir()
    written(tmp_path / "other" / "audit.jsonl")
    return tmp_path / "other" / "audit.jsonl"


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("identity", [True, False], ids=["identity", "no identity file"])
def test_a_chain_of_another_log_with_the_same_key_is_foreign(
    log: Path, other: Path, first: bool, identity: bool
) -> None:
    written(log)
    assert found(log) == []
    own, spliced = log.read_bytes(), other.read_bytes()
    log.write_bytes(spliced + own if first else own + spliced)
    if not identity:
        (log.parent / "audit.jsonl.identity").unlink()
    (finding,) = found(log, salts=False)
    assert finding.kind == "foreign"
    assert finding.line.number == (1 if first and identity else 5)


def test_every_writer_and_every_segment_has_the_logs_identity(log: Path) -> None:
    for _ in range(3):
        written(log, segment=800)
    parts = sorted(log.parent.glob("*.jsonl"))
    assert len(parts) > 3
    begun = [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]
    identities = {record.get("log") for record in begun if record["event"] in ("begin", "segment")}
    assert identities == {(log.parent / "audit.jsonl.identity").read_text().strip()}
    assert found(log) == []
    log.unlink()  # removes the beginning of the first chain, too
    assert set(kinds(log)) == {"missing"}
    written(log, segment=800)
    assert "foreign" not in kinds(log)


def test_a_log_with_a_replaced_identity_is_not_intact(log: Path, other: Path) -> None:
    written(log)
    (log.parent / "audit.jsonl.identity").write_bytes((other.parent / "audit.jsonl.identity").read_bytes())
    assert kinds(log) == ["foreign"]
    (log.parent / "audit.jsonl.identity").unlink()
    assert kinds(log) == []
    written(log)  # creates a new identity
    assert kinds(log) == ["foreign"]


def test_the_identity_in_a_checkpoint_reveals_that_the_whole_log_was_replaced(log: Path, other: Path) -> None:
    heads = log.parent / "heads.jsonl"
    written(log, heads=heads)
    checkpoint, *_ = checkpoints_in(heads.read_bytes())
    assert checkpoint.log == (log.parent / "audit.jsonl.identity").read_text().strip()
    assert kinds(log, identity=checkpoint.log) == []
    assert kinds(other, identity=checkpoint.log) == ["foreign"]


def test_an_invalid_identity_raises_an_error_and_loses_no_record(log: Path) -> None:
    (log.parent / "audit.jsonl.identity").write_text("x")
    with AuditPlugin(log, key=KEY) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
        with pytest.raises(Exception, match="not the identity of an audit log"):
            audit.flush()
        (log.parent / "audit.jsonl.identity").unlink()
    assert [json.loads(line)["event"] for line in log.read_bytes().splitlines()] == ["begin", "operation"]


def test_all_batches_of_a_log_on_s3_have_its_identity(ministack: S3Server) -> None:
    url = ministack.new_url()
    for _ in range(2):
        with (
            AuditPlugin(url, storage_options=ministack.options) as audit,
            AgentMemoryService("memory://", plugins=[audit]) as service,
        ):
            service.write_memory_file("bob", "a.md", "x")
    location = log_at(url, ministack.options)
    assert verify(location).is_intact
    assert verify(location, identity="f" * 32).findings[0].kind == "foreign"


def test_logs_whose_names_differ_only_by_suffix_share_no_identity_and_no_salt(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("audit.jsonl", "audit.log", "audit")]
    for log in logs:
        written(log)
    identities = {log_at(log).identity() for log in logs}
    commitments = {Salts(log_at(log)).known_commitment("bob") for log in logs}
    assert len(identities) == len(commitments) == len(logs)
    assert None not in identities | commitments
    for log in logs:
        assert found(log) == []
    other = logs[1].read_bytes()
    logs[1].write_bytes(other + logs[0].read_bytes())
    assert "foreign" in kinds(logs[1])


# Salts.


def salt(log: Path, agent: str = "bob") -> Path:
    return log.parent / "audit.jsonl.salts" / f"{agent}.salt"


def test_a_salt_removed_without_a_forget_is_reported_with_its_agent(log: Path) -> None:
    for _ in range(2):
        written(log, ("bob", "eve"))
    assert found(log) == []
    salt(log).unlink()
    (finding,) = found(log)
    assert (finding.kind, finding.line.number, "agent bob is missing" in finding.detail) == ("salt", 2, True)
    assert found(log, salts=False) == []


@pytest.mark.parametrize("write_on", [False, True])
def test_a_replaced_salt_is_reported(log: Path, write_on: bool) -> None:
    written(log)
    salt(log).write_text("a" * 64)
    if write_on:
        written(log)
    assert kinds(log) == ["salt"]


def test_a_salt_created_again_after_a_loss_is_reported(log: Path) -> None:
    written(log)
    salt(log).unlink()
    written(log)
    assert kinds(log) == ["salt"]


def test_a_salt_destroyed_by_a_forget_is_not_reported(log: Path) -> None:
    with (
        AuditPlugin(log, required=True, key=KEY) as audit,
        AgentMemoryService("memory://x", plugins=[audit]) as store,
    ):
        for _ in range(2):
            store.write_memory_file("bob", "a.md", "x")
            store.forget_memory("bob")
            assert found(log) == []
        store.write_memory_file("bob", "a.md", "x")
        assert found(log) == []
        salt(log).unlink()
        assert kinds(log) == ["salt"]


def test_each_writer_records_one_commitment_to_the_salt_of_each_agent(log: Path) -> None:
    for _ in range(2):
        written(log, ("bob", "eve"))
    records = [json.loads(line) for line in log.read_bytes().splitlines()]
    told = [(record["agent"], record["commitment"]) for record in records if "commitment" in record]
    commitments = {
        agent: hashlib.sha256(bytes.fromhex(salt(log, agent).read_text())).hexdigest() for agent in ("bob", "eve")
    }
    assert told == [("bob", commitments["bob"]), ("eve", commitments["eve"])] * 2


def test_a_name_cannot_forge_a_commitment(log: Path) -> None:
    with (
        AuditPlugin(log, required=True, key=KEY) as audit,
        AgentMemoryService("memory://x", plugins=[audit]) as store,
    ):
        forged = f',"commitment":"{"a" * 64}"' + ',"salt":"destroyed"'
        store.agent("bob").acting_as(forged, forged).write("a.md", "x")
    assert found(log) == []
    salt(log).unlink()
    assert kinds(log) == ["salt"]


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("b" * 64)])
def test_the_commitment_shows_a_changed_salt_to_the_next_process(log: Path, change: Callable[[Path], object]) -> None:
    salts = Salts(log_at(log))
    assert salts.take_commitment("bob") is None
    salts.digest("bob", "0" * 64, math.inf)
    first = salts.take_commitment("bob")
    assert first == salts.known_commitment("bob")
    assert salts.take_commitment("bob") is None
    change(salt(log))
    assert Salts(log_at(log)).known_commitment("bob") != first
