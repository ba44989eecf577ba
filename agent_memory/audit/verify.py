"""Whether an audit log is as its writers left it, and where not.

Every writer's records are a chain: each names the one before by its hash. So of a chain nothing in the middle can be
changed, taken out or moved; its end can be cut off unseen only behind the last checkpoint, and records of a writer that
is not anchored at all can be made up by whoever can write the log, unless the hashes are keyed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from agent_memory.audit.log import LogLocation
from agent_memory.audit.record import START, Head, facts_of, head, torn_from
from agent_memory.audit.salts import Salts
from agent_memory.key.quoting import field

FindingKind: TypeAlias = Literal[
    "edited", "missing", "reordered", "duplicated", "truncated", "foreign", "salt", "torn", "unanchored"
]
HARMLESS: Final = ("torn", "unanchored")
"""What a crash, or the lack of a checkpoint, leaves behind too."""
_LINKING = ("begin", "segment")
_COMMITS, _FORGETS = b',"commitment":"', b',"salt":"destroyed"'
"""What the line of a record holds that is about a salt; in a text, its quotes would be escaped."""


class Line(NamedTuple):
    """A line of a log: its file, and its number, from 1; without a file, the whole log."""

    part: str
    number: int

    def __str__(self) -> str:
        return f"{self.part}:{self.number}" if self.part else "the log"


class Finding(NamedTuple):
    """Something that is not as it was written, or that nothing vouches for; ``last`` ends a range of lines."""

    kind: FindingKind
    line: Line
    detail: str
    last: Line | None = None

    def __str__(self) -> str:
        return f"{self.line}{f' to {self.last}' if self.last else ''}: {self.kind}: {self.detail}"


class Verdict(NamedTuple):
    """What was found in a log of so many records, by so many writers."""

    findings: tuple[Finding, ...]
    records: int
    writers: int

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found but what a crash or the lack of a checkpoint leaves."""
        return all(finding.kind in HARMLESS for finding in self.findings)


class _Chain:
    """How far one writer's records were followed."""

    __slots__ = ("hash", "line", "missing", "seq", "since")

    def __init__(self) -> None:
        self.seq = 0
        self.hash: str | None = START  # None: not known, because the record was edited
        self.line: Line | None = None
        self.missing: list[tuple[int, int, Line]] = []
        self.since: Line | None = None

    def fill(self, seq: int) -> bool:
        """Take a record that was missing for found; False if it was not missing."""
        for place, (first, last, at) in enumerate(self.missing):
            if first <= seq <= last:
                rest = [(first, seq - 1, at), (seq + 1, last, at)]
                self.missing[place : place + 1] = [each for each in rest if each[0] <= each[1]]
                return True
        return False


class _SaltRecords(NamedTuple):
    """The salts of one agent that records were made with: those of now, and those that a forget destroyed."""

    current: dict[str, Line]
    forgotten: set[str]


Anchors: TypeAlias = Mapping[tuple[str, int], str]


class Verifier:
    """Follows the records of all writers, line by line in the order of the log.

    ``links`` are the records that a writer saw when it began, and that have to be looked for once more.

    Args:
        anchors: the hashes that checkpoints vouch for, by writer and number.
        key: the hashes' key; then a record without one is a forgery.
        identity: the log's; without one, that of the writer that began first.
        logs: the identity of each writer's log, as checkpoints tell it. If one of them is this log, the writers of
            the others are not missing here.
    """

    def __init__(
        self,
        anchors: Anchors | None = None,
        key: bytes | None = None,
        identity: str | None = None,
        logs: Mapping[str, str] | None = None,
    ) -> None:
        self._key = key
        self._logs = logs or {}
        self._identity = identity
        self._salts: dict[str | None, _SaltRecords] = {}
        self._anchors = dict(anchors or {})
        self._chains: dict[str, _Chain] = {}
        self._findings: list[Finding] = []
        self._records = 0
        self._keyed = 0
        self.links: dict[tuple[str, int], list[tuple[str, Line]]] = {}

    def feed(self, part: str, data: bytes, first: int = 1) -> int:
        """Follow whole lines, of which the first has this number; returns the number of the next one."""
        lines = data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for number, line in enumerate(lines, first):
            self._follow(line, Line(part, number))
        return first + len(lines)

    def verdict(self) -> Verdict:
        """What was found, in the order of the log's lines as far as they have one.

        Raises:
            ValueError: the records are keyed, and there is no key.
        """
        if self._keyed and not self._records:
            raise ValueError("the records are keyed: the key they were written with is needed")
        for writer, chain in self._chains.items():
            for first, last, at in chain.missing:
                self._report("missing", at, f"{_records(first, last)} of writer {writer}, before this line")
        self._judge_anchors()
        self._tell_unanchored()
        return Verdict(tuple(self._findings), self._records, len(self._chains))

    def _follow(self, line: bytes, at: Line) -> None:
        found = head(line, self._key)
        if found is None or not found.whole or (self._key and not found.keyed):
            self._fault(line, at, found)
            return
        self._records += 1
        chain = self._chains.get(found.writer)
        if chain is None:
            chain = self._chains[found.writer] = _Chain()
        if found.seq <= chain.seq:
            kind: FindingKind = "reordered" if chain.fill(found.seq) else "duplicated"
            self._report(kind, at, f"record {found.seq} of writer {found.writer}, which has come to {chain.seq}")
        else:
            if found.seq > chain.seq + 1:
                chain.missing.append((chain.seq + 1, found.seq - 1, at))
            elif chain.hash is not None and found.prev != chain.hash:
                self._report("edited", chain.line or at, f"the record after it, {at}, was written after another one")
            chain.seq, chain.hash, chain.line = found.seq, found.hash, at
            chain.since = chain.since or at
        if self._anchors:
            self._compare(chain, found, at)
        if found.event in _LINKING:
            self._link(line, at)
        elif _COMMITS in line or _FORGETS in line:
            self._note_salt(line, at)

    def _fault(self, line: bytes, at: Line, found: Head | None) -> None:
        if found is None:
            self._judge_fragment(line, at)
            return
        self._keyed += found.keyed and not self._key
        if found.keyed and not self._key:
            detail = "it is keyed, and the others are not"
        else:
            detail = "it has no key" if self._key and not found.keyed else "its hash is of other bytes"
        self._report("edited", at, detail)
        if self._continues(found.writer, found.seq, found.prev):  # then its head, at least, is true
            chain = self._chains.setdefault(found.writer, _Chain())
            chain.seq, chain.hash, chain.line = found.seq, None, at

    def _judge_fragment(self, line: bytes, at: Line) -> None:
        begun = torn_from(line)
        if begun is None or (begun and not self._continues(*begun)):
            self._report("edited", at, "it is no record")
        else:
            self._report("torn", at, "its writer ended in the middle of it, and did not acknowledge it")

    def _continues(self, writer: str, seq: int, prev: str) -> bool:
        """Whether a writer's next record says these things of itself."""
        chain = self._chains.get(writer) or _Chain()
        return (seq, prev) == (chain.seq + 1, chain.hash)

    def _compare(self, chain: _Chain, found: Head, at: Line) -> None:
        anchor = self._anchors.pop((found.writer, found.seq), None)
        if anchor is None:
            return
        if anchor != found.hash:
            self._report("edited", at, "a checkpoint has another hash for it")
        elif found.seq == chain.seq:
            chain.since = None

    def _link(self, line: bytes, at: Line) -> None:
        """Note what a writer saw before it began, if it is not the last record of that one."""
        try:
            facts = facts_of(line)
        except (ValueError, RecursionError):
            facts = {"seen": line}
        self._bind(facts.get("log"), at)
        match facts.get("seen"):
            case None:
                return
            case [str(writer), int(seq), str(digest)]:
                chain = self._chains.get(writer)
            case _:
                self._report("edited", at, "no writer begins like that")
                return
        if chain is None or chain.seq < seq:
            self._report("missing", at, f"record {seq} of writer {writer}, which stood before this line")
        elif chain.seq > seq:
            self.links.setdefault((writer, seq), []).append((digest, at))
        elif chain.hash not in (None, digest):
            self._report("edited", chain.line or at, f"the writer that began after it, {at}, saw another one")

    def _bind(self, identity: object, at: Line) -> None:
        """Hold a writer's beginning against the identity of the log."""
        if self._identity is None and isinstance(identity, str):
            self._identity = identity
        elif identity != self._identity:
            self._report("foreign", at, "a writer of another log began like that")

    def _note_salt(self, line: bytes, at: Line) -> None:
        try:
            facts = facts_of(line)
        except (ValueError, RecursionError):
            return
        agent, commitment = facts.get("agent"), facts.get("commitment")
        if not isinstance(agent, str | None):
            return
        salt = self._salts.setdefault(agent, _SaltRecords({}, set()))
        if isinstance(commitment, str) and commitment not in salt.forgotten:
            salt.current.setdefault(commitment, at)
        if facts.get("salt") == "destroyed":
            salt.forgotten.update(salt.current)
            salt.current.clear()

    def judge_salts(self, known: Callable[[str | None], str | None]) -> None:
        """Report the salts that are not those of the records; ``known`` tells the commitment to an agent's salt now."""
        for agent, salt in self._salts.items():
            name = "the operations without an agent" if agent is None else f"agent {field(agent)}"
            found = known(agent) if salt.current else None
            for commitment, at in salt.current.items():
                if found is None:
                    self._report("salt", at, f"the salt of {name} is gone, and no record tells that it was destroyed")
                elif commitment != found:
                    self._report("salt", at, f"the salt of {name} is another one, and no record tells why")

    def follow_links(self, data: bytes) -> None:
        """Look for the records that `links` names; once all lines were followed, if there are any."""
        for line in data.split(b"\n"):
            if found := head(line, self._key):
                for digest, at in self.links.pop((found.writer, found.seq), ()):
                    if found.whole and found.hash != digest:
                        self._report("edited", at, f"record {found.seq} of writer {found.writer} was another one then")

    def _judge_anchors(self) -> None:
        ends: dict[str, int] = {}
        for writer, seq in self._anchors:
            ends[writer] = max(seq, ends.get(writer, 0))
        for writer, seq in ends.items():
            chain = self._chains.get(writer)
            if chain is None:
                if not self._is_elsewhere(writer):
                    log = f" of log {field(self._logs[writer])}" if self._logs.get(writer) else ""
                    detail = f"all records of writer {field(writer)}{log}: a checkpoint has record {seq}"
                    self._report("missing", Line("", 0), detail)
            elif seq > chain.seq and chain.line:
                detail = f"the records of writer {writer} end here with {chain.seq}; a checkpoint has {seq}"
                self._report("truncated", chain.line, detail)

    def _is_elsewhere(self, writer: str) -> bool:
        """Whether checkpoints of several logs, this one among them, say that a writer is one of another log."""
        log = self._logs.get(writer)
        return bool(log) and log != self._identity and self._identity in self._logs.values()

    def _tell_unanchored(self) -> None:
        for writer, chain in self._chains.items():
            if chain.since and chain.line:
                detail = f"no checkpoint vouches for these records of writer {writer}"
                self._report("unanchored", chain.since, detail, chain.line)

    def _report(self, kind: FindingKind, at: Line, detail: str, last: Line | None = None) -> None:
        self._findings.append(Finding(kind, at, detail, last))


def _records(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def verify(
    location: LogLocation,
    anchors: Anchors | None = None,
    key: bytes | None = None,
    *,
    identity: str | None = None,
    logs: Mapping[str, str] | None = None,
    salts: bool = True,
) -> Verdict:
    """Follow a whole log, as it is now. Of one that is written meanwhile, checkpoints have to be read first.

    Args:
        location: the log.
        anchors: the hashes that checkpoints vouch for, by writer and number.
        key: the key of keyed hashes.
        identity: the log's, as a checkpoint tells it; left out, what stands beside the log.
        logs: the identity of each writer's log, as checkpoints tell it; needed where they are of several logs.
        salts: whether the salts should be there; False for a copy without them.

    Raises:
        ValueError: the log's records are keyed, and there is no key.
    """
    verifier = Verifier(anchors, key, identity or location.identity(), logs)
    parts = location.readers()
    for part, reader in parts:
        number = 1
        for block in location.blocks(part, reader):
            number = verifier.feed(location.name_of(part), block, number)
    if verifier.links:
        for part, reader in parts:
            for block in location.blocks(part, reader):
                verifier.follow_links(block)
    if salts:
        verifier.judge_salts(Salts(location).known_commitment)
    return verifier.verdict()
