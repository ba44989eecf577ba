"""Verification of an audit log: every place where it is not as its writers left it.

Each writer's records form a chain: a record contains the hash of the previous one. A change, removal or move inside a
chain is therefore found. The end of a chain can be cut off unnoticed only after its last checkpoint. An attacker with
write access to the log can invent records of a writer without any checkpoint, unless the hashes are keyed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from agent_memory.audit.findings import Finding, FindingKind, Line, Verdict
from agent_memory.audit.log import LogLocation
from agent_memory.audit.record import START, Head, facts_of, head, torn_from
from agent_memory.audit.salts import Salts
from agent_memory.key.quoting import field

_LINKING = ("begin", "segment")
_COMMITS, _FORGETS = b',"commitment":"', b',"salt":"destroyed"'
"""Bytes of a record about a salt; no other record contains them, because quotes in a JSON string are escaped."""


class _Chain:
    """The state of one writer's chain while its records are followed."""

    __slots__ = ("hash", "line", "missing", "seq", "since")

    def __init__(self) -> None:
        self.seq = 0
        self.hash: str | None = START  # None: unknown, because the record was edited
        self.line: Line | None = None
        self.missing: list[tuple[int, int, Line]] = []
        self.since: Line | None = None

    def fill(self, seq: int) -> bool:
        """Remove a record from the missing ones; False if it was not missing."""
        for place, (first, last, at) in enumerate(self.missing):
            if first <= seq <= last:
                rest = [(first, seq - 1, at), (seq + 1, last, at)]
                self.missing[place : place + 1] = [each for each in rest if each[0] <= each[1]]
                return True
        return False


class _SaltRecords(NamedTuple):
    """The salts that an agent's records name: the current ones, and those that a forget destroyed."""

    current: dict[str, Line]
    forgotten: set[str]


Anchors: TypeAlias = Mapping[tuple[str, int], str]


class Verifier:
    """Follows the records of all writers, line by line in the order of the log.

    ``links`` are records that a writer saw when it began, and that need a second pass over the log (`follow_links`).

    Args:
        anchors: the hashes in the checkpoints, by writer and number.
        key: the key of the hashes; with it, a record without a keyed hash is a forgery.
        identity: the identity of the log; if None, the one that the first writer names.
        logs: the identity of each writer's log, from the checkpoints. If this log is one of them, writers of the
            other logs do not count as missing.
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
        """Follow whole lines; ``first`` is the number of the first line. Returns the number of the next line."""
        lines = data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for number, line in enumerate(lines, first):
            self._follow(line, Line(part, number))
        return first + len(lines)

    def verdict(self) -> Verdict:
        """All findings: first those of single lines in the order of the log, then those of whole chains.

        Raises:
            ValueError: the records are keyed, and no key was given.
        """
        if self._keyed and not self._records:
            raise ValueError("the records of the audit log are keyed; verifying them needs their key")
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
            self._report(kind, at, f"record {found.seq} of writer {found.writer} stands after its record {chain.seq}")
        else:
            if found.seq > chain.seq + 1:
                chain.missing.append((chain.seq + 1, found.seq - 1, at))
            elif chain.hash is not None and found.prev != chain.hash:
                self._report("edited", chain.line or at, f"the next record, {at}, names another hash for it")
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
            detail = "its hash is keyed, and those of the other records are not"
        else:
            detail = "its hash is not keyed" if self._key and not found.keyed else "its hash does not match its bytes"
        self._report("edited", at, detail)
        if self._continues(found.writer, found.seq, found.prev):  # then at least its head is unchanged
            chain = self._chains.setdefault(found.writer, _Chain())
            chain.seq, chain.hash, chain.line = found.seq, None, at

    def _judge_fragment(self, line: bytes, at: Line) -> None:
        begun = torn_from(line)
        if begun is None or (begun and not self._continues(*begun)):
            self._report("edited", at, "it is not a record")
        else:
            self._report("torn", at, "its writer stopped in the middle of it and did not acknowledge it")

    def _continues(self, writer: str, seq: int, prev: str) -> bool:
        """Whether the writer's next record must have this number and previous hash."""
        chain = self._chains.get(writer) or _Chain()
        return (seq, prev) == (chain.seq + 1, chain.hash)

    def _compare(self, chain: _Chain, found: Head, at: Line) -> None:
        anchor = self._anchors.pop((found.writer, found.seq), None)
        if anchor is None:
            return
        if anchor != found.hash:
            self._report("edited", at, "a checkpoint names another hash for it")
        elif found.seq == chain.seq:
            chain.since = None

    def _link(self, line: bytes, at: Line) -> None:
        """Check the record that a writer saw when it began; note it in ``links`` if its chain has gone on since."""
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
                self._report("edited", at, "its field 'seen' is not a writer, a number and a hash")
                return
        if chain is None or chain.seq < seq:
            self._report("missing", at, f"record {seq} of writer {writer}, which this line names as seen")
        elif chain.seq > seq:
            self.links.setdefault((writer, seq), []).append((digest, at))
        elif chain.hash not in (None, digest):
            self._report(
                "edited", chain.line or at, f"the record {at}, which names it as seen, has another hash for it"
            )

    def _bind(self, identity: object, at: Line) -> None:
        """Compare the identity in a writer's first record with the identity of the log."""
        if self._identity is None and isinstance(identity, str):
            self._identity = identity
        elif identity != self._identity:
            self._report("foreign", at, "it names the identity of another log")

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
        """Report salts that differ from the recorded ones; ``known`` returns the SHA-256 of an agent's present salt."""
        for agent, salt in self._salts.items():
            name = "the operations without an agent" if agent is None else f"agent {field(agent)}"
            found = known(agent) if salt.current else None
            for commitment, at in salt.current.items():
                if found is None:
                    self._report("salt", at, f"the salt of {name} is missing, and no record says that it was destroyed")
                elif commitment != found:
                    self._report("salt", at, f"the salt of {name} was replaced, and no record says why")

    def follow_links(self, data: bytes) -> None:
        """Check the records in `links`; call it, if there are any, after all lines were followed."""
        for line in data.split(b"\n"):
            if found := head(line, self._key):
                for digest, at in self.links.pop((found.writer, found.seq), ()):
                    if found.whole and found.hash != digest:
                        detail = f"it names another hash for record {found.seq} of writer {found.writer}"
                        self._report("edited", at, detail)

    def _judge_anchors(self) -> None:
        ends: dict[str, int] = {}
        for writer, seq in self._anchors:
            ends[writer] = max(seq, ends.get(writer, 0))
        for writer, seq in ends.items():
            chain = self._chains.get(writer)
            if chain is None:
                if not self._is_elsewhere(writer):
                    log = f" of log {field(self._logs[writer])}" if self._logs.get(writer) else ""
                    detail = f"all records of writer {field(writer)}{log}: a checkpoint names record {seq}"
                    self._report("missing", Line("", 0), detail)
            elif seq > chain.seq and chain.line:
                detail = f"the last record of writer {writer} is {chain.seq}; a checkpoint names record {seq}"
                self._report("truncated", chain.line, detail)

    def _is_elsewhere(self, writer: str) -> bool:
        """Whether the checkpoints are of several logs, including this one, and name another log for the writer."""
        log = self._logs.get(writer)
        return bool(log) and log != self._identity and self._identity in self._logs.values()

    def _tell_unanchored(self) -> None:
        for writer, chain in self._chains.items():
            if chain.since and chain.line:
                detail = f"no checkpoint covers these records of writer {writer}"
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
    """Verify a whole log as it is now; if writers are active, read the checkpoints before calling this.

    Args:
        location: the log.
        anchors: the hashes in the checkpoints: the keys are ``(writer, seq)``.
        key: the key of keyed hashes.
        identity: the identity of the log from a checkpoint; if None, the one in the file beside the log.
        logs: the identity of each writer's log, from the checkpoints; needed if they are of several logs.
        salts: whether to check the salts; False for a copy of the log without them.

    Raises:
        ValueError: the records are keyed, and no key was given.
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
