"""Records of processes that were restored from one image of a process: a chain with branches is intact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import Finding, Verdict, log_at, records, verify
from agent_memory.audit.log import BatchedLog, LogBatch
from agent_memory.audit.record import START, encode, head
from agent_memory.audit.verifier import Verifier
from tests.support.cloned_races import AGENT, BY_NAME, CLONES, audit_of, changed, fill, prepared, told
from tests.support.images import CAN_CLONE, from_image
from tests.support.servers import Root, S3Server

WRITER = "a" * 16
Anchors = dict[tuple[str, int], set[str]]


def chain(names: str, seq: int = 0, prev: str = START, writer: str = WRITER) -> list[bytes]:
    """Records with these names as facts, after record ``seq``."""
    lines = []
    for name in names:
        seq += 1
        line, prev = encode(writer, seq, prev, "operation", 0.0, {"path": name})
        lines.append(line)
    return lines


def after(line: bytes, names: str) -> list[bytes]:
    """Records that follow one of a chain."""
    found = head(line.rstrip(b"\n"))
    assert found
    return chain(names, found.seq, found.hash, found.writer)


def verdict_of(lines: Sequence[bytes], anchors: Anchors | None = None) -> Verdict:
    verifier = Verifier(anchors)
    verifier.feed("log", b"".join(lines))
    for line in lines if verifier.links else ():
        verifier.follow_links(line)
    return verifier.verdict


def told_by(lines: Sequence[bytes], anchors: Anchors | None = None) -> list[tuple[str, int]]:
    found: Sequence[Finding] = verdict_of(lines, anchors).findings
    return sorted((finding.kind, finding.line.number) for finding in found if finding.kind != "unanchored")


def anchored(*ends: bytes) -> Anchors:
    anchors: Anchors = {}
    for line in ends:
        found = head(line.rstrip(b"\n"))
        assert found
        anchors.setdefault((found.writer, found.seq), set()).add(found.hash)
    return anchors


IMAGE = chain("abc")
ONE, TWO = after(IMAGE[2], "def"), after(IMAGE[2], "uvwx")
WOVEN = [*IMAGE, ONE[0], TWO[0], TWO[1], ONE[1], ONE[2], TWO[2], TWO[3]]
"""The records of two clones: lines 4, 7, 8 and 5, 6, 9, 10."""


def test_records_of_two_clones_are_a_branch_and_no_finding() -> None:
    verdict = verdict_of(WOVEN, anchored(ONE[-1], TWO[-1]))
    assert (verdict.findings, verdict.records, verdict.writers, verdict.branches) == ((), len(WOVEN), 1, 1)
    assert verdict.is_intact


def test_a_branch_may_begin_at_any_record() -> None:
    late = [*IMAGE, *ONE, *after(IMAGE[0], "p"), *after(ONE[0], "q"), *chain("z"), *after(ONE[2], "r")]
    verdict = verdict_of(late)
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}
    assert verdict.branches == 3


def test_clones_of_an_image_without_a_record_begin_twice() -> None:
    verdict = verdict_of([*chain("a"), *chain("a"), *chain("a")])
    assert (verdict.is_intact, verdict.branches, verdict.writers) == (True, 2, 1)


def test_branches_of_a_keyed_log_are_intact() -> None:
    key = b"sixteen bytes or more"
    first, digest = encode(WRITER, 1, START, "begin", 0.0, {}, key)
    lines = [first, *(encode(WRITER, 2, digest, "operation", 0.0, {"path": name}, key)[0] for name in "ab")]
    verifier = Verifier(key=key)
    verifier.feed("log", b"".join(lines))
    verifier.follow_links(b"".join(lines))
    verdict = verifier.verdict
    assert (verdict.is_intact, verdict.branches) == (True, 1)


def test_the_same_line_twice_is_reported_in_any_branch() -> None:
    ends = anchored(ONE[-1], TWO[-1])
    for place, line in enumerate(WOVEN):
        for to in range(place + 1, len(WOVEN) + 1):
            lines = [*WOVEN[:to], line, *WOVEN[to:]]
            assert told_by(lines, ends) == [("duplicated", to + 1)], (place, to)


def test_a_copied_range_is_reported_as_a_range() -> None:
    findings = verdict_of([*WOVEN, *TWO], anchored(ONE[-1], TWO[-1])).findings
    assert [(found.kind, found.line.number, found.last and found.last.number) for found in findings] == [
        ("duplicated", 11, 14)
    ]


def test_a_removed_record_of_a_branch_is_reported() -> None:
    ends = anchored(ONE[-1], TWO[-1])
    for place in range(len(WOVEN)):
        assert told_by([*WOVEN[:place], *WOVEN[place + 1 :]], ends), place


def test_a_removed_branch_is_reported_by_its_checkpoint() -> None:
    ends = anchored(ONE[-1], TWO[-1])
    assert told_by([*IMAGE, *TWO], ends) == [("edited", 6)]
    assert told_by([*IMAGE, *ONE], ends) == [("truncated", 6)]


def test_a_changed_record_of_a_branch_is_reported() -> None:
    for place in range(len(WOVEN)):
        found = head(WOVEN[place].rstrip(b"\n"))
        assert found
        forged = [*WOVEN]
        (forged[place],) = chain("!", found.seq - 1, found.prev)
        expected = ("edited", place + 1)
        assert expected in told_by(forged, anchored(ONE[-1], TWO[-1])), place


def test_a_changed_copy_of_a_record_is_no_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = head(TWO[1].rstrip(b"\n"))
    assert found
    monkeypatch.setattr("secrets.token_hex", lambda _: found.nonce)
    forged = chain("!", found.seq - 1, found.prev)
    assert told_by([*WOVEN, *forged], anchored(ONE[-1], TWO[-1])) == [("edited", len(WOVEN) + 1)]


def test_a_writer_may_have_seen_a_record_of_any_branch() -> None:
    for seen in (head(ONE[1].rstrip(b"\n")), head(TWO[1].rstrip(b"\n"))):
        assert seen
        line, _ = encode("b" * 16, 1, START, "begin", 0.0, {"seen": [seen.writer, seen.seq, seen.hash]})
        assert told_by([*WOVEN, line]) == []
        wrong, _ = encode("b" * 16, 1, START, "begin", 0.0, {"seen": [seen.writer, seen.seq, "0" * 64]})
        assert told_by([*WOVEN, wrong]) == [("edited", len(WOVEN) + 1)]


def test_records_that_differ_only_by_their_nonces_are_different_lines() -> None:
    one, two = encode(WRITER, 1, START, "begin", 0.0, {}), encode(WRITER, 1, START, "begin", 0.0, {})
    assert one != two
    assert verdict_of([one[0], two[0]]).branches == 1


def test_batches_of_two_clones_at_one_moment_are_both_kept(tmp_path: Path) -> None:
    location = log_at(tmp_path.joinpath("root").as_uri())
    log = BatchedLog(location)
    one, two = (LogBatch(1.7e9, WRITER, 1, line) for line in chain("a") + chain("b"))
    log.append(one)
    two.doubtful = True
    log.append(two)
    one.doubtful = True
    log.append(one)  # it is there, so nothing is written again
    assert len(location.parts()) == 2
    verdict = verify(location, salts=False)
    assert (verdict.is_intact, verdict.records, verdict.branches) == (True, 2, 1)
    location.store.close()


@pytest.mark.skipif(not CAN_CLONE, reason="needs the system call clone of Linux")
@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=pytest.mark.long)], ids=["warm", "cold"])
@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=pytest.mark.long)])
def test_the_log_of_clones_is_intact(place: str, warm: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = Root(str(tmp_path / "root"), {})
    if place == "s3":
        server: S3Server = request.getfixturevalue("ministack")
        root = Root(server.new_url(), server.options)
    if not warm:
        with AgentMemoryService(root.url, storage_options=root.options) as service:
            fill(service.agent(AGENT))
    race = BY_NAME["append"]
    results = from_image(tmp_path, CLONES, prepared, changed, root, race.name, warm, True)
    assert told(root, race, results) == race.expected
    location = audit_of(root)
    verdict = verify(location)
    ids = [record["id"] for record in records(location) if record["event"] == "operation"]
    location.store.close()
    assert verdict.is_intact, verdict
    assert (verdict.writers, verdict.branches) == (1, CLONES - 1)
    assert len(set(ids)) == len(ids) >= 100, "two operations have one id"
