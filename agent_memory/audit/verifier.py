"""`Verifier`: follows the lines of an audit log, and finds every place where it is not as its writers left it.

Each writer's records form a chain: a record contains the hash of the previous one. A change, removal or move inside a
chain is therefore found. Several records may follow one, if a process was restored several times from one image of its
memory; such branches are counted. The end of a chain can be cut off unnoticed only after its last checkpoint. An
attacker with write access to the log can invent records of a writer without any checkpoint, unless they are keyed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple, TypeAlias

from agent_memory.audit.chains import End, Numbered, RecordChain, Start, WriterChains
from agent_memory.audit.findings import Finding, FindingKind, Line, Verdict
from agent_memory.audit.location import MERGED_MARK
from agent_memory.audit.record import START, Head, facts_of, head, torn_from
from agent_memory.audit.salts import RecordedSalts, SaltFact
from agent_memory.key.quoting import field

_LINKING = ("begin", "segment")


class _Seen(NamedTuple):
    """A record that a writer saw when it began: its hash, the line that says so, and the line to blame."""

    writer: str
    seq: int
    hash: str
    at: Line
    blamed: Line


Anchors: TypeAlias = Mapping[tuple[str, int], str | Collection[str]]


class Verifier:
    """Follows the records of all writers, line by line in the order of the log.

    ``links`` are records that other records refer to, and that need a second pass over the log (`follow_links`): those
    that a writer saw when it began, and those at which a branch may begin.

    Args:
        anchors: the hash in the checkpoints, by writer and number; several hashes if the writer has branches.
        key: the key of the hashes; with it, a record without a keyed hash is a forgery.
        identity: the identity of the log; if None, the one that the first writer names.
        logs: the identity of each writer's log, from the checkpoints. If this log is one of them, writers of the
            other logs do not count as missing.
        is_archive: whether the log continues elsewhere, so that later checkpoints are no findings.
    """

    def __init__(
        self,
        anchors: Anchors | None = None,
        key: bytes | None = None,
        identity: str | None = None,
        logs: Mapping[str, str] | None = None,
        *,
        is_archive: bool = False,
    ) -> None:
        self._is_archive = is_archive
        self._key = key
        self._logs = logs or {}
        self._identities = set(self._logs.values())
        self._identity = identity
        self._salts = RecordedSalts()
        self._anchors = {
            record: {found} if isinstance(found, str) else set(found) for record, found in (anchors or {}).items()
        }
        self._unlike: dict[tuple[str, int], Line] = {}
        self._writers: dict[str, WriterChains] = {}
        self._findings: list[Finding] = []
        self._active: set[str] = set()
        self._records = 0
        self._branches = 0
        self._keyed = 0
        self._seen: list[_Seen] = []
        self.links: dict[tuple[str, int], Numbered] = {}

    def begin_at(self, ends: Iterable[End], salts: Iterable[SaltFact]) -> None:
        """Begin after records that are no longer in the log; ``ends`` are the ends of their chains."""
        for writer, seq, digest in ends:
            self._writers.setdefault(writer, WriterChains()).begin_at(seq, digest)
            if digest and digest not in self._anchors.get((writer, seq), {digest}):
                self.report("edited", Line("", 0), f"a checkpoint names another hash for record {seq} of {writer}")
        for writer, seq in list(self._anchors):
            if (chains := self._writers.get(writer)) and seq <= chains.base:
                del self._anchors[writer, seq]
        self._salts.begin_with(salts)

    def ends(self, *, beyond: bool = False) -> list[End]:
        """The ends of all chains; with ``beyond`` also the later records that checkpoints name."""
        found = [End(writer, *end) for writer, chains in self._writers.items() for end in chains.ends()]
        for (writer, seq), hashes in self._anchors.items() if beyond else ():
            chains = self._writers.get(writer)
            if chains is None or seq > chains.last:
                found += (End(writer, seq, digest) for digest in hashes)
        return found

    def salts(self) -> list[SaltFact]:
        """The salts that the records name."""
        return self._salts.facts()

    def feed(self, part: str, data: bytes, first: int = 1) -> int:
        """Follow whole lines; ``first`` is the number of the first line. Returns the number of the next line."""
        lines = data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for number, line in enumerate(lines, first):
            self._follow(line, Line(part, number))
        return first + len(lines)

    @cached_property
    def verdict(self) -> Verdict:
        """All findings, after all lines were followed; first those of single lines in the order of the log.

        Raises:
            ValueError: the records are keyed, and no key was given.
        """
        if self._keyed and not self._records:
            raise ValueError("the records of the audit log are keyed; verifying them needs their key")
        for writer, chains in self._writers.items():
            for start in chains.starts:
                self._judge_start(writer, chains, start)
            for first, last, at in chains.gaps:
                self.report("missing", at, f"{_records(first, last)} of writer {writer}, before this line")
        self._judge_seen()
        self._judge_anchors()
        self._tell_unanchored()
        return Verdict(tuple(self._findings), self._records, len(self._active), self._branches)

    def _follow(self, line: bytes, at: Line) -> None:
        if at.number == 1 and line.startswith(MERGED_MARK):
            return
        found = head(line, self._key)
        if found is None or not found.whole or (self._key and not found.keyed):
            self._fault(line, at, found)
            return
        self._records += 1
        self._active.add(found.writer)
        chains = self._writers.setdefault(found.writer, WriterChains())
        chain = None
        if chains.continued(found.seq, found.prev) is None and chains.fill(found.seq):
            detail = f"record {found.seq} of writer {found.writer} stands after its record {chains.last}"
            self.report("reordered", at, detail)
        else:
            starts = len(chains.starts)
            chain = chains.follow(found, at)
            if len(chains.starts) > starts:
                self._want(found.writer, found.seq)
                self._want(found.writer, found.seq - 1)
        if self._anchors:
            self._compare(chain, found, at)
        if found.event in _LINKING:
            self._link(line, at)
        else:
            self._salts.note(line, at)

    def _want(self, writer: str, seq: int) -> None:
        self.links.setdefault((writer, seq), Numbered())

    def _fault(self, line: bytes, at: Line, found: Head | None) -> None:
        if found is None:
            self._judge_fragment(line, at)
            return
        self._keyed += found.keyed and not self._key
        if found.keyed and not self._key:
            detail = "its hash is keyed, and those of the other records are not"
        else:
            detail = "its hash is not keyed" if self._key and not found.keyed else "its hash does not match its bytes"
        self.report("edited", at, detail)
        chains = self._writers.get(found.writer) or WriterChains()
        if chain := chains.continued(found.seq, found.prev):  # then at least its head is unchanged
            self._writers[found.writer] = chains
            chains.extend(chain, found.seq, None, at)

    def _judge_fragment(self, line: bytes, at: Line) -> None:
        begun = torn_from(line)
        if begun is None or (begun and not self._continues(*begun)):
            self.report("edited", at, "it is not a record")
        else:
            self.report("torn", at, "its writer stopped in the middle of it and did not acknowledge it")

    def _continues(self, writer: str, seq: int, prev: str) -> bool:
        """Whether the writer's next record must have this number and previous hash."""
        return (self._writers.get(writer) or WriterChains()).continued(seq, prev) is not None

    def _compare(self, chain: RecordChain | None, found: Head, at: Line) -> None:
        wanted = self._anchors.get((found.writer, found.seq))
        if wanted is None:
            return
        if found.hash not in wanted:
            self._unlike.setdefault((found.writer, found.seq), at)
            return
        wanted.discard(found.hash)
        if not wanted:
            del self._anchors[found.writer, found.seq]
        if chain is not None:
            chain.since = None

    def _link(self, line: bytes, at: Line) -> None:
        """Check the record that a writer saw when it began; note it in ``links`` if its chain has gone on since."""
        try:
            facts = facts_of(line)
        except ValueError:
            facts = {"seen": line}
        self._bind(facts.get("log"), at)
        match facts.get("seen"):
            case None:
                return
            case [str(writer), int(seq), str(digest)]:
                chains = self._writers.get(writer)
            case _:
                self.report("edited", at, "its field 'seen' is not a writer, a number and a hash")
                return
        if chains is None or chains.last < seq:
            self.report("missing", at, f"record {seq} of writer {writer}, which this line names as seen")
        elif not chains.has_end(seq, digest):
            ended = chains.ended(seq)
            self._want(writer, seq)
            self._seen.append(_Seen(writer, seq, digest, at, (ended and ended.line) or at))

    def _bind(self, identity: object, at: Line) -> None:
        """Compare the identity in a writer's first record with the identity of the log."""
        if self._identity is None and isinstance(identity, str):
            self._identity = identity
        elif identity != self._identity:
            self.report("foreign", at, "it names the identity of another log")

    def judge_salts(self, known: Callable[[str | None], str | None]) -> None:
        """Report salts that differ from the recorded ones; ``known`` returns the SHA-256 of an agent's present salt."""
        self._findings += self._salts.judged(known)

    def follow_links(self, data: bytes) -> None:
        """Find the records in `links`; call it, if there are any, after all lines were followed."""
        for line in data.split(b"\n"):
            found = head(line, self._key)
            if found and found.whole and found.keyed == bool(self._key) and (found.writer, found.seq) in self.links:
                self.links[found.writer, found.seq].add(found)

    def _judge_start(self, writer: str, chains: WriterChains, start: Start) -> None:
        """Tell a branch from a record that occurs twice, was changed, or has lost the record before it."""
        found, at = start.found, start.at
        same, earlier = self.links[writer, found.seq], self.links[writer, found.seq - 1].hashes
        if start.is_again or same.hashes[found.hash] > chains.started[found.hash]:
            del chains.chains[start.chain]
            last = start.chain.line if start.chain.line != at else None
            self.report("duplicated", at, f"record {found.seq} of writer {writer} occurs more than once", last)
        elif same.nonces[found.prev, found.nonce] > 1:
            self.report("edited", at, f"it repeats the nonce of another record {found.seq} of writer {writer}")
        elif (found.seq, found.prev) == (1, START) or found.prev in earlier:
            self._branches += 1
        elif found.seq - 1 <= chains.base:
            self._branches += 1  # it follows a record that is no longer in the log
        elif before := start.changed():
            self.report("edited", before.line or at, f"the next record, {at}, names another hash for it")
            chains.replace(before, start.chain)
        else:
            kind: FindingKind = "edited" if earlier else "missing"
            self.report(
                kind, at, f"record {found.seq - 1} of writer {writer}, as this line names it, is not in the log"
            )

    def _judge_seen(self) -> None:
        for seen in self._seen:
            hashes = self.links[seen.writer, seen.seq].hashes  # empty if it is missing, which its own chain shows
            if hashes and seen.hash not in hashes:
                detail = f"{seen.at} names another hash for record {seen.seq} of writer {seen.writer}"
                self.report("edited", seen.blamed, detail)

    def _judge_anchors(self) -> None:
        ends: dict[str, int] = {}
        for writer, seq in self._anchors:
            if at := self._unlike.get((writer, seq)):
                self.report("edited", at, "a checkpoint names another hash for it")
            else:
                ends[writer] = max(seq, ends.get(writer, 0))
        if self._is_archive:
            return
        for writer, seq in ends.items():
            chains = self._writers.get(writer)
            if chains is None:
                if not self._is_elsewhere(writer):
                    log = f" of log {field(self._logs[writer])}" if self._logs.get(writer) else ""
                    detail = f"all records of writer {field(writer)}{log}: a checkpoint names record {seq}"
                    self.report("missing", Line("", 0), detail)
            elif seq > chains.last and (ended := chains.ended(chains.last)):
                detail = f"the last record of writer {writer} is {chains.last}; a checkpoint names record {seq}"
                self.report("truncated", ended.line or Line("", 0), detail)

    def _is_elsewhere(self, writer: str) -> bool:
        """Whether the checkpoints are of several logs, including this one, and name another log for the writer."""
        log = self._logs.get(writer)
        return bool(log) and log != self._identity and self._identity in self._identities

    def _tell_unanchored(self) -> None:
        for writer, chains in self._writers.items():
            for chain in chains.chains:
                if chain.since and chain.line:
                    detail = f"no checkpoint covers these records of writer {writer}"
                    self.report("unanchored", chain.since, detail, chain.line)

    def report(self, kind: FindingKind, at: Line, detail: str, last: Line | None = None) -> None:
        """Add a finding."""
        self._findings.append(Finding(kind, at, detail, last))


def _records(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"
