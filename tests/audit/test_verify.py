"""Every manipulation of a log is reported with its line."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import Finding, log_at, verify
from agent_memory.audit.record import encode, head
from agent_memory.audit.verifier import Verifier
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import checkpoints_in

WRITERS, OPERATIONS = 3, 6
Anchors = dict[tuple[str, int], str]
KEY = b"sixteen bytes or more"


def written(directory: Path, *, key: bytes | None = None, checkpoint_every: int = 1000) -> tuple[list[bytes], Anchors]:
    """The lines of a real log of alternating writers, and its checkpoints."""
    services, audits = [], []
    for number in range(WRITERS):
        audit = AuditPlugin(
            directory / "audit.jsonl", required=True, key=key,
            checkpoints=directory / f"heads-{number}.jsonl", checkpoint_every=checkpoint_every,
        )  # fmt: skip
        audits.append(audit)
        services.append(AgentMemoryService("memory://verify", plugins=[audit], actor=f"actor {number}"))
    for turn in range(OPERATIONS):
        for service in services:
            service.write_memory_file("bob", "日記.md", f"{turn}")
    for audit in audits:
        audit.close()
    lines = (directory / "audit.jsonl").read_bytes().splitlines(keepends=True)
    found = b"".join(path.read_bytes() for path in sorted(directory.glob("heads-*.jsonl")))
    return lines, {(each.writer, each.seq): each.hash for each in checkpoints_in(found)}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], Anchors]:
    return written(tmp_path_factory.mktemp("log"))


def findings(lines: Sequence[bytes], anchors: Anchors, key: bytes | None = None) -> list[Finding]:
    verifier = Verifier(anchors, key)
    verifier.feed("log", b"".join(lines))
    if verifier.links:
        verifier.follow_links(b"".join(lines))
    return list(verifier.verdict.findings)


def told(found: Sequence[Finding]) -> list[tuple[str, int]]:
    return sorted((finding.kind, finding.line.number) for finding in found)


def writer_of(line: bytes) -> str:
    found = head(line.rstrip(b"\n"))
    assert found
    return found.writer


def neighbours(lines: Sequence[bytes]) -> list[tuple[int, int]]:
    """The indexes of each record and of the next record of its writer."""
    last: dict[str, int] = {}
    pairs = []
    for place, line in enumerate(lines):
        if (before := last.get(writer_of(line))) is not None:
            pairs.append((before, place))
        last[writer_of(line)] = place
    return pairs


def test_an_unchanged_log_has_no_findings(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    assert len(lines) == WRITERS * (OPERATIONS + 1)
    assert findings(lines, anchors) == []


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.long)])
def test_any_flipped_bit_is_reported_with_its_line(log: tuple[list[bytes], Anchors], step: int) -> None:
    lines, anchors = log
    whole = b"".join(lines)
    for bit in range(0, 8 * len(whole), step):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        line = whole.count(b"\n", 0, bit // 8) + 1
        assert ("edited", line) in told(findings([bytes(flipped)], anchors)), bit


def test_a_removed_line_is_reported_at_the_writers_next_line(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    followed = dict(neighbours(lines))
    for place in range(len(lines)):
        found = told(findings([*lines[:place], *lines[place + 1 :]], anchors))
        if next_of := followed.get(place):
            assert ("missing", next_of) in found  # the next line has moved up by one
        else:
            (kind, at), *_ = found
            assert (kind, lines[at - 1]) == ("truncated", lines[{b: a for a, b in followed.items()}[place]])


def test_swapped_lines_of_one_writer_are_reported(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    for first, second in neighbours(lines):
        swapped = list(lines)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        assert ("reordered", second + 1) in told(findings(swapped, anchors))


def test_the_records_that_stay_missing_are_reported_as_ranges() -> None:
    lines = chained(10)
    order = [1, 9, 4, 6, 5, 4]
    found = findings([lines[seq - 1] for seq in order], {})
    assert [each.detail for each in found if each.kind == "missing"] == [
        f"{missing} of writer {WRITER}, before this line" for missing in ("records 2 to 3", "records 7 to 8")
    ]
    assert told(found)[-4:] == [("reordered", 3), ("reordered", 4), ("reordered", 5), ("unanchored", 1)]
    assert ("duplicated", 6) in told(found)


WRITER = "a" * 16


def chained(number: int) -> list[bytes]:
    """The records of one writer."""
    lines, prev = [], "0" * 64
    for seq in range(1, number + 1):
        line, prev = encode(WRITER, seq, prev, "begin" if seq == 1 else "operation", 0, {})
        lines.append(line)
    return lines


def steps(action: Callable[[], object]) -> int:
    """The number of lines of Python that an action runs."""
    count = 0

    def traced(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:  # noqa: ARG001 - a trace function
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


class Compared(str):
    """A text whose comparisons are lines of Python, so that `steps` counts them."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str(self) == other


def filled_from_the_end(number: int) -> Callable[[], object]:
    """Every second record stands after the others, the last one first, so that each fills a gap."""
    lines = chained(number)
    return partial(findings, lines[0::2] + lines[1::2][::-1], {})


def duplicated_after_gaps(number: int) -> Callable[[], object]:
    """Every second record is missing, and each of the others stands twice."""
    lines = chained(number)[0::2]
    return partial(findings, lines + lines, {})


def without_writers(number: int) -> Callable[[], object]:
    """According to the checkpoints of many logs, all other writers are missing."""
    writers = [f"{writer:016x}" for writer in range(number)]
    logs = {writer: Compared(f"log {writer}") for writer in writers}

    def verified() -> None:
        verifier = Verifier({(writer, 1): "0" * 64 for writer in writers}, logs=logs, identity="this log")
        verifier.feed("log", b"".join(chained(1)))
        assert verifier.verdict

    return verified


@pytest.mark.parametrize("damaged", [filled_from_the_end, duplicated_after_gaps, without_writers])
def test_the_steps_of_a_verification_grow_linearly_with_the_damage(
    damaged: Callable[[int], Callable[[], object]],
) -> None:
    small, large = (steps(damaged(number)) for number in (100, 800))
    assert large < 1.5 * 8 * small


def test_a_duplicated_line_is_reported(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    for place, line in enumerate(lines):
        for to in range(place + 1, len(lines) + 1):
            assert told(findings([*lines[:to], line, *lines[to:]], anchors)) == [("duplicated", to + 1)]


@pytest.mark.parametrize(
    "forged", [b"\n", b"{}\n", b"{\n", b'{"event":"operation"}\n', b"\0\xff\n", b"9" * 5000 + b"\n"]
)
def test_an_inserted_line_is_reported(log: tuple[list[bytes], Anchors], forged: bytes) -> None:
    lines, anchors = log
    for to in range(len(lines) + 1):
        kinds = told(findings([*lines[:to], forged, *lines[to:]], anchors))
        assert kinds == [("torn" if forged == b"{\n" else "edited", to + 1)]


@pytest.mark.parametrize("cut", range(1, WRITERS * (OPERATIONS + 1)))
def test_a_tail_cut_off_before_a_checkpoint_is_reported(log: tuple[list[bytes], Anchors], cut: int) -> None:
    lines, anchors = log
    left = lines[:-cut]
    found = findings(left, anchors)
    ends = {writer_of(line): place + 1 for place, line in enumerate(left)}
    shortened = {writer_of(line) for line in lines[-cut:]}
    expected = [("truncated", ends[writer]) if writer in ends else ("missing", 0) for writer in shortened]
    assert Counter(each for each in told(found) if each[0] != "unanchored") == Counter(expected)


def test_records_without_a_checkpoint_are_reported_as_a_range(tmp_path: Path) -> None:
    lines, anchors = written(tmp_path, checkpoint_every=3)
    early = {anchor: digest for anchor, digest in anchors.items() if anchor[1] <= 6}
    found = findings(lines, early)
    assert {finding.kind for finding in found} == {"unanchored"}
    assert len(found) == WRITERS
    assert all(finding.last and finding.line.number <= finding.last.number for finding in found)
    began = [place for place, line in enumerate(lines, 1) if b'"event":"begin"' in line]
    assert told(findings(lines, {})) == [("unanchored", place) for place in began]


def rewritten(line: bytes, change: Callable[[str], str], key: bytes | None = None) -> bytes:
    """A record with changed facts and a matching hash, as an attacker with write access to the log makes it."""
    record = json.loads(line)
    facts = {name: value for name, value in record.items() if name not in _HEAD}
    facts["path"] = change(str(facts.get("path")))
    from datetime import datetime

    seconds = datetime.fromisoformat(record["time"]).timestamp()
    return encode(record["writer"], record["seq"], record["prev"], record["event"], seconds, facts, key)[0]


_HEAD = ("v", "alg", "bytes", "writer", "seq", "prev", "event", "time", "hash")


def test_a_changed_record_with_a_matching_hash_is_reported(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    for place, line in enumerate(lines):
        forged = [*lines[:place], rewritten(line, lambda _: "other.md"), *lines[place + 1 :]]
        assert ("edited", place + 1) in told(findings(forged, anchors))


def test_a_record_forged_without_the_key_is_reported(tmp_path: Path) -> None:
    lines, anchors = written(tmp_path, key=KEY)
    assert findings(lines, anchors, KEY) == []
    forged = rewritten(lines[-1], lambda _: "other.md")
    assert ("edited", len(lines)) in told(findings([*lines[:-1], forged], {}, KEY))
    forged = rewritten(lines[-1], lambda _: "other.md", b"another key of 16 bytes")
    assert ("edited", len(lines)) in told(findings([*lines[:-1], forged], {}, KEY))
    with pytest.raises(ValueError, match="keyed"):
        findings(lines, anchors)


def test_a_log_of_several_segments_verifies_as_one_log(tmp_path: Path) -> None:
    with (
        AuditPlugin(tmp_path / "audit.jsonl", required=True, max_segment_bytes=1500) as audit,
        AgentMemoryService("memory://segments", plugins=[audit]) as service,
    ):
        for turn in range(20):
            service.append_to_memory_file("bob", "log.md", f"{turn}\n")
    parts = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert len(parts) > 3
    verdict = verify(log_at(tmp_path / "audit.jsonl"))
    assert (verdict.is_intact, verdict.writers, verdict.records) == (True, 1, 20 + len(parts))
    (tmp_path / "audit.2.jsonl").unlink()
    verdict = verify(log_at(tmp_path / "audit.jsonl"))
    assert {finding.kind for finding in verdict.findings} >= {"missing"}
    assert not verdict.is_intact


def test_a_completely_removed_writer_is_reported_by_a_later_writers_first_record(tmp_path: Path) -> None:
    lines, _ = written(tmp_path)
    first = writer_of(lines[0])
    left = [line for line in lines if writer_of(line) != first]
    assert ("missing", 1) in told(findings(left, {}))


def test_a_torn_line_is_distinguished_from_an_edited_one(log: tuple[list[bytes], Anchors]) -> None:
    lines, _ = log
    for size in range(1, len(lines[-1]) - 1):
        found = told(findings([*lines[:-1], lines[-1][:size]], {}))
        assert [each for each in found if each[0] != "unanchored"] == [("torn", len(lines))], size


def test_a_forged_partial_line_is_reported_as_edited_not_as_torn(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    head_ends = lines[-1].index(b'"time":"') + len(b'"time":"')
    again = [*lines, lines[-1][:-5]]
    hidden = [*lines[:-1], lines[-1][:head_ends] + b"\x1b[2J"]
    of_another_chain = [*lines[:-1], lines[-2][:-5]]
    for forged in (again, hidden, of_another_chain):
        assert ("edited", len(forged)) in told(findings(forged, anchors))


def test_an_edited_first_record_of_a_writer_gives_one_finding(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    for place, line in enumerate(lines):
        if b'"event":"begin"' in line:
            edited = [*lines[:place], line.replace(b'"time":"20', b'"time":"21'), *lines[place + 1 :]]
            assert told(findings(edited, anchors)) == [("edited", place + 1)]


def test_a_line_edited_to_look_keyed_is_reported_as_edited(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    for place, line in enumerate(lines):
        keyed = [*lines[:place], line.replace(b'"sha256"', b'"hmac-sha256"', 1), *lines[place + 1 :]]
        assert ("edited", place + 1) in told(findings(keyed, anchors))


def test_verifying_a_damaged_log_raises_no_exception(log: tuple[list[bytes], Anchors]) -> None:
    lines, anchors = log
    random_ = random.Random(1)
    whole = b"".join(lines)
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random_.randint(1, 20)):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        at = random_.randrange(len(damaged))
        del damaged[at : at + random_.choice((0, 0, 1, 50, 1000))]
        assert findings([bytes(damaged)], anchors)


def test_a_forged_record_is_reported_although_a_forged_writer_confirms_it(log: tuple[list[bytes], Anchors]) -> None:
    lines, _ = log
    whole = head(lines[3].rstrip(b"\n"))
    assert whole
    forged = rewritten(lines[3], lambda _: "other.md")
    honest, _ = encode("e" * 16, 1, "0" * 64, "begin", 0, {"seen": [whole.writer, whole.seq, whole.hash]})
    other = head(forged.rstrip(b"\n"))
    assert other
    made_up, _ = encode("f" * 16, 1, "0" * 64, "begin", 0, {"seen": [other.writer, other.seq, other.hash]})
    chain = [line for line in lines if writer_of(line) == whole.writer]
    before, after = chain[: whole.seq - 1], chain[whole.seq :]
    # forge the rest of the chain after the forged record; the writer that began later has seen the true record
    remade, prev = [], other.hash
    for line in after:
        record = json.loads(line)
        facts = {name: value for name, value in record.items() if name not in _HEAD}
        fresh, prev = encode(whole.writer, record["seq"], prev, record["event"], 0, facts)
        remade.append(fresh)
    found = told(findings([*before, forged, *remade, honest, made_up], {}))
    assert ("edited", len(before) + 1 + len(remade) + 1) in found


@pytest.mark.parametrize("seen", [5, ["x"], ["w", "2", "h"], [["q"], 1, "x"], {"a": 1}, []])
def test_a_forged_begin_record_is_reported(log: tuple[list[bytes], Anchors], seen: object) -> None:
    lines, anchors = log
    forged, _ = encode("f" * 16, 1, "0" * 64, "begin", 0, {"seen": seen})
    assert ("edited", len(lines) + 1) in told(findings([*lines, forged], anchors))
