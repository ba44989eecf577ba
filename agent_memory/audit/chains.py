"""The chains of one writer's records, while the lines of a log are followed.

A writer has one chain, and more if its process was restored from an image of its memory: clones have the same writer
and the same number, so several records follow one record. Such a **branch** is legal. Its records differ at least in
their nonces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

from agent_memory.audit.findings import Line
from agent_memory.audit.record import START, Head


class End(NamedTuple):
    """The last record of a chain, and its hash; None if the record was edited."""

    writer: str
    seq: int
    hash: str | None


class RecordChain:
    """The end of one chain: its last record, and the first line that no checkpoint covers."""

    __slots__ = ("hash", "line", "seq", "since")

    def __init__(self) -> None:
        self.seq = 0
        self.hash: str | None = START  # None: unknown, because the record was edited
        self.line: Line | None = None
        self.since: Line | None = None


class Start(NamedTuple):
    """A record that continues no chain: it begins a branch, or is out of place.

    ``before`` is the chain that ended last at the number before, if there was one. ``is_again``: whether an earlier
    start has the same record.
    """

    found: Head
    at: Line
    chain: RecordChain
    before: RecordChain | None
    is_again: bool

    def changed(self) -> RecordChain | None:
        """The chain that this record may have continued before its end was changed: it has not gone on since."""
        before = self.before
        return before if before and before.seq == self.found.seq - 1 else None


class Gap(NamedTuple):
    """Missing records, from the first to the last, before a line."""

    first: int
    last: int
    at: Line


class Numbered:
    """The records of one writer with one number, in the whole log.

    Attributes:
        hashes: how often each hash occurs.
        nonces: how many hashes there are with a previous hash and a nonce.
    """

    def __init__(self) -> None:
        self.hashes: Counter[str] = Counter()
        self.nonces: Counter[tuple[str, str]] = Counter()

    def add(self, found: Head) -> None:
        """Count a record."""
        self.nonces[found.prev, found.nonce] += found.hash not in self.hashes
        self.hashes[found.hash] += 1


class WriterChains:
    """All chains of one writer, with the gaps in them and the records that continue none.

    Attributes:
        chains: the chains, in the order in which they began.
        gaps: the gaps, by their first numbers.
        starts: the records that continue no chain.
        started: how often each hash is one of a start.
        last: the greatest number of a record.
        base: the greatest number of a record that is no longer in the log; 0 if the log has all.
    """

    def __init__(self) -> None:
        first = RecordChain()
        self.chains: dict[RecordChain, None] = {first: None}
        self.gaps: list[Gap] = []
        self.starts: list[Start] = []
        self.started: Counter[str] = Counter()
        self.last = 0
        self.base = 0
        self._by_end: dict[tuple[int, str | None], RecordChain] = {(0, START): first}
        self._by_number: dict[int, dict[RecordChain, None]] = {}

    def begin_at(self, seq: int, digest: str | None) -> None:
        """Begin with a chain whose records are no longer in the log."""
        chain = RecordChain()
        self.chains[chain] = None
        self.extend(chain, seq, digest, None)
        self.base = self.last

    def ends(self) -> list[tuple[int, str | None]]:
        """The number and the hash of the last record of each chain."""
        return [(chain.seq, chain.hash) for chain in self.chains if chain.seq]

    def continued(self, seq: int, prev: str) -> RecordChain | None:
        """The chain whose next record has this number and this previous hash."""
        return self._by_end.get((seq - 1, prev))

    def ended(self, seq: int) -> RecordChain | None:
        """The chain that ended last with a record of this number."""
        return next(reversed(self._by_number.get(seq, {})), None)

    def has_end(self, seq: int, digest: str) -> bool:
        """Whether a chain ends with this record, or with a changed one of this number."""
        return (seq, digest) in self._by_end or (seq, None) in self._by_end

    def fill(self, seq: int) -> bool:
        """Take a record out of the gaps; False if it is in none."""
        place = bisect_right(self.gaps, seq, key=lambda gap: gap.first) - 1
        if place < 0 or not self.gaps[place].first <= seq <= self.gaps[place].last:
            return False
        first, last, at = self.gaps[place]
        rest = [Gap(first, seq - 1, at), Gap(seq + 1, last, at)]
        self.gaps[place : place + 1] = [gap for gap in rest if gap.first <= gap.last]
        return True

    def follow(self, found: Head, at: Line) -> RecordChain:
        """Place a record that is in no gap, and return the chain that it ends now."""
        chain = self.continued(found.seq, found.prev) or self._by_end.get((found.seq - 1, None))
        if chain is None and found.seq > self.last + 1:
            chain = self.ended(self.last) or next(iter(self.chains))
            self.gaps.append(Gap(self.last + 1, found.seq - 1, at))
        if chain is None:
            chain = RecordChain()
            self.starts.append(Start(found, at, chain, self.ended(found.seq - 1), found.hash in self.started))
            self.started[found.hash] += 1
            self.chains[chain] = None
        self.extend(chain, found.seq, found.hash, at)
        chain.since = chain.since or at
        return chain

    def extend(self, chain: RecordChain, seq: int, digest: str | None, at: Line | None) -> None:
        """Let a chain end with a record."""
        if self._by_end.get((chain.seq, chain.hash)) is chain:
            del self._by_end[chain.seq, chain.hash]
        if ended := self._by_number.get(chain.seq):
            ended.pop(chain, None)
            if not ended:
                del self._by_number[chain.seq]
        chain.seq, chain.hash, chain.line = seq, digest, at
        self._by_end.setdefault((seq, digest), chain)
        self._by_number.setdefault(seq, {})[chain] = None
        self.last = max(self.last, seq)

    def replace(self, before: RecordChain, after: RecordChain) -> None:
        """Let a chain, whose last record was changed, go on as another one."""
        if before in self.chains:
            del self.chains[before]
            after.since = after.since and (before.since or after.since)
