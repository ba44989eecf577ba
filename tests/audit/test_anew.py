"""A log that is begun anew: pruned, closed or restarted, raced by writers and stopped at each call of the storage."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryService, ConflictError, OperationDenied
from agent_memory.audit import LogLocation, records, verify
from agent_memory.audit import bases as bases_module
from agent_memory.audit import log as log_module
from agent_memory.audit.anew import Renewal
from agent_memory.audit.journal import Position
from agent_memory.audit.record import START, encode
from agent_memory.audit.verify import Proofs
from tests.audit.trial import FAR, Target, Trial, archived, lose
from tests.support import sizes
from tests.support.servers import S3Server


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that sets the day in which writers write."""
    day = ["2026-11-20"]
    monkeypatch.setattr(log_module, "_day", lambda: day[0])
    return lambda new: day.__setitem__(0, new)


@pytest.fixture(params=["file", "root", "s3"])
def trial(request: pytest.FixtureRequest, tmp_path: Path, ministack: S3Server) -> Trial:
    if request.param == "s3":
        return Trial(ministack.new_url(), tmp_path, ministack.options)
    return Trial(tmp_path / "audit.jsonl" if request.param == "file" else f"file://{tmp_path}/root", tmp_path)


def test_a_pruned_log_is_intact_since_then_and_its_writers_go_on(tmp_path: Path, days: Callable[[str], None]) -> None:
    trial = Trial(f"file://{tmp_path}/root", tmp_path)
    with trial.open() as audit, AgentMemoryService("memory://anew", plugins=[audit]) as service:
        service.append_to_memory_file("bob", "log.md", "old\n")
        then = time.time()
        days("2026-11-21")
        trial.write(3)
        days("2026-11-22")
        service.append_to_memory_file("bob", "log.md", "new\n")
        kept = len(trial.appends())
        base = trial.renewal().prune(then, "yearly")
        assert base is not None
        assert base.facts is not None
        assert [part.name for part in base.facts.removed] == ["2026-11-20.jsonl"]
        service.append_to_memory_file("bob", "log.md", "newer\n")
    assert len(trial.appends()) == kept
    verdict = trial.verdict()
    assert (verdict.findings, verdict.since) == ((), base.facts.time)
    shown = next(iter(records(trial.location)))
    assert (shown["event"], shown["reason"], shown["actor"]) == ("pruned", "yearly", "ops")


def test_nothing_is_pruned_if_each_part_has_a_later_record(trial: Trial) -> None:
    trial.write(2)
    assert trial.renewal().prune(1.0) is None
    assert len(trial.appends()) == 2
    assert trial.verdict().findings == ()


def test_a_closed_log_is_in_the_archive_and_begins_anew(trial: Trial, tmp_path: Path) -> None:
    trial.write(3)
    trial.write(2, "eve")
    archive = archived(trial, tmp_path / "archive")
    before = trial.appends()
    base = trial.renewal(archive=archive).close("moved")
    assert base is not None
    assert (trial.appends(), trial.appends(archive)) == ([], before)
    trial.write(1)
    assert (trial.verdict().findings, len(trial.appends())) == ((), 1)
    in_archive = trial.verdict(archive, archived=True, salts=False)
    assert (in_archive.findings, in_archive.since) == ((), None)


def test_an_archive_is_no_proof_of_a_log_that_was_put_back(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    archive = archived(trial, tmp_path / "archive")
    trial.renewal(archive=archive).close()
    trial.write(2)
    verdict = trial.verdict(archive, salts=False)
    assert not verdict.is_intact


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.bases/000001.jsonl"])
def test_a_change_in_an_archive_is_found(tmp_path: Path, name: str) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    trial.renewal(archive=archived(trial, tmp_path / "archive")).close("moved")
    file = tmp_path / "archive" / name
    file.write_bytes(file.read_bytes().replace(b'"actor":"ops"', b'"actor":"spo"', 1))
    for anchors in (trial.anchors(), {}):
        verdict = verify(archived(trial, tmp_path / "archive"), anchors, salts=False, archived=True)
        assert not verdict.is_intact


def test_an_archive_that_was_extended_or_emptied_is_found(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    archive = archived(trial, tmp_path / "archive")
    with trial.open() as audit, AgentMemoryService("memory://anew", plugins=[audit], actor="ops") as service:
        service.append_to_memory_file("bob", "log.md", "x\n")
        trial.renewal(archive=archive).close()
        service.append_to_memory_file("bob", "log.md", "x\n")
    part = tmp_path / "archive" / "audit.jsonl"
    assert trial.verdict(archive, archived=True, salts=False).findings == ()
    part.write_bytes(part.read_bytes() + (tmp_path / "audit.jsonl").read_bytes())
    assert not trial.verdict(archive, archived=True, salts=False).is_intact
    part.unlink()
    assert not trial.verdict(archive, archived=True, salts=False).is_intact


def test_an_archive_is_neither_the_log_itself_nor_another_log(trial: Trial, tmp_path: Path) -> None:
    trial.write(3)
    with pytest.raises(OperationDenied, match="place of the log itself"):
        trial.renewal(archive=trial.location).close()
    directory = tmp_path / "other"
    other = Trial(directory / "audit.jsonl" if isinstance(trial.target, Path) else f"file://{directory}", directory)
    directory.mkdir()
    other.write(1)
    with pytest.raises(OperationDenied, match="another audit log"):
        trial.renewal(archive=other.location).close()
    assert (trial.verdict().findings, len(trial.appends())) == ((), 3)


def test_a_second_archive_in_one_place_loses_nothing_of_the_first(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    for number in (1, 2):
        trial.write(3)
        if number == 1:
            trial.renewal(archive=archived(trial, tmp_path / "archive")).close()
    with pytest.raises(OperationDenied, match=r"another part 'audit\.jsonl'"):
        trial.renewal(archive=archived(trial, tmp_path / "archive")).close()
    assert len(trial.appends()) == len(trial.appends(archived(trial, tmp_path / "archive"))) == 3
    assert trial.verdict().findings == ()


def test_an_archive_that_loses_a_race_removes_nothing_of_the_other_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    renewal, copy = trial.renewal(archive=archived(trial, tmp_path / "archive")), Renewal._copy

    def raced(self: Renewal, *args: Any) -> None:
        trial.renewal().close("first")
        copy(self, *args)

    monkeypatch.setattr(Renewal, "_copy", raced)
    with pytest.raises(ConflictError, match="another call"):
        renewal.close("second")
    verdict = trial.verdict()
    assert (verdict.findings, verdict.since is not None) == ((), True)


def test_a_line_that_is_being_written_when_the_log_is_cut_is_not_lost(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    file, last = tmp_path / "audit.jsonl", trial.appends()[-1]
    data, heads = file.read_bytes(), trial.heads.read_bytes().splitlines(keepends=True)
    file.write_bytes(data[:-100])
    trial.heads.write_bytes(b"".join(heads[:-1]))  # the call of the last record has not returned yet
    renewal = trial.renewal()
    receive = renewal.receive
    assert receive is not None

    def received(position: Position, identity: str) -> None:
        with file.open("ab") as written:
            written.write(data[-100:])
        receive(position, identity)
        assert trial.verdict().is_intact

    dataclasses.replace(renewal, receive=received).close()
    trial.heads.write_bytes(trial.heads.read_bytes() + heads[-1])
    trial.write(1)
    assert trial.verdict().findings == ()
    assert (len(trial.appends()), trial.appends()[0]) == (2, last)


def test_a_part_that_one_call_cannot_read_is_archived_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    archive, location = archived(trial, tmp_path / "archive"), trial.location
    writer, digest, lines = "a" * 16, START, list[bytes]()
    for seq, facts in enumerate([{"log": location.make_identity()}, *[{"path": "x" * 30_000}] * 100], 1):
        line, digest = encode(writer, seq, digest, "refused" if seq > 1 else "begin", 1.0, facts)
        lines.append(line)
    (tmp_path / "audit.jsonl").write_bytes(b"".join(lines))
    with trial.open() as audit, AgentMemoryService("memory://anew", plugins=[audit]) as service:
        service.append_to_memory_file("bob", "log.md", "x\n")
        for store in (location.store, archive.store):
            monkeypatch.setattr(store.backend, "max_bytes", 2_000_000)
        monkeypatch.setattr(bases_module, "_BLOCK", 1_000_000)
        renewal = trial.renewal(location, archive=archive)
        receive = renewal.receive
        assert receive is not None

        def received(position: Position, identity: str) -> None:
            receive(position, identity)
            service.append_to_memory_file("bob", "log.md", "while it is removed\n")

        dataclasses.replace(renewal, receive=received).close()
        assert verify(location, trial.anchors()).findings == ()
    assert (len(trial.appends()), len(trial.appends(archive))) == (1, 1)
    assert (tmp_path / "audit.jsonl").stat().st_size < 2_000
    assert verify(location, trial.anchors()).findings == ()
    assert trial.verdict(archive, archived=True, salts=False).is_intact


class Stopped(BaseException):
    """The process ends."""


Call = Callable[[], object]


def stopping(location: LogLocation, at: int, *, after: bool) -> LogLocation:
    """A location whose store ends the process at a call, before or after the call has its effect."""
    store, calls = location.store, iter(range(10_000))

    def stops(verb: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            number = next(calls)
            if number == at and not after:
                raise Stopped
            found = verb(*args, **kwargs)
            if number == at:
                raise Stopped
            return found

        return called

    for name in ("read", "stat", "write", "delete", "list", "run"):
        setattr(store, name, stops(getattr(store, name)))
    return location


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["prune", "close", "restart"])
def test_the_log_is_intact_wherever_a_call_is_stopped(trial: Trial, tmp_path: Path, kind: str, after: bool) -> None:
    for at in range(0, 200, 20 if trial.options and not sizes.is_long else 1):
        one = Trial(_at(trial, at), tmp_path / str(at), trial.options)
        one.heads.parent.mkdir()
        one.write(2)
        one.write(2, "eve")
        if kind == "restart":
            one.write(1)
            lose(one.location)
        before = one.appends()
        renew = one.renewal(stopping(one.location, at, after=after), archive=None)
        try:
            _call(renew, kind)
        except Stopped:
            stopped = True
        else:
            stopped = False
        seen = one.appends()
        assert set(seen) <= set(before)
        _require_intact(one, kind)
        one.write(1, "zoe")
        again = one.renewal()
        if not (kind == "restart" and one.verdict().is_intact):
            _call(again, kind)
        _require_intact(one, kind, done=True)
        one.write(1, "zoe")
        assert one.verdict().is_intact, one.verdict()
        if not stopped:
            assert at > 3
            return
    raise AssertionError("the call never ended")


def _at(trial: Trial, at: int) -> Target:
    return (
        trial.target.parent / str(at) / trial.target.name if isinstance(trial.target, Path) else f"{trial.target}/{at}"
    )


def _call(renewal: Renewal, kind: str) -> object:
    calls: dict[str, Call] = {
        "prune": lambda: renewal.prune(FAR),
        "close": renewal.close,
        "restart": lambda: renewal.restart("lost a part"),
    }
    return calls[kind]()


def _require_intact(one: Trial, kind: str, *, done: bool = False) -> None:
    verdict = one.verdict()
    assert verdict.is_intact or (kind == "restart" and not done), verdict


def test_a_restart_needs_a_finding_and_names_it(trial: Trial) -> None:
    trial.write(3)
    with pytest.raises(OperationDenied, match="is intact"):
        trial.renewal().restart("for no reason")
    lose(trial.location)
    found = trial.verdict()
    assert not found.is_intact
    with pytest.raises(OperationDenied, match="findings"):
        trial.renewal().prune(FAR)
    trial.renewal().restart("a disk lost its end")
    trial.write(2)
    verdict = trial.verdict()
    assert (verdict.findings, verdict.known) == ((), found.findings)
    assert verdict.is_intact


def test_a_restart_after_a_lost_salt_lets_the_log_go_on(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(2)
    salt = tmp_path / "audit.jsonl.salts" / "bob.salt"
    salt.unlink()
    trial.renewal().restart("a backup without salts")
    assert ([each.kind for each in trial.verdict().known], trial.verdict().findings) == (["salt"], ())
    trial.write(2)
    assert trial.verdict().findings == ()
    salt.unlink()
    assert not trial.verdict().is_intact


def test_a_reason_is_bounded(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(1)
    with pytest.raises(ValueError, match="characters"):
        trial.renewal().close("x" * 5_000)
    trial.renewal().close("\U0001f600" * 4_000)
    assert next(iter(records(trial.location)))["event"] == "closed"


def test_a_change_after_a_restart_is_a_finding_again(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    lose(trial.location)
    trial.renewal().restart("a disk lost its end")
    trial.write(2)
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines(keepends=True)
    for number in range(len(lines)):
        (tmp_path / "audit.jsonl").write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
        assert not trial.verdict().is_intact, number
    (tmp_path / "audit.jsonl").write_bytes(b"".join(lines))
    assert trial.verdict().is_intact


def test_a_forged_base_is_found_by_the_checkpoints(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    anchors = trial.anchors()
    Renewal(trial.location, Proofs({}, None, None, {}, salts=True), "nobody").close("forged")
    verdict = verify(trial.location, anchors)
    assert [finding.kind for finding in verdict.findings if not finding.is_harmless] == ["base"]
    base = tmp_path / "audit.jsonl.bases" / "000001.jsonl"
    base.write_bytes(base.read_bytes().replace(b"forged", b"honest"))
    assert not verify(trial.location, anchors).is_intact
    assert not verify(trial.location).is_intact


def test_a_base_that_an_attacker_began_is_not_finished(tmp_path: Path, days: Callable[[str], None]) -> None:
    trial = Trial(f"file://{tmp_path}/root", tmp_path)
    trial.write(3)
    then = time.time()
    days("2026-11-21")
    trial.write(3)
    before, location = trial.appends(), trial.location
    forged = Renewal(stopping(location, 10_000, after=False), Proofs({}, None, location.identity(), {}, salts=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Renewal, "_finish", lambda *_: None)
        forged.close("yearly")
    assert trial.renewal().prune(1.0) is None
    with pytest.raises(OperationDenied, match="has no checkpoint"):
        trial.renewal().prune(then)
    assert trial.appends() == before
    base = trial.renewal(archive=archived(trial, tmp_path / "archive")).close("moved")
    assert base is not None
    assert (base.facts and base.facts.actor, trial.appends(), trial.verdict().findings) == ("ops", [], ())
    assert trial.appends(archived(trial, tmp_path / "archive")) == before


def test_a_receiver_without_checkpoints_to_compare_proves_no_forged_base(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "audit.jsonl", tmp_path)
    trial.write(3)
    Renewal(trial.location, Proofs({}, None, None, {}, salts=True), "nobody").close("forged")
    blind = dataclasses.replace(trial.renewal(), proofs=Proofs({}, None, None, {}, salts=True))
    blind.prune(FAR)
    assert not trial.verdict().is_intact


def test_writers_that_race_with_prunes_and_closes_lose_no_record(trial: Trial, tmp_path: Path) -> None:
    writers, rounds = 3, 6
    barrier, errors = threading.Barrier(writers + 1), list[BaseException]()

    def write(number: int) -> None:
        try:
            with trial.open() as audit, AgentMemoryService(f"memory://race-{number}", plugins=[audit]) as service:
                for _ in range(rounds):
                    barrier.wait()
                    for _ in range(3):
                        service.append_to_memory_file("bob", f"{number}.md", "x\n")
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    archives = []
    for turn in range(rounds):
        barrier.wait()
        archives.append(archived(trial, tmp_path / f"archive-{turn}"))
        renewal = trial.renewal(archive=archives[-1])
        _call(renewal, "close" if turn % 2 else "prune")
        assert trial.verdict().is_intact
    for thread in threads:
        thread.join()
    assert not errors
    found = [each for log in (*archives, trial.location) for each in trial.appends(log)]
    assert (len(found), len(set(found))) == (writers * rounds * 3, writers * rounds * 3)
    assert trial.verdict().is_intact
    for archive in archives:
        assert trial.verdict(archive, archived=True, salts=False).is_intact
