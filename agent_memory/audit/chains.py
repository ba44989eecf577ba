"""The chains of one writer's records, while the lines of a log are followed.

A writer has one chain, and more if its process was restored from an image of its memory: clones have the same writer
and the same number, so several records follow one record. Such a **branch** is legal. Its records differ at least in
their nonces.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from typing import NamedTuple

from agent_memory.audit.findings import Line
from agent_memory.audit.record import START, Head


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

    ``before`` are the chains that ended at the number before. ``is_again``: whether an earlier start has the same
    record.
    """

    found: Head
    at: Line
    chain: RecordChain
    before: list[RecordChain]
    is_again: bool

    def changed(self) -> RecordChain | None:
        """The chain that this record may have continued before its end was changed: one that has not gone on since."""
        ended = [chain for chain in self.before if chain.seq == self.found.seq - 1]
        return max(ended, key=lambda chain: chain.since is not None, default=None)


class Gap(NamedTuple):
    """Missing records, from the first to the last, before a line."""

    first: int
    last: int
    at: Line


class WriterChains:
    """All chains of one writer, with the gaps in them and the records that continue none."""

    def __init__(self) -> None:
        self.chains = [RecordChain()]
        self.gaps: list[Gap] = []
        self.starts: list[Start] = []
        self.started: Counter[str] = Counter()
        self.last = 0
        self._ends: dict[tuple[int, str | None], RecordChain] = {(0, START): self.chains[0]}

    def continued(self, seq: int, prev: str) -> RecordChain | None:
        """The chain whose next record has this number and this previous hash."""
        return self._ends.get((seq - 1, prev))

    def ends(self, seq: int) -> list[RecordChain]:
        """The chains whose last record has this number."""
        return [chain for chain in self.chains if chain.seq == seq and chain.line]

    def has_end(self, seq: int, digest: str) -> bool:
        """Whether a chain ends with this record, or with a changed one of this number."""
        return (seq, digest) in self._ends or (seq, None) in self._ends

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
        chain = self.continued(found.seq, found.prev) or self._ends.get((found.seq - 1, None))
        if chain is None and found.seq > self.last + 1:
            chain = max(self.chains, key=lambda each: each.seq)
            insort(self.gaps, Gap(self.last + 1, found.seq - 1, at), key=lambda gap: gap.first)
        if chain is None:
            chain = RecordChain()
            self.starts.append(Start(found, at, chain, self.ends(found.seq - 1), found.hash in self.started))
            self.started[found.hash] += 1
            self.chains.append(chain)
        self.extend(chain, found.seq, found.hash, at)
        chain.since = chain.since or at
        return chain

    def extend(self, chain: RecordChain, seq: int, digest: str | None, at: Line) -> None:
        """Let a chain end with a record."""
        if self._ends.get((chain.seq, chain.hash)) is chain:
            del self._ends[chain.seq, chain.hash]
        chain.seq, chain.hash, chain.line = seq, digest, at
        self._ends.setdefault((seq, digest), chain)
        self.last = max(self.last, seq)

    def replace(self, before: RecordChain, after: RecordChain) -> None:
        """Let a chain, whose last record was changed, go on as another one."""
        if before in self.chains:
            self.chains.remove(before)
            after.since = after.since and (before.since or after.since)
